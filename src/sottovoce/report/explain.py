"""What a reader must know to read a report rightly, in plain words, with this comparison's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sottovoce.report import words
from sottovoce.report.entries import Entry, epsilons, main_runs

_NEIGHBOURS = {
    "zero-out": (
        "Zero-out neighbours: two data sets that differ in one record, which in one of them is replaced by a record "
        "that contributes nothing to any answer. Their sizes are equal, so the number of records is public."
    ),
    "add-remove": (
        "Add-remove neighbours: two data sets of which one has one record more. The number of records is not public; "
        "sampling rate, steps and divisor were fixed without looking at it."
    ),
    "replace-one": (
        "Replace-one neighbours: two data sets of equal, public size that differ in the value of one record, whatever "
        "the two values are."
    ),
}


def belief(epsilon: float, delta: float) -> float:
    """How often the best guess between two neighbouring data sets, each as likely before, is right at most.

    For every (epsilon, delta)-differentially private release: (e^epsilon + delta) / (1 + e^epsilon), from the
    trade-off of the two errors of any test (Kairouz, Oh and Viswanath 2015, section 2).
    """
    small = math.exp(-epsilon)
    return 1 - (1 - delta) * small / (1 + small)


def sections(entries: Sequence[Entry]) -> list[tuple[str, list[str]]]:
    """Headings and paragraphs."""
    private = [entry for entry in entries if entry.private]
    kinds = {entry.kind for entry in entries}
    parts = [("What epsilon means", [_epsilon(private)])]
    if private:
        parts.append(("Who is protected", _protected(private)))
    if "public" in kinds:
        parts.append(("Why a run on public data alone is here", [_public(entries)]))
    if "reference" in kinds:
        parts.append(("Why runs without privacy are here", [_references(bool(private))]))
    parts.append(("How far to trust the differences", [_chance(entries)]))
    return parts


def not_covered(entries: Sequence[Entry]) -> list[str]:
    """What no guarantee on the page speaks of: the statements' own points, then those of a comparison."""
    private = [entry for entry in entries if entry.private]
    points = list(dict.fromkeys(point for entry in private for point in entry.statement.not_covered))
    if len(private) > 1:
        points.append(_together(private))
    if any(entry.kind == "reference" for entry in entries):
        points.append(
            "the figures and the models of the runs marked NOT PRIVATE: they were computed from the records without "
            "protection, so with records that are really private neither they nor this page may be shown"
        )
    return points


def _epsilon(private: Sequence[Entry]) -> str:
    main = main_runs(private) if private else []
    worst = max(main, key=lambda entry: words.guaranteed(entry.statement)).statement if main else None
    replaced = worst is not None and worst.neighbours == "replace-one"
    otherwise = "had that record been any other" if replaced else "had that record not taken part"
    meaning = (
        "Epsilon bounds what a trained model can give away about any one record. Whatever someone concludes from the "
        f"model, they would have concluded almost as readily {otherwise}; epsilon says how much “almost” allows, and "
        "0 would allow nothing."
    )
    if worst is None:
        return f"{meaning} No run on this page has such a bound."
    question = "which of two values one record had" if replaced else "whether one record took part"
    epsilon = words.guaranteed(worst)
    guesses = _guesses(epsilon, worst.delta)
    right = (
        f"right at most {guesses} times in 100" if guesses < 100 else "free to be right always: this protects little"
    )
    others = [
        f"{_guesses(other, worst.delta)} at epsilon {words.at_most(other)}"
        for other in epsilons(private)
        if other != worst.epsilon
    ]
    elsewhere = f" It is {words.listed(others)}." if others else ""
    return (
        f"{meaning} At the {words.at_most(epsilon)} spent here, someone who knows all other records, sees "
        f"everything the run released and must say {question} is {right}, where a blind guess is right 50 times."
        f"{elsewhere} Delta ({words.at_most(worst.delta)}) is the small probability left outside the bound; it should "
        "be well below one over the number of records."
    )


def _guesses(epsilon: float, delta: float) -> int:
    return math.ceil(100 * belief(epsilon, delta) - 1e-9)


def _protected(private: Sequence[Entry]) -> list[str]:
    used = sorted({entry.statement.neighbours for entry in private})
    return [
        *(_NEIGHBOURS.get(name, f"Neighbours: {name}.") for name in used),
        "The unit is one record. Who owns several records is protected less: the bound grows with their number.",
    ]


def _public(entries: Sequence[Entry]) -> str:
    both = [entry.name for entry in main_runs(entries) if entry.trains_on == "private and public"]
    use = f"{words.listed(both)} {'use' if len(both) > 1 else 'uses'} both. " if both else ""
    return (
        "Records that everybody may see teach without costing any privacy, so a method that uses them beside the "
        f"private ones does well even where it learns nothing from those. {use}Judge such a method by its distance "
        "from the level that the public records give alone, not by its height."
    )


def _references(compared: bool) -> str:
    purpose = "They show what the same model and records give when nothing is protected"
    purpose += ", so that the price of privacy can be seen." if compared else "."
    return (
        f"{purpose} Dashed and grey in the figures and marked NOT PRIVATE, they carry no guarantee: such a model may "
        "reveal the records that it was trained on."
    )


def _chance(entries: Sequence[Entry]) -> str:
    each = "Each line is one run" if len(entries) > 1 else "This is one run"
    each = "Each learning curve, and each point against epsilon, is one run" if len(epsilons(entries)) > 1 else each
    text = (
        f"{each}: the next one draws other noise and other batches, so differences of a few tenths of a point mean "
        "little. "
    )
    if {"private", "reference"} <= {entry.kind for entry in entries}:
        text += (
            "The headline sets the best private run against the best without privacy; their methods and settings may "
            "differ too, not only the protection. "
        )
    return f"{text}Seconds and memory are those of one machine."


def _together(private: Sequence[Entry]) -> str:
    text = (
        f"the {len(private)} private runs together: each guarantee is that of its run alone, and whoever sees several "
        "learns more"
    )
    if len({entry.statement.neighbours for entry in private}) > 1:
        return text
    epsilon = sum(words.guaranteed(entry.statement) for entry in private)
    delta = sum(entry.statement.delta for entry in private)
    return f"{text} (by simple addition at most epsilon {words.at_most(epsilon)}, delta {words.at_most(delta)})"
