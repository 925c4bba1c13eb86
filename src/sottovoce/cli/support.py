"""What every command does alike: errors and warnings in one line each, exit codes, one JSON document."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from sottovoce.objective.strategies import ObjectiveWarning
from sottovoce.privacy.errors import (
    BudgetExhausted,
    ConfigurationError,
    DataError,
    LedgerConflict,
    LedgerCorrupt,
    PrivacyWarning,
    QueryError,
    SottovoceError,
)

FAILURE, USAGE, BUDGET, LEDGER, INTERRUPTED, TERMINATED = 1, 2, 3, 4, 130, 143

AsJson = Annotated[
    bool,
    typer.Option("--json", help='Print one JSON document instead of text; after a failure, {"error": ...}.'),
]


@dataclass
class Output:
    """What a command prints: text as it goes, or one document at its end."""

    as_json: bool
    document: object = None

    def text(self, text: str) -> None:
        """Print text, unless JSON is wanted."""
        if not self.as_json:
            typer.echo(text)


@contextlib.contextmanager
def command(*, as_json: bool) -> Generator[Output]:
    """The body of a command: what it raises becomes one line on standard error and an exit code.

    With ``as_json``, whatever the body prints goes to standard error, and the document alone to standard output.
    """
    output = Output(as_json)
    try:
        with _warnings_in_one_line(), contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
            yield output
    except SottovoceError as error:
        # The loss fails on the public example only, so where it does is no secret.
        cause = f" [{place_of(error.__cause__)}]" if isinstance(error, QueryError) and error.__cause__ else ""
        fail(one_line(str(error)) + cause, exit_code(error), as_json=as_json)
    except KeyboardInterrupt as interrupt:
        terminated = isinstance(interrupt, Terminated)
        typer.echo("terminated." if terminated else "interrupted.", err=True)
        if as_json:
            typer.echo(to_json({"error": "terminated" if terminated else "interrupted"}))
        raise typer.Exit(TERMINATED if terminated else INTERRUPTED) from None
    if as_json:
        typer.echo(to_json(output.document))


def fail(text: str, code: int, *, as_json: bool) -> NoReturn:
    """End the command: the text on standard error, and, if JSON is wanted, in a document on standard output."""
    typer.echo(f"error: {text}", err=True)
    if as_json:
        typer.echo(to_json({"error": text}))
    raise typer.Exit(code) from None


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM."""


@contextlib.contextmanager
def ended_by_sigterm() -> Generator[None]:
    """Inside, SIGTERM does what Ctrl-C does, so that what was paid for is kept; a second one changes nothing.

    Where SIGTERM is ignored or handled already, that stays so.
    """
    asked = False

    def interrupt(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()  # no other may set what a signal does
    if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:  # on its way through the curator it may have become another one
        if not asked:
            raise
        raise Terminated from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def exit_code(error: SottovoceError) -> int:
    """2: what was given is wrong, and nothing was spent, unless `train` said that the run was cut off; 3: the budget is
    not enough; 4: the ledger; 1: the rest.
    """
    if isinstance(error, BudgetExhausted):
        return BUDGET
    if isinstance(error, LedgerConflict | LedgerCorrupt):
        return LEDGER
    return USAGE if isinstance(error, ConfigurationError | DataError | QueryError) else FAILURE


def place_of(error: BaseException) -> str:
    """The type of an error and the line that raised it; nothing of its message."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (f" at {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "")


def to_json(document: object) -> str:
    """JSON as the standard defines it: numbers that are infinite or undefined are null."""
    return json.dumps(_plain(document), indent=2, allow_nan=False)


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def rows(pairs: Mapping[str, str]) -> str:
    """Names and values, one to a line."""
    width = max(map(len, pairs), default=0) + 2
    return "\n".join(f"  {name:<{width}}{value}" for name, value in pairs.items())


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


@contextlib.contextmanager
def _warnings_in_one_line() -> Generator[None]:
    """The library's own warnings are always shown, each once; others as Python is set to show them."""
    shown: set[str] = set()
    with warnings.catch_warnings():
        for category in (PrivacyWarning, ObjectiveWarning):
            warnings.simplefilter("always", category)
        otherwise = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, PrivacyWarning | ObjectiveWarning):
                otherwise(message, category, *place, **more)
            elif (text := one_line(str(message))) not in shown:
                shown.add(text)
                typer.echo(f"{'privacy ' * issubclass(category, PrivacyWarning)}warning: {text}", err=True)

        warnings.showwarning = show
        yield
