"""The runs of a comparison, in the order in which a reader meets them, and their table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from sottovoce.fit import History
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.statement import Statement
from sottovoce.report import words


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One trained run in a comparison. Everything in it is released or public.

    Args:
        name: how readers call the run, such as ``"DPZero"``.
        note: one line on what it is, such as ``"zeroth-order, two forward passes a direction"``.
        accuracy: the final accuracy on the public test set, a fraction; not a number where none was measured.
        seconds: the training time, evaluation left out.
        peak_memory: megabytes above the process before training.
        history: the rows that `sottovoce.fit` keeps, with step, seconds, accuracy and loss.
        statement: the privacy statement of the run.
        settings: what the run was made with, such as the learning rate, the clip and the batch size.
    """

    name: str
    note: str
    accuracy: float
    seconds: float
    peak_memory: float
    history: History
    statement: Statement
    settings: dict[str, object]

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigurationError(f"name={self.name!r}: a run needs a name that readers can tell it by.")
        if math.isfinite(self.accuracy) and not 0 <= self.accuracy <= 1:
            raise ConfigurationError(f"accuracy={self.accuracy!r}: give a fraction between 0 and 1, not per cent.")

    @property
    def private(self) -> bool:
        """Whether a guarantee holds: the statement says so, and its figures are finite."""
        statement = self.statement
        return statement.private and math.isfinite(statement.epsilon) and math.isfinite(statement.epsilon_spent)

    def curve(self, across: str) -> tuple[list[float], list[float]]:
        """The finite points of the accuracy against ``"step"`` or ``"seconds"``."""
        points = [
            (row[across], row["accuracy"])
            for row in self.history
            if across in row and "accuracy" in row and math.isfinite(row[across]) and math.isfinite(row["accuracy"])
        ]
        return [x for x, _ in points], [y for _, y in points]


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """Private runs first, the most accurate first among each kind, those without an accuracy last."""
    entries = list(entries)
    if not entries:
        raise ConfigurationError("entries is empty: a report needs at least one run.")
    names = [entry.name for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"the name {twice[0]!r} was given twice: readers could not tell the runs apart.")
    return sorted(entries, key=_rank)


def _rank(entry: Entry) -> tuple[bool, bool, float, str]:
    measured = math.isfinite(entry.accuracy)
    return not entry.private, not measured, -entry.accuracy if measured else 0.0, entry.name


def table(entries: Sequence[Entry]) -> Table:
    """The comparison for the terminal: private runs first, the references marked NOT PRIVATE."""
    shown = Table(title_justify="left", caption="Accuracy on the public test set.", caption_justify="left")
    shown.add_column("method")
    shown.add_column("private?", no_wrap=True)
    for column in ("epsilon spent", "accuracy", "seconds", "peak memory"):
        shown.add_column(column, justify="right", no_wrap=column == "accuracy")
    for entry in ordered(entries):
        shown.add_row(
            Text(entry.name),
            Text("yes", style="green") if entry.private else Text("NOT PRIVATE", style="bold red"),
            Text(words.spent(entry)),
            Text(words.percent(entry.accuracy)),
            Text(words.number(entry.seconds)),
            Text(words.megabytes(entry.peak_memory)),
            style=None if entry.private else "dim",
        )
    return shown
