"""Numbers as a reader wants them, and what a comparison found, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sottovoce.privacy.statement import Statement
    from sottovoce.report.entries import Entry

SPACE = "\N{NO-BREAK SPACE}"
"""Between a number and its unit, so that no line ends there."""

ABSENT = "not measured"
NO_GUARANTEE = "no guarantee"
LONGEST_NOTE = 72

_FRACTIONS = (
    (1 / 10, "a tenth of"),
    (1 / 5, "a fifth of"),
    (1 / 4, "a quarter of"),
    (1 / 3, "a third of"),
    (1 / 2, "half"),
)


def percent(fraction: float) -> str:
    """``93.1 %``."""
    return f"{100 * fraction:.1f}{SPACE}%" if math.isfinite(fraction) else ABSENT


def number(value: float) -> str:
    """Three digits or so: ``0.42``, ``8.3``, ``151``, ``12,480``."""
    if not math.isfinite(value):
        return ABSENT
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 0.95 else 2
    return f"{value:,.{decimals}f}"


def megabytes(value: float) -> str:
    """``151 MB``."""
    return f"{number(value)}{SPACE}MB" if math.isfinite(value) else ABSENT


def at_most(value: float) -> str:
    """Four digits, rounded up: a bound on the privacy loss is never shown smaller than it is."""
    if not math.isfinite(value):
        return NO_GUARANTEE
    rounded = float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(float(value))))
    return f"{rounded:g}".replace("e-0", "e-")


def spent(entry: Entry) -> str:
    """The epsilon that a run spent; of a run without privacy there is none, whatever was accounted."""
    return at_most(guaranteed(entry.statement)) if entry.private else NO_GUARANTEE


def guaranteed(statement: Statement) -> float:
    """The epsilon that holds: the whole plan's where a run was cut off, perhaps because of what it had released."""
    finished = statement.steps_run == statement.steps_planned
    return statement.epsilon_spent if finished else max(statement.epsilon, statement.epsilon_spent)


def headline(entries: Iterable[Entry]) -> str:
    """What was found, in a sentence or a few, with numbers from the entries."""
    from sottovoce.report.entries import ordered  # which takes its words from here

    return " ".join(findings(ordered(entries)))


def findings(entries: Sequence[Entry]) -> list[str]:
    """The sentences of the headline, the most important first; ``entries`` are in their order."""
    main = _first_of_each(entries)
    private = _best_first(entry for entry in main if entry.private)
    references = _best_first(entry for entry in main if entry.kind == "reference")
    public = _best_first(entry for entry in main if entry.kind == "public")
    if not any(entry.private for entry in main):
        return [*_nothing_private(references or public), *_unmeasured(main)]
    if not private:
        return ["No private run ended with an accuracy that could be measured.", *_unmeasured(main)]
    best, others = private[0], private[1:]
    shared = shared_epsilon(main)
    opening = f"At epsilon{SPACE}{shared}, " if shared else ""
    label = "" if shared else f" (epsilon{SPACE}{at_most(best.statement.epsilon)})"
    sentences = [f"{opening}{best.name}{label} reaches {percent(best.accuracy)}{_against(best, references)}."]
    sentences += _beside_public(private, public)
    for other in others[:2]:
        label = "" if shared else f"epsilon{SPACE}{at_most(other.statement.epsilon)}"
        sentences.append(f"{_introduced(other, label)} reaches {_accuracy_beside(other, best)}{_cost(other, best)}.")
    return [*sentences, *_smallest_epsilon(entries), *_unmeasured(main)]


def _first_of_each(entries: Iterable[Entry]) -> list[Entry]:
    first: dict[str, Entry] = {}
    for entry in entries:
        first.setdefault(entry.name, entry)
    return list(first.values())


def _beside_public(private: Sequence[Entry], public: Sequence[Entry]) -> list[str]:
    """What private records add to public ones: without it, a method that uses both would be praised for the latter."""
    if not public:
        return []
    alone = public[0]
    said = f"The public records alone, without any private one, give {percent(alone.accuracy)}"
    helped = [entry for entry in private if entry.trains_on == "private and public"]
    if not helped:
        return [f"{said}."]
    best = helped[0]
    points = round(100 * best.accuracy, 1) - round(100 * alone.accuracy, 1)
    ending = f"{abs(points):.1f}{SPACE}{_points(abs(points))} {'above' if points > 0 else 'below'}"
    ending = ending if abs(points) >= 0.05 else "at the same figure"
    if len(helped) > 1:
        return [f"{said}; of the methods that use both, {best.name} comes out best, {ending}."]
    return [f"{said}; {best.name}, which uses both, comes out {ending}."]


def _smallest_epsilon(entries: Iterable[Entry]) -> list[str]:
    """Who copes best with the smallest budget, where there is more than one."""
    private = [entry for entry in entries if entry.private]
    if len({entry.epsilon for entry in private}) < 2:
        return []
    smallest = min(entry.epsilon for entry in private)
    there = _best_first(entry for entry in private if entry.epsilon == smallest)
    if not there:
        return []
    best, last = there[0], there[-1]
    opening = f"At epsilon{SPACE}{at_most(smallest)}, {best.name} reaches {percent(best.accuracy)}"
    if len(there) == 1:
        return [f"{opening}."]
    return [f"{opening}, the most of {len(there)} methods, and {last.name} {percent(last.accuracy)}, the least."]


def _points(value: float) -> str:
    return "point" if f"{value:.1f}" == "1.0" else "points"


def _best_first(entries: Iterable[Entry]) -> list[Entry]:
    measured = [entry for entry in entries if math.isfinite(entry.accuracy)]
    return sorted(measured, key=lambda entry: (-entry.accuracy, entry.peak_memory, entry.seconds, entry.name))


def _nothing_private(references: Sequence[Entry]) -> list[str]:
    if not references:
        return ["Nothing here is private, and no accuracy could be measured."]
    best = references[0]
    return [f"Nothing here is private: {best.name} reaches {percent(best.accuracy)} without any guarantee."]


def shared_epsilon(entries: Iterable[Entry]) -> str:
    """That of all private runs; empty where they differ."""
    found = {at_most(entry.statement.epsilon) for entry in entries if entry.private}
    return found.pop() if len(found) == 1 else ""


def _against(best: Entry, references: Sequence[Entry]) -> str:
    if not references:
        return "; no run without privacy is here to compare it with"
    reference = references[0]
    points = round(100 * reference.accuracy, 1) - round(100 * best.accuracy, 1)
    if abs(points) < 0.05:
        return f", the same as {reference.name} without privacy"
    if points < 0:
        return f", above the {percent(reference.accuracy)} of {reference.name} without privacy"
    return (
        f" where {reference.name} without privacy reaches {percent(reference.accuracy)}: "
        f"privacy costs {points:.1f}{SPACE}{_points(points)}"
    )


def _introduced(entry: Entry, label: str) -> str:
    note = entry.note.strip().rstrip(".")
    asides = "; ".join(text for text in (note if len(note) <= LONGEST_NOTE else "", label) if text)
    return f"{entry.name} ({asides})" if asides else entry.name


def _accuracy_beside(entry: Entry, best: Entry) -> str:
    same = percent(entry.accuracy) == percent(best.accuracy)
    return f"the same {percent(entry.accuracy)}" if same else percent(entry.accuracy)


def _cost(entry: Entry, best: Entry) -> str:
    """Both the memory and the time, whichever way they differ by more than a fifth or so: no choice flatters."""
    parts = [
        f"{share} the {what}"
        for what, share in (
            ("memory", _share(entry.peak_memory, best.peak_memory)),
            ("time", _share(entry.seconds, best.seconds)),
        )
        if share
    ]
    return " in " + " and ".join(parts) if parts else ""


def _share(value: float, whole: float) -> str:
    if not (math.isfinite(value) and math.isfinite(whole) and value > 0 and whole > 0):
        return ""
    ratio = value / whole
    if 0.8 <= ratio <= 1.25:
        return ""
    if ratio > 1.25:
        return "twice" if 1.95 <= ratio <= 2.05 else f"{number(ratio)} times"
    for fraction, name in _FRACTIONS:
        if abs(ratio / fraction - 1) < 0.06:
            return name
    return f"{max(1, round(100 * ratio))}{SPACE}% of"


def _unmeasured(entries: Iterable[Entry]) -> list[str]:
    names = [entry.name for entry in entries if not math.isfinite(entry.accuracy)]
    if not names:
        return []
    return [f"{listed(names)} ended without an accuracy: diverged, or never evaluated."]


def listed(names: Sequence[str]) -> str:
    """``A``, ``A and B``, ``A, B and C``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
