"""The runs of a comparison, in the order in which a reader meets them, and their table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rich.table import Table
from rich.text import Text

from sottovoce.fit import History
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.statement import Statement
from sottovoce.report import words

TrainsOn = Literal["private", "private and public", "public"]
Kind = Literal["private", "public", "reference"]
"""A guarantee holds; no private record was read, so none is needed; or private records were read without one."""

_KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One trained run in a comparison. All is released or public but time and memory, which are not protected.

    Args:
        name: how readers call the method, such as ``"DPZero"``. Several runs may share it, at different epsilons.
        note: one line on what it is, such as ``"zeroth-order, two forward passes a direction"``.
        accuracy: the final accuracy on the public test set, a fraction; not a number where none was measured.
        seconds: the training time, evaluation left out.
        peak_memory: megabytes above the process before training.
        history: the rows that `sottovoce.fit` keeps, with step, seconds, accuracy and loss.
        statement: the privacy statement of the run.
        settings: what the run was made with, such as the learning rate, the clip and the batch size.
        trains_on: which records taught the model. ``"public"`` says that no private record was read.
    """

    name: str
    note: str
    accuracy: float
    seconds: float
    peak_memory: float
    history: History
    statement: Statement
    settings: dict[str, object]
    trains_on: TrainsOn = "private"

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigurationError(f"name={self.name!r}: a run needs a name that readers can tell it by.")
        if math.isfinite(self.accuracy) and not 0 <= self.accuracy <= 1:
            raise ConfigurationError(f"accuracy={self.accuracy!r}: give a fraction between 0 and 1, not per cent.")
        if self.trains_on not in get_args(TrainsOn):
            choices = ", ".join(map(repr, get_args(TrainsOn)))
            raise ConfigurationError(f"trains_on={self.trains_on!r}: choose one of {choices}.")

    @property
    def private(self) -> bool:
        """Whether a guarantee holds: the statement says so, and its figures are finite."""
        statement = self.statement
        return statement.private and math.isfinite(statement.epsilon) and math.isfinite(statement.epsilon_spent)

    @property
    def kind(self) -> Kind:
        """What its figures may be taken for."""
        return "private" if self.private else "public" if self.trains_on == "public" else "reference"

    @property
    def epsilon(self) -> float:
        """The epsilon of the guarantee; infinite where there is none."""
        return self.statement.epsilon if self.private else math.inf

    def curve(self, across: str) -> tuple[list[float], list[float]]:
        """The finite points of the accuracy against ``"step"`` or ``"seconds"``."""
        points = [
            (row[across], row["accuracy"])
            for row in self.history
            if across in row and "accuracy" in row and math.isfinite(row[across]) and math.isfinite(row["accuracy"])
        ]
        return [x for x, _ in points], [y for _, y in points]


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """The order in which a reader meets them.

    Methods with private runs first, then what was trained on public records alone, then the references; the most
    accurate first among each, those without an accuracy last. Of a method, its main run first (see `main_runs`), the
    others by epsilon.
    """
    entries = list(entries)
    if not entries:
        raise ConfigurationError("entries is empty: a report needs at least one run.")
    _refuse_twins(entries)
    main = _main_epsilon(entries)
    runs: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (_distance(entry.epsilon, main), entry.epsilon)):
        runs.setdefault(entry.name, []).append(entry)
    methods = sorted(runs.values(), key=lambda own: _rank(own[0]))
    return [entry for first, *rest in methods for entry in (first, *sorted(rest, key=lambda each: each.epsilon))]


def main_runs(entries: Iterable[Entry]) -> list[Entry]:
    """One run of each method, in order: the one that tables and learning curves show.

    It is the run at the epsilon at which most methods were run, of several such epsilons the nearest to 1; of a method
    that was not run there, the run at the epsilon nearest to it.
    """
    first: dict[str, Entry] = {}
    for entry in ordered(entries):
        first.setdefault(entry.name, entry)
    return list(first.values())


def epsilons(entries: Iterable[Entry]) -> list[float]:
    """Those of the private runs, each once, the smallest first."""
    return sorted({entry.epsilon for entry in entries if entry.private})


def _refuse_twins(entries: Sequence[Entry]) -> None:
    """Two runs of one name must be private runs of two epsilons, or readers could not tell them apart."""
    seen: dict[str, list[Entry]] = {}
    for entry in entries:
        others = seen.setdefault(entry.name, [])
        for other in others:
            if not (entry.private and other.private):
                raise ConfigurationError(
                    f"the name {entry.name!r} was given twice: readers could not tell the runs apart. Only private "
                    "runs at different epsilons may share a name."
                )
            if entry.epsilon == other.epsilon:
                raise ConfigurationError(
                    f"the name {entry.name!r} was given twice at epsilon {entry.epsilon:g}: readers could not tell the "
                    "runs apart."
                )
        others.append(entry)


def _main_epsilon(entries: Sequence[Entry]) -> float:
    found = [entry.epsilon for entry in entries if entry.private]
    return min(found, key=lambda epsilon: (-found.count(epsilon), _distance(epsilon, 1.0), epsilon), default=1.0)


def _distance(one: float, other: float) -> float:
    """As on a logarithmic axis."""
    return abs(math.log(one / other)) if min(one, other) > 0 else math.inf


def _rank(entry: Entry) -> tuple[int, bool, float, str]:
    measured = math.isfinite(entry.accuracy)
    return _KINDS.index(entry.kind), not measured, -entry.accuracy if measured else 0.0, entry.name


def table(entries: Sequence[Entry]) -> Table:
    """The comparison for the terminal: one row for each method, private ones first, the references marked."""
    shown = Table(title_justify="left", caption="Accuracy on the public test set.", caption_justify="left")
    shown.add_column("method")
    shown.add_column("private?", no_wrap=True)
    for column in ("epsilon spent", "accuracy", "seconds", "peak memory"):
        shown.add_column(column, justify="right", no_wrap=column == "accuracy")
    entries = ordered(entries)
    main = main_runs(entries)
    others = [epsilon for epsilon in epsilons(entries) if any(_at(entries, one, epsilon) for one in main)]
    for epsilon in others:
        shown.add_column(f"accuracy at epsilon {words.at_most(epsilon)}", justify="right")
    for entry in main:
        shown.add_row(
            Text(entry.name),
            _mark(entry),
            Text(words.spent(entry)),
            Text(words.percent(entry.accuracy)),
            Text(words.number(entry.seconds)),
            Text(words.megabytes(entry.peak_memory)),
            *(Text(words.percent(run.accuracy) if (run := _at(entries, entry, each)) else "") for each in others),
            style=None if entry.private else "dim",
        )
    return shown


def _mark(entry: Entry) -> Text:
    if entry.private:
        return Text("yes", style="green")
    return Text("public data") if entry.kind == "public" else Text("NOT PRIVATE", style="bold red")


def _at(entries: Sequence[Entry], main: Entry, epsilon: float) -> Entry | None:
    """The run of the method at this epsilon, where that is not its main run."""
    found = (entry for entry in entries if entry.name == main.name and entry.epsilon == epsilon)
    return next((entry for entry in found if entry != main), None)
