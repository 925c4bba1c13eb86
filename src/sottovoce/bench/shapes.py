"""Whether the paper's seven shapes hold in a run: each with the figures that decide it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sottovoce.bench.cells import REPORT, Row
from sottovoce.bench.contestants import CONTESTANTS, Family
from sottovoce.bench.plan import QUERIES, SHIFT
from sottovoce.bench.tables import accuracies, budgets, mean, milliseconds

PAZO = ("PAZO-M", "PAZO-P", "PAZO-P normalised", "PAZO-S")


@dataclass(frozen=True)
class Shape:
    """One claim, whether it held (None: it was not run), and the figures."""

    claim: str
    holds: bool | None
    evidence: str


def shapes(rows: Sequence[Row]) -> list[Shape]:
    """The seven shapes, and the control that the paper lacks."""
    report = [row for row in rows if row.stage == REPORT]
    return [
        _flat(report), _above(report), _rising(report), _ahead_at_least_budget(report), _queries(rows), _shift(rows),
        _cost(report), _control(report),
    ]  # fmt: skip


def _values(rows: Sequence[Row], method: str) -> list[float]:
    return [found for epsilon in budgets(rows) if not math.isnan(found := mean(rows, method, epsilon))]


def _members(rows: Sequence[Row], *families: Family) -> list[str]:
    return [name for name, each in CONTESTANTS.items() if each.family in families and _values(rows, name)]


def _best(rows: Sequence[Row], epsilon: float, *families: Family) -> float:
    found = [mean(rows, name, epsilon) for name in _members(rows, *families)]
    return max((value for value in found if not math.isnan(value)), default=math.nan)


def _verdict(known: Sequence[object], holds: bool) -> bool | None:
    return holds if known else None


def _flat(rows: Sequence[Row]) -> Shape:
    ranges = {name: max(values) - min(values) for name in PAZO if len(values := _values(rows, name)) > 1}
    text = ", ".join(f"{name} {size:.1f}" for name, size in ranges.items())
    return Shape(
        "1. PAZO is flat in epsilon: most less least at most 1.6 points",
        _verdict([*ranges], all(size <= 1.6 for size in ranges.values())),
        text,
    )


def _above(rows: Sequence[Row]) -> Shape:
    public = accuracies(rows, lambda row: row.method == "public only")
    base = sum(public) / len(public) if public else math.nan
    margins: dict[str, float] = {}
    for name in PAZO:
        for epsilon in budgets(rows):
            own, zero = mean(rows, name, epsilon), mean(rows, "DPZero", epsilon)
            if not math.isnan(own - zero):
                margins[f"{name} over DPZero"] = min(margins.get(f"{name} over DPZero", math.inf), own - zero)
            if not math.isnan(own - base):
                margins[f"{name} over public"] = min(margins.get(f"{name} over public", math.inf), own - base)
    text = "least margins: " + ", ".join(f"{name} {margin:+.1f}" for name, margin in margins.items())
    return Shape(
        "2. every PAZO method is above DPZero, and above public data alone, at every epsilon",
        _verdict([*margins], all(margin > 0 for margin in margins.values())),
        text,
    )


def _rising(rows: Sequence[Row]) -> Shape:
    epsilons = budgets(rows)
    found = {name: _values(rows, name) for name in _members(rows, "FO", "FO+PUB")}
    rises = {name: values[-1] - values[0] for name, values in found.items() if len(values) > 1}
    crossing = next((e for e in epsilons if _best(rows, e, "FO", "FO+PUB") > _best(rows, e, "ZO+PUB")), None)
    where = f"first-order first ahead at epsilon {crossing:g}" if crossing else "no crossover up to the largest epsilon"
    ahead_first = bool(epsilons) and _best(rows, epsilons[0], "FO", "FO+PUB") < _best(rows, epsilons[0], "ZO+PUB")
    return Shape(
        "3. first-order methods rise with epsilon and overtake PAZO",
        _verdict([*rises], all(rise > 0 for rise in rises.values()) and ahead_first and crossing is not None),
        ", ".join(f"{name} {rise:+.1f}" for name, rise in rises.items()) + f"; {where}",
    )


def _ahead_at_least_budget(rows: Sequence[Row]) -> Shape:
    epsilons = budgets(rows)
    gap = _best(rows, epsilons[0], "ZO+PUB") - _best(rows, epsilons[0], "FO+PUB") if epsilons else math.nan
    return Shape(
        "4. at the least epsilon the best PAZO is at or above the best first-order method with public data",
        None if math.isnan(gap) else gap >= 0,
        f"{gap:+.1f} points at epsilon {epsilons[0]:g}" if epsilons else "",
    )


def _queries(rows: Sequence[Row]) -> Shape:
    gains: dict[str, float] = {}
    for name in ("DPZero", "PAZO-M", "PAZO-P"):
        means = []
        for count in (1, 5):
            found = accuracies(
                rows,
                lambda row, n=name, c=count: (
                    (row.stage, row.method) == (QUERIES, n) and json.loads(row.options)["queries"] == c
                ),
            )
            means.append(sum(found) / len(found) if found else math.nan)
        if not math.isnan(means[1] - means[0]):
            gains[name] = means[1] - means[0]
    holds = gains.get("DPZero", 0) >= 1 and all(gain <= 0.8 for name, gain in gains.items() if name != "DPZero")
    return Shape(
        "5. five queries gain DPZero 1 to 7 points and PAZO at most 0.8",
        _verdict([*gains], holds),
        ", ".join(f"{name} {gain:+.1f}" for name, gain in gains.items()),
    )


def _shift(rows: Sequence[Row]) -> Shape:
    found = [row for row in rows if row.stage == SHIFT]
    names = list(dict.fromkeys(row.setting for row in found))
    falls: dict[str, list[float]] = {}
    for method in dict.fromkeys(row.method for row in found):
        values = [
            accuracies(found, lambda row, n=name, m=method: (row.setting, row.method) == (n, m)) for name in names
        ]
        falls[method] = [sum(each) / len(each) if each else math.nan for each in values]
    monotone = all(one >= other for values in falls.values() for one, other in pairwise(values))
    return Shape(
        "6. accuracy falls as the public data grows unlike the private",
        _verdict([*falls], monotone),
        "; ".join(f"{name} " + " → ".join(f"{value:.1f}" for value in values) for name, values in falls.items()),
    )


def _cost(rows: Sequence[Row]) -> Shape:
    times = {name: milliseconds(rows, name) for name in ("PAZO-M", "PAZO-S", "PAZO-P", "DP-SGD")}
    known = not any(math.isnan(value) for value in times.values())
    values = list(times.values())
    return Shape(
        "7. a step of PAZO-M costs less than one of PAZO-S, of PAZO-P and of DP-SGD, in this order",
        all(one < other for one, other in pairwise(values)) if known else None,
        ", ".join(f"{name} {value:.1f} ms" for name, value in times.items() if not math.isnan(value)),
    )


def _control(rows: Sequence[Row]) -> Shape:
    gains: dict[str, list[float]] = {}
    for name in PAZO:
        for epsilon in budgets(rows):
            gap = mean(rows, name, epsilon) - mean(rows, f"{name} (noise only)", epsilon)
            if not math.isnan(gap):
                gains.setdefault(name, []).append(gap)
    least = {name: min(values) for name, values in gains.items()}
    return Shape(
        "8. (our control) the private answers help: PAZO is above itself with its private answers silenced",
        _verdict([*gains], all(gap > 0 for gap in least.values())),
        "; ".join(f"{name} {min(values):+.1f} … {max(values):+.1f}" for name, values in gains.items()),
    )
