"""The paper's figures 2 to 6 from the rows of a run."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sottovoce.bench.cells import REPORT, SELECT, Row
from sottovoce.bench.contestants import CONTESTANTS, Family
from sottovoce.bench.plan import SELECTION_EPSILON
from sottovoce.bench.tables import budgets, mean, milliseconds

_COLOURS: dict[Family, str] = {"FO": "#444444", "FO+PUB": "#1f6fb4", "ZO": "#9a9a9a", "ZO+PUB": "#c8402d"}
_STYLES = {"control": ("#d9a441", ":"), "reference": ("#3b8b4b", "--")}
_MARKS = "osD^vPX*"


def write_all(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write every figure that the rows allow; returns the files."""
    mpl.rcParams["svg.hashsalt"] = "sottovoce"  # the same rows give the same file
    drawn = {
        "figure2-accuracy.png": accuracy(rows),
        "figure3-orders.png": orders(rows),
        "figure4-convergence.png": convergence(rows),
        "figure5-utility-and-speed.png": utility_and_speed(rows),
        "figure6-sensitivity.png": sensitivity(rows),
    }
    written: list[Path] = []
    for name, figure in drawn.items():
        if figure is not None:
            figure.savefig(folder / name, dpi=130, metadata={"Software": ""})
            written.append(folder / name)
    return written


def accuracy(rows: Sequence[Row]) -> Figure | None:
    """Figure 2: accuracy against epsilon, every method and control."""
    epsilons = budgets(rows)
    if not epsilons:
        return None
    figure, axes = _axes("epsilon", "test accuracy, %")
    for number, (name, each) in enumerate(CONTESTANTS.items()):
        if each.family == "reference" or (each.family == "control" and each.private is False):
            level = mean(rows, name, math.inf)
            if not math.isnan(level):
                colour, style = _STYLES[each.family]
                axes.axhline(level, color=colour, linestyle=style, linewidth=1)
                axes.annotate(name, (epsilons[-1], level), xytext=(4, 2), textcoords="offset points", fontsize=7)
            continue
        values = [mean(rows, name, epsilon) for epsilon in epsilons]
        if all(math.isnan(value) for value in values):
            continue
        control = each.family == "control"
        axes.plot(
            epsilons, values, marker=_MARKS[number % len(_MARKS)], markersize=4, label=name,
            color=_STYLES["control"][0] if control else _COLOURS[each.family],  # pyright: ignore[reportArgumentType]
            linestyle=":" if control else "-", linewidth=1.2,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    if axes.get_legend_handles_labels()[0]:  # there may be references alone
        axes.legend(fontsize=7, ncols=2, frameon=False)
    axes.set_title("Accuracy against the budget", loc="left", fontsize=10)
    return figure


def orders(rows: Sequence[Row]) -> Figure | None:
    """Figure 3: the best method of each family."""
    epsilons = budgets(rows)
    if not epsilons:
        return None
    figure, axes = _axes("epsilon", "test accuracy of the best method, %")
    drawn = False
    for family, colour in _COLOURS.items():
        members = [name for name, each in CONTESTANTS.items() if each.family == family]
        best = [
            max((m for name in members if not math.isnan(m := mean(rows, name, epsilon))), default=math.nan)
            for epsilon in epsilons
        ]
        if not all(math.isnan(value) for value in best):
            axes.plot(epsilons, best, marker="o", color=colour, label=family)
            drawn = True
    if not drawn:
        return None
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False)
    axes.set_title("First and zeroth order, with and without public data", loc="left", fontsize=10)
    return figure


def convergence(rows: Sequence[Row]) -> Figure | None:
    """Figure 4: validation accuracy during the run, zeroth-order methods at epsilon 1."""
    figure, axes = _axes("part of the run, %", "validation accuracy, %")
    drawn = False
    for number, (name, each) in enumerate(CONTESTANTS.items()):
        if each.family not in ("ZO", "ZO+PUB"):
            continue
        curves = [
            json.loads(row.curve)
            for row in rows
            if (row.stage, row.method, row.epsilon) == (REPORT, name, SELECTION_EPSILON) and row.status == "ok"
        ]
        curves = [curve for curve in curves if curve]
        if curves:
            length = min(map(len, curves))
            middle = [100 * statistics.mean(curve[k] for curve in curves) for k in range(length)]
            xs = [100 * (k + 1) / length for k in range(length)]
            axes.plot(xs, middle, marker=_MARKS[number % len(_MARKS)], markersize=4, label=name)
            drawn = True
    if not drawn:
        return None
    axes.legend(fontsize=8, frameon=False)
    axes.set_title("Convergence at ε = 1", loc="left", fontsize=10)
    return figure


def utility_and_speed(rows: Sequence[Row]) -> Figure | None:
    """Figure 5: accuracy at epsilon 1 against the time of a step."""
    figure, axes = _axes("milliseconds a step", "test accuracy at ε = 1, %")
    drawn = False
    for name, each in CONTESTANTS.items():
        if each.family not in _COLOURS:
            continue
        time, level = milliseconds(rows, name), mean(rows, name, SELECTION_EPSILON)
        if not math.isnan(time) and not math.isnan(level):
            axes.scatter(time, level, color=_COLOURS[each.family], s=24)
            axes.annotate(name, (time, level), xytext=(5, 3), textcoords="offset points", fontsize=7)
            drawn = True
    axes.set_xscale("log")
    axes.set_title("Utility and speed", loc="left", fontsize=10)
    return figure if drawn else None


def sensitivity(rows: Sequence[Row]) -> Figure | None:
    """Figure 6: validation accuracy at every point of each PAZO method's grid."""
    methods = [name for name, each in CONTESTANTS.items() if each.family == "ZO+PUB"]
    points = {
        name: [100 * row.validation_accuracy for row in rows if (row.stage, row.method) == (SELECT, name)]
        for name in methods
    }
    points = {name: [value for value in found if not math.isnan(value)] for name, found in points.items()}
    points = {name: found for name, found in points.items() if found}
    if not points:
        return None
    figure, axes = _axes("", "validation accuracy at ε = 1, %")
    for place, found in enumerate(points.values()):
        axes.scatter([place] * len(found), found, color=_COLOURS["ZO+PUB"], alpha=0.7, s=22)
    axes.set_xticks(range(len(points)), list(points), fontsize=8)
    axes.set_title("Every point of the grids", loc="left", fontsize=10)
    return figure


def _axes(x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")
    return figure, axes
