"""The paper's tables, from the rows of a run: means and standard deviations over seeds, in Markdown."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from sottovoce.bench.cells import QUERIES, REPORT, SHIFT, SHIFTS, Row
from sottovoce.bench.contestants import CONTESTANTS, Contestant, Family, find

Table = tuple[str, list[list[str]]]
"""A title and rows of text, the first of them the heading."""


def accuracies(rows: Iterable[Row], where: Callable[[Row], bool]) -> list[float]:
    """Test accuracies, in per cent, of the rows that came to an end."""
    return [100 * row.test_accuracy for row in rows if where(row) and not math.isnan(row.test_accuracy)]


def spread(values: Sequence[float], of: int = 0) -> str:
    """Mean and standard deviation; with how many runs came to an end, where not all did; a dash where none did."""
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    survivors = f" ({len(values)} of {of} runs)" if of > len(values) else ""
    return f"{statistics.mean(values):.1f}{deviation}{survivors}"


def seeds_of(rows: Iterable[Row], method: str, epsilon: float) -> dict[int, float]:
    """Test accuracy of every seed of a method at a budget, in per cent; NaN where the run failed."""
    return {
        row.seed: 100 * row.test_accuracy
        for row in rows
        if (row.stage, row.method, row.epsilon) == (REPORT, method, epsilon)
    }


def mean(rows: Iterable[Row], method: str, epsilon: float) -> float:
    """Mean test accuracy of a method at a budget, in per cent; NaN where there is none, or a run failed."""
    found = seeds_of(rows, method, epsilon)
    return statistics.mean(found.values()) if found else math.nan


def milliseconds(rows: Iterable[Row], method: str) -> float:
    """The median time of a step of a method in the report; NaN where no run of it came to an end."""
    times = [
        1000 * row.seconds / row.steps for row in rows if (row.stage, row.method, row.status) == (REPORT, method, "ok")
    ]
    return statistics.median(times) if times else math.nan


def budgets(rows: Iterable[Row]) -> list[float]:
    """The finite budgets of the report, ascending."""
    return sorted({row.epsilon for row in rows if row.stage == REPORT and math.isfinite(row.epsilon)})


def accuracy(rows: Sequence[Row]) -> Table:
    """Tables 2 to 5: every method at every budget, with the control under each PAZO row."""
    epsilons = budgets(rows)
    heading = ["method", *(f"ε = {epsilon:g}" for epsilon in epsilons), "without privacy"]
    reference = {"DP-SGD": "SGD", "DPZero": "MeZO"}
    present = [name for name in CONTESTANTS if any((row.stage, row.method) == (REPORT, name) for row in rows)]
    beside = {reference[name] for name in present if name in reference}  # in the row of their private method
    lines = [heading]
    for name in present:
        contestant = CONTESTANTS[name]
        own = contestant.family == "reference"
        if name in beside:
            continue
        cells = ["" if own else _cell(rows, contestant, epsilon) for epsilon in epsilons]
        alone = own or (not contestant.private and not epsilons)
        source = name if alone else reference.get(name)
        plain = accuracies(rows, lambda row, source=source: (row.stage, row.method) == (REPORT, source))
        lines.append([name, *cells, spread(plain) if plain or alone else ""])
    starts = {row.seed: 100 * row.start_accuracy for row in rows if row.stage == REPORT}
    first = spread([starts[seed] for seed in sorted(starts)])
    lines.append(["(all start from)", *[first, *[""] * len(epsilons)]])
    return "Test accuracy, per cent (the paper's Tables 2 to 5)", lines


def _cell(rows: Sequence[Row], contestant: Contestant, epsilon: float) -> str:
    wanted = epsilon if contestant.private else math.inf
    found = seeds_of(rows, contestant.name, wanted)
    return spread([value for value in found.values() if not math.isnan(value)], of=len(found))


def public_gain(rows: Sequence[Row]) -> Table:
    """Table 6: what private records add to training on the public ones alone, by the best method of a family at each
    budget.
    """
    alone = accuracies(rows, lambda row: (row.stage, row.method) == (REPORT, "public only"))
    lines = [["", "accuracy or gain"], ["public only", spread(alone)]]
    if alone:
        base = statistics.mean(alone)
        for family in ("FO+PUB", "ZO+PUB"):
            gains = [gain for epsilon in budgets(rows) if not math.isnan(gain := best(rows, epsilon, family) - base)]
            lines.append(
                [f"{family}, least and most of its best", f"{min(gains):+.1f} … {max(gains):+.1f}" if gains else "–"]
            )
    return "Gain over public data alone, points (Table 6)", lines


def best(rows: Iterable[Row], epsilon: float, *families: Family) -> float:
    """The best mean accuracy among the methods of some families; NaN if there is none."""
    members = [name for name, each in CONTESTANTS.items() if each.family in families]
    found = [value for name in members if not math.isnan(value := mean(rows, name, epsilon))]
    return max(found, default=math.nan)


def shift(rows: Sequence[Row], similarity: Mapping[str, float]) -> Table:
    """Table 7: accuracy as the public data grows unlike the private, with the measured gamma."""
    found = [row for row in rows if row.stage == SHIFT]
    methods = [name for name in CONTESTANTS if any(row.method == name for row in found)]
    lines = [["public data", "gamma at the start, NOT PRIVATE", *methods]]
    for name in levels(found):
        gamma = similarity.get(name, math.nan)
        cells = [
            spread(accuracies(found, lambda row, n=name, m=method: (row.setting, row.method) == (n, m)))
            for method in methods
        ]
        lines.append([name, "–" if math.isnan(gamma) else f"{gamma:.2f}", *cells])
    return "Accuracy at ε = 1 under shift, and gamma-similarity (Table 7)", lines


def levels(rows: Iterable[Row]) -> list[str]:
    """The settings of the shift experiment, from the mildest on."""
    order = [f"{option}={level}" for option, levels in SHIFTS.items() for level in levels]
    names = {row.setting for row in rows if row.stage == SHIFT}
    return sorted(names, key=lambda name: max((order.index(each) for each in order if each in name), default=0))


def seconds(rows: Sequence[Row]) -> Table:
    """Seconds a step as the runs took, each in its turn; benchmarks/method_speed.py measures them side by side."""
    lines = [["method", "milliseconds a step (median)"]]
    for name, each in CONTESTANTS.items():
        time = milliseconds(rows, name)
        if not math.isnan(time) and not each.silent:  # a silenced method asks nobody
            lines.append([name, f"{time:.1f}"])
    return "Time of a step in these runs (compare Table 8)", lines


def operations() -> Table:
    """Table 9: passes in a step of expected batch b, public batch b', q queries and k public gradients."""
    lines = [
        ["method", "private forward", "public forward and backward", "private backward"],
        ["DP-SGD", "b", "–", "b"],
        ["DPMD", "b", "1", "b"],
        ["DOPE-SGD", "b", "1", "b"],
        ["GEP", "b", "b'", "b"],
        ["DPZero", "2q", "–", "–"],
        ["PAZO-M", "2q", "1", "–"],
        ["PAZO-P", "2q", "k", "–"],
        ["PAZO-S", "k + 1", "k", "–"],
    ]
    return "Operations in a step (Table 9; b: one for each record, else one for the whole batch)", lines


def queries(rows: Sequence[Row]) -> Table:
    """Table 11: one query against five."""
    found = [row for row in rows if row.stage == QUERIES]
    counts = sorted({json.loads(row.options)["queries"] for row in found})
    lines = [["method", *(f"q = {count}" for count in counts)]]
    for name in dict.fromkeys(row.method for row in found):
        cells = [
            spread(
                accuracies(
                    found, lambda row, n=name, c=count: row.method == n and json.loads(row.options)["queries"] == c
                )
            )
            for count in counts
        ]
        lines.append([name, *cells])
    budget = max((row.epsilon for row in found), default=math.nan)
    return f"Queries in a step, ε = {budget:g} (Table 11)", lines


def settings(rows: Sequence[Row]) -> Table:
    """The settings that were chosen on validation data."""
    used: dict[str, str] = {row.method: row.options for row in rows if row.stage == REPORT}
    return "Chosen on validation data at ε = 1, seed 0", [
        ["method", "settings"],
        *([name, f"`{used[name]}`"] for name in CONTESTANTS if name in used and find(name).settings_of is None),
    ]


def markdown(table: Table) -> str:
    """A Markdown table under its title."""
    title, lines = table
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([f"**{title}**", "", padded[0], rule, *padded[1:]])
