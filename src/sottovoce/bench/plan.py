"""Which cells make up the tables of a setting: the search for settings, then the report, then side experiments."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sottovoce.bench.cells import (
    QUERIES,
    REPORT,
    SELECT,
    SENSITIVITY,
    SHIFT,
    SHIFTS,
    Cell,
    Row,
    options_of,
    with_options,
)
from sottovoce.bench.contestants import CONTESTANTS, Contestant, find
from sottovoce.bench.starts import load
from sottovoce.privacy.errors import ConfigurationError

EPSILONS = (0.1, 0.5, 1.0, 2.0, 3.0)
SELECTION_EPSILON = 1.0
INTRODUCED: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "PAZO-M": {"mix": (0.25, 0.5, 0.75), "public_batch": (8, 32, 128)},
    "PAZO-P": {"subspace": (2, 6, 12), "public_batch": (8, 16, 64)},
    "PAZO-S": {"candidates": (2, 3, 6), "explore": (0.0, 1e-3, 1e-2), "public_batch": (8, 32, 128)},
}
"""The hyper-parameters that PAZO introduces, each varied by itself; explore = 0 is no noisy candidate."""
RATES = (0.5, 1.0, 2.0)
"""Factors of the chosen learning rate among which every such variation is tuned again."""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is run.

    Attributes:
        setting: the setting's name, with options.
        methods: contestants, by name.
        epsilons: budgets of the report.
        seeds: seeds of the report.
        points: at most so many points of each grid, spread evenly.
        steps: the number of steps; the setting's own by default.
        batch_size: the expected batch; the setting's own by default.
        warm_start: steps of SGD on public records before every run; the paper's code has such a start.
        device: where models are.
        side: whether the side experiments are run, too: queries, shift and sensitivity.
    """

    setting: str
    methods: tuple[str, ...] = tuple(CONTESTANTS)
    epsilons: tuple[float, ...] = EPSILONS
    seeds: tuple[int, ...] = (0, 1, 2)
    points: int = 6
    steps: int | None = None
    batch_size: int | None = None
    warm_start: int = 200
    device: str = "cpu"
    side: bool = True

    def cell(self, method: str, epsilon: float, seed: int, *, stage: str, options: str) -> Cell:
        """One run of this extent."""
        known = load(self.setting)
        return Cell(
            setting=self.setting,
            method=method,
            epsilon=epsilon if find(method).private else math.inf,
            seed=seed,
            stage=stage,
            options=options,
            steps=known.steps if self.steps is None else self.steps,
            batch_size=known.batch_size if self.batch_size is None else self.batch_size,
            warm_start=self.warm_start,
            device=self.device,
        )


def selection(extent: Extent) -> list[Cell]:
    """One seed of every point of every grid at epsilon 1. A control has no search of its own."""
    own = [find(name) for name in extent.methods]
    owners = dict.fromkeys(each.settings_of or each.name for each in own)
    return [
        extent.cell(name, SELECTION_EPSILON, 0, stage=SELECT, options=options_of(point))
        for name in owners
        for point in thinned(grid(extent, find(name)), extent.points)
    ]


def thinned(points: Sequence[dict[str, object]], most: int) -> list[dict[str, object]]:
    """At most so many, spread evenly over the grid."""
    count = min(most, len(points))
    return [points[(2 * number + 1) * len(points) // (2 * count)] for number in range(count)]


def grid(extent: Extent, contestant: Contestant) -> Sequence[dict[str, object]]:
    """The points that a setting names for a method's class."""
    grids = load(extent.setting).grids
    if contestant.make.__name__ not in grids:
        raise ConfigurationError(f"{extent.setting} has no grid for {contestant.name}; known are {', '.join(grids)}.")
    return [dict(point) for point in grids[contestant.make.__name__]]


def chosen(rows: Iterable[Row]) -> dict[str, str]:
    """The settings with the best validation accuracy of each method; the first of equals."""
    best: dict[str, Row] = {}
    for row in rows:
        if row.stage != SELECT or math.isnan(row.validation_accuracy):
            continue
        if row.method not in best or row.validation_accuracy > best[row.method].validation_accuracy:
            best[row.method] = row
    return {method: row.options for method, row in best.items()}


def after_selection(extent: Extent, settings: dict[str, str]) -> list[Cell]:
    """Everything that is run with the chosen settings."""
    side = [*queries(extent, settings), *shifts(extent, settings), *sensitivity(extent, settings)]
    side = side if extent.side else []
    return [*report(extent, settings), *side]


def report(extent: Extent, settings: dict[str, str]) -> list[Cell]:
    """Every contestant that has settings, at every budget, with every seed."""
    cells: list[Cell] = []
    for name in extent.methods:
        options = settings.get(find(name).settings_of or name)
        if options is None:
            continue  # every point of its grid failed: the tables say so
        epsilons = extent.epsilons if find(name).private else (math.inf,)
        cells += [
            extent.cell(name, epsilon, seed, stage=REPORT, options=options)
            for epsilon in epsilons
            for seed in extent.seeds
        ]
    return cells


def queries(extent: Extent, settings: dict[str, str], counts: tuple[int, ...] = (1, 5)) -> list[Cell]:
    """DPZero and the PAZO methods that ask along directions, with one query and with five, at the largest budget.

    The paper's gains are those at its largest epsilon. The clip of the whole vector of slopes grows with the root of
    its length.
    """
    cells: list[Cell] = []
    for name in ("DPZero", "PAZO-M", "PAZO-P"):
        if name not in extent.methods or name not in settings:
            continue
        base = json.loads(settings[name])
        unit = base.get("clip", 1.0) / math.sqrt(base.get("queries", 1))
        for count in counts:
            options = options_of({**base, "queries": count, "clip": unit * math.sqrt(count)})
            cells += [
                extent.cell(name, max(extent.epsilons), seed, stage=QUERIES, options=options) for seed in extent.seeds
            ]
    return cells


def shifts(extent: Extent, settings: dict[str, str]) -> list[Cell]:
    """The PAZO methods at epsilon 1 with public data that is more and more unlike the private data."""
    cells: list[Cell] = []
    for name in ("PAZO-M", "PAZO-P", "PAZO-S"):
        if name in extent.methods and name in settings:
            for setting in shifted(extent.setting):
                moved = dataclasses.replace(extent, setting=setting)
                cells += [
                    moved.cell(name, SELECTION_EPSILON, seed, stage=SHIFT, options=settings[name])
                    for seed in extent.seeds
                ]
    return cells


def sensitivity(extent: Extent, settings: dict[str, str]) -> list[Cell]:
    """One seed at epsilon 1 of every variation of what PAZO introduces, at several learning rates."""
    cells: list[Cell] = []
    for name, varied in INTRODUCED.items():
        if name not in extent.methods or name not in settings:
            continue
        base = json.loads(settings[name])
        points = [{**base, key: value} for key, values in varied.items() for value in values]
        cells += [
            extent.cell(name, SELECTION_EPSILON, 0, stage=SENSITIVITY, options=options_of(point))
            for each in points
            for point in ({**each, "lr": factor * each["lr"]} for factor in RATES)
        ]
    return list(dict.fromkeys(cells))


def shifted(setting: str) -> list[str]:
    """The setting with its public data at each distance from the private data; none if it has no such option."""
    for option, levels in SHIFTS.items():
        names = [with_options(setting, f"{option}={level}", without=[option]) for level in levels]
        try:
            load(names[0])
        except ConfigurationError:  # this setting's public data cannot be moved in this way
            continue
        return names
    return []


def standing(extent: Extent, rows: Iterable[Row]) -> list[Row]:
    """Of the rows of a file, those that belong in one set of tables of this setting.

    Raises:
        ConfigurationError: there are none, or some of several lengths, batches or warm starts.
    """
    rows = list(rows)
    names = {extent.setting, *shifted(extent.setting)}
    own = [row for row in rows if row.setting in names]
    if not own:
        found = ", ".join(sorted({row.setting for row in rows})) or "no run yet"
        raise ConfigurationError(f"no run of {extent.setting} stands there, but {found}: leave --tables-only out.")
    kinds = sorted({(row.steps, row.batch_size, row.warm_start) for row in own})
    if len(kinds) > 1:
        told = "; ".join(f"--steps {steps} --batch-size {size} --warm-start {start}" for steps, size, start in kinds)
        wanted = next((kind for kind in kinds if kind == (extent.steps, extent.batch_size, extent.warm_start)), None)
        if wanted is None:
            raise ConfigurationError(f"runs of several kinds stand there: say which by {told}.")
        own = [row for row in own if (row.steps, row.batch_size, row.warm_start) == wanted]
    best = chosen(own)
    used = {name: best.get(find(name).settings_of or name) for name in {row.method for row in own}}
    return [row for row in own if row.stage != REPORT or used[row.method] in (None, row.options)]
