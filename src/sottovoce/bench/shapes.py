"""Whether the paper's seven shapes hold in a run: each with the figures that decide it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from sottovoce.bench.cells import QUERIES, REPORT, SHIFT, Row
from sottovoce.bench.contestants import CONTESTANTS
from sottovoce.bench.tables import best, budgets, levels, mean, milliseconds, seeds_of

PAZO = ("PAZO-M", "PAZO-P", "PAZO-P normalised", "PAZO-S")

Verdict = Literal["holds", "DOES NOT HOLD", "not distinguishable", "not run"]


@dataclass(frozen=True)
class Shape:
    """One claim, what came of it, and the figures."""

    claim: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Difference:
    """A mean difference over seeds, in points, and its standard error; 0 where one seed alone was run."""

    mean: float
    error: float = 0.0

    def __str__(self) -> str:
        return f"{self.mean:+.1f}" + (f" (± {self.error:.1f})" if self.error else "")


def shapes(rows: Sequence[Row]) -> list[Shape]:
    """The seven shapes, and the control that the paper lacks.

    A claim that one method is above another is judged by the differences of runs from the same start: it holds if all
    of them lie two standard errors above zero, does not if one lies two below, and else is not distinguishable.
    """
    report = [row for row in rows if row.stage == REPORT]
    return [
        _flat(report), _above(report), _rising(report), _ahead_at_least_budget(report), _queries(rows), _shift(rows),
        _cost(report), _control(report),
    ]  # fmt: skip


def _judged(claim: str, differences: Mapping[str, Difference], absent: Sequence[str] = (), more: str = "") -> Shape:
    """A claim that all of some differences are positive."""
    evidence = ", ".join(f"{name} {each}" for name, each in differences.items())
    evidence = "; ".join(part for part in (evidence, more, _absence(absent)) if part)
    found = differences.values()
    if any(each.mean + 2 * each.error <= 0 for each in found):
        return Shape(claim, "DOES NOT HOLD", evidence)  # one is enough, whatever else was not run
    if absent or not found:
        return Shape(claim, "not run", evidence)
    return Shape(claim, "holds" if all(e.mean > 2 * e.error for e in found) else "not distinguishable", evidence)


def _absence(names: Sequence[str]) -> str:
    return f"missing: {', '.join(dict.fromkeys(names))}" if names else ""


def _differences(rows: Sequence[Row], one: str, other: str) -> list[Difference]:
    """At every budget where both were run, all with the standard error that is pooled over budgets."""
    apart: list[list[float]] = []
    for epsilon in budgets(rows):
        ours = seeds_of(rows, one, epsilon)
        theirs = seeds_of(rows, other, epsilon if CONTESTANTS[other].private else math.inf)
        gaps = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        if gaps and not any(map(math.isnan, gaps)):
            apart.append(gaps)
    return _pooled(apart)


def _pooled(apart: Sequence[Sequence[float]]) -> list[Difference]:
    freedom = sum(len(gaps) - 1 for gaps in apart)
    squares = sum((gap - statistics.mean(gaps)) ** 2 for gaps in apart for gap in gaps)
    deviation = math.sqrt(squares / freedom) if freedom else 0.0
    return [Difference(statistics.mean(gaps), deviation / math.sqrt(len(gaps))) for gaps in apart]


def _least(differences: Iterable[Difference]) -> Difference:
    return min(differences, key=lambda each: each.mean)


def _flat(rows: Sequence[Row]) -> Shape:
    values = {name: [mean(rows, name, epsilon) for epsilon in budgets(rows)] for name in PAZO}
    ranges = {name: max(v) - min(v) for name, v in values.items() if len(v) > 1 and not any(map(math.isnan, v))}
    absent = [name for name in PAZO if name not in ranges]
    wide = any(size > 1.6 for size in ranges.values())
    text = ", ".join(f"{name} {size:.1f}" for name, size in ranges.items())
    return Shape(
        "1. PAZO is flat in epsilon: most less least at most 1.6 points",
        "DOES NOT HOLD" if wide else "not run" if absent else "holds",
        "; ".join(part for part in (text, _absence(absent)) if part),
    )


def _above(rows: Sequence[Row]) -> Shape:
    found = {
        f"{name} over {other}": _differences(rows, name, other) for name in PAZO for other in ("DPZero", "public only")
    }
    return _judged(
        "2. every PAZO method is above DPZero, and above public data alone, at every epsilon",
        {name: _least(each) for name, each in found.items() if each},
        [name for name, each in found.items() if not each],
        "the least over epsilon of each",
    )


def _rising(rows: Sequence[Row]) -> Shape:
    epsilons = budgets(rows)
    members = [name for name, each in CONTESTANTS.items() if each.family in ("FO", "FO+PUB")]
    rises: dict[str, Difference] = {}
    for name in members:
        known = [epsilon for epsilon in epsilons if not math.isnan(mean(rows, name, epsilon))]
        if len(known) > 1:
            first, last = seeds_of(rows, name, known[0]), seeds_of(rows, name, known[-1])
            rises[name] = _pooled([[last[seed] - first[seed] for seed in sorted(first.keys() & last.keys())]])[0]
    ahead = {e: best(rows, e, "FO", "FO+PUB") - best(rows, e, "ZO+PUB") for e in epsilons}
    crossing = next((e for e, gap in ahead.items() if gap > 0), None)
    where = f"first-order first ahead at epsilon {crossing:g}" if crossing else "no crossover up to the largest epsilon"
    shape = _judged(
        "3. first-order methods rise with epsilon and overtake PAZO",
        rises, [name for name in members if name not in rises], where if rises else "",
    )  # fmt: skip
    if shape.verdict in ("holds", "not distinguishable") and (crossing is None or crossing == epsilons[0]):
        return Shape(shape.claim, "DOES NOT HOLD", shape.evidence)
    return shape


def _ahead_at_least_budget(rows: Sequence[Row]) -> Shape:
    claim = "4. at the least epsilon the best PAZO is at or above the best first-order method with public data"
    if not (epsilons := budgets(rows)):
        return Shape(claim, "not run", "")
    leaders: list[str] = []
    for family in ("ZO+PUB", "FO+PUB"):
        members = [name for name, each in CONTESTANTS.items() if each.family == family]
        leaders += [n for n in members if mean(rows, n, epsilons[0]) == best(rows, epsilons[0], family)][:1]
    found = _differences([row for row in rows if row.epsilon == epsilons[0]], *leaders) if len(leaders) == 2 else []
    if not found:
        return Shape(claim, "not run", "")
    text = f"{leaders[0]} over {leaders[1]} {found[0]} points at epsilon {epsilons[0]:g}"
    return Shape(claim, "holds" if found[0].mean + 2 * found[0].error >= 0 else "DOES NOT HOLD", text)


def _queries(rows: Sequence[Row]) -> Shape:
    gains: dict[str, Difference] = {}
    members = ("DPZero", "PAZO-M", "PAZO-P")
    for name in members:
        own = [row for row in rows if (row.stage, row.method) == (QUERIES, name)]
        few, many = ({r.seed: r for r in own if json.loads(r.options)["queries"] == count} for count in (1, 5))
        gaps = [100 * (many[s].test_accuracy - few[s].test_accuracy) for s in sorted(few.keys() & many.keys())]
        if gaps and not any(map(math.isnan, gaps)):
            gains[name] = _pooled([gaps])[0]
    absent = [name for name in members if name not in gains]
    margins = {name: Difference(*_margin(name, gain)) for name, gain in gains.items()}
    told = ", ".join(f"{name} {gain}" for name, gain in gains.items())
    shape = _judged("5. five queries gain DPZero at least 1 point and PAZO at most 0.8", margins, absent)
    return Shape(shape.claim, shape.verdict, "; ".join(part for part in (told, _absence(absent)) if part))


def _margin(name: str, gain: Difference) -> tuple[float, float]:
    """How far a gain is on the right side: above 1 for DPZero, below 0.8 for PAZO."""
    return (gain.mean - 1.0 if name == "DPZero" else 0.8 - gain.mean), gain.error


def _shift(rows: Sequence[Row]) -> Shape:
    found = [row for row in rows if row.stage == SHIFT]
    names = levels(found)
    members = [name for name in CONTESTANTS if any(row.method == name for row in found)]
    falls: dict[str, Difference] = {}
    told: list[str] = []
    for method in members:
        runs = [
            {r.seed: 100 * r.test_accuracy for r in found if (r.setting, r.method) == (name, method)} for name in names
        ]
        told.append(f"{method} " + " → ".join(f"{statistics.mean(each.values()):.1f}" for each in runs if each))
        apart = [
            [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())] for one, other in pairwise(runs)
        ]
        steps = _pooled([gaps for gaps in apart if gaps and not any(map(math.isnan, gaps))])
        if steps:
            falls[method] = _least(steps)
    shape = _judged("6. accuracy falls as the public data grows unlike the private", falls)
    return Shape(shape.claim, shape.verdict, "; ".join(told))


def _cost(rows: Sequence[Row]) -> Shape:
    times = {name: milliseconds(rows, name) for name in ("PAZO-M", "PAZO-S", "PAZO-P", "DP-SGD")}
    known = not any(math.isnan(value) for value in times.values())
    ordered = all(one < other for one, other in pairwise(times.values()))
    return Shape(
        "7. a step of PAZO-M costs less than one of PAZO-S, of PAZO-P and of DP-SGD, in this order",
        "not run" if not known else "holds" if ordered else "DOES NOT HOLD",
        ", ".join(f"{name} {value:.1f} ms" for name, value in times.items() if not math.isnan(value)),
    )


def _control(rows: Sequence[Row]) -> Shape:
    found = {name: _differences(rows, name, f"{name} (noise only)") for name in PAZO}
    spans = [f"{n} up to {max(e.mean for e in each):+.1f}" for n, each in found.items() if each]
    return _judged(
        "8. (our control) the private answers help: PAZO is above itself with its private answers silenced",
        {name: _least(each) for name, each in found.items() if each},
        [name for name, each in found.items() if not each],
        "the least over epsilon; " + ", ".join(spans) if spans else "",
    )
