"""Running the tool of a registry, and telling what went wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from sottovoce.privacy.errors import DataError

Runner = Callable[[Sequence[str], Path | None], "subprocess.CompletedProcess[str]"]
"""Runs a command in a folder (in the present one for None) and gives what it printed."""

_TIMEOUT = 1800.0


def run(command: Sequence[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end and keep what it printed."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=_TIMEOUT, cwd=folder
    )


def call(runner: Runner, command: Sequence[str], folder: Path | None, *, what: str, mend: str, missing: str) -> None:
    """Run a download.

    Args:
        runner: what runs it.
        command: the command.
        folder: where it is run.
        what: tool and package, for the messages.
        mend: what to try where the tool fails.
        missing: what to do where the tool is not there.

    Raises:
        DataError: it could not be run, or failed; the message has its last words.
    """
    try:
        done = runner(command, folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{what}: {command[0]} could not be run ({error}). {missing}") from error
    if done.returncode:
        raise DataError(
            f"{what}: it could not be downloaded (exit status {done.returncode}: {_reason(done.stderr or '')}). {mend}"
        )


def _reason(errors: str) -> str:
    """The last line that is an error by its own words, else the last line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("ERROR", "E:", "npm error", "npm ERR!"))]
    # npm ends with where its log is; its first lines tell code and cause.
    told = " ".join(marked[:2]) if marked and marked[0].startswith("npm") else (marked or lines or ["no message"])[-1]
    return told[:500]
