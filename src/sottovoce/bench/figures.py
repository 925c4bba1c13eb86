"""The paper's figures 2 to 6 from the rows of a run."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sottovoce.bench.cells import REPORT, SENSITIVITY, Row
from sottovoce.bench.contestants import CONTESTANTS, Family
from sottovoce.bench.plan import INTRODUCED, SELECTION_EPSILON
from sottovoce.bench.tables import best, budgets, mean, milliseconds

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
    figure, axes = _axes("epsilon", "test accuracy, %", width=8.8)
    for number, (name, each) in enumerate(CONTESTANTS.items()):
        if each.family == "reference" or (each.family == "control" and each.private is False):
            level = mean(rows, name, math.inf)
            if not math.isnan(level):
                colour, style = _STYLES[each.family]
                axes.axhline(level, color=colour, linestyle=style, linewidth=1)
                axes.annotate(name, (epsilons[0], level), xytext=(0, 2), textcoords="offset points", fontsize=7)
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
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
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
        levels = [best(rows, epsilon, family) for epsilon in epsilons]
        if not all(math.isnan(value) for value in levels):
            axes.plot(epsilons, levels, marker="o", color=colour, label=family)
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
    """Figure 6: every hyper-parameter that PAZO introduces, varied by itself; each point the best of three rates."""
    found: dict[tuple[str, str], dict[float, float]] = {}
    for row in rows:
        if row.stage != SENSITIVITY or math.isnan(row.validation_accuracy):
            continue
        options = json.loads(row.options)
        for name in INTRODUCED[row.method]:
            if name in options and _others_chosen(rows, row.method, name, options):
                values = found.setdefault((row.method, name), {})
                values[options[name]] = max(values.get(options[name], 0.0), 100 * row.validation_accuracy)
    if not found:
        return None
    figure, axes = _axes("the values of each, from the least on", "validation accuracy at ε = 1, %", width=8.8)
    place = 0
    ticks: list[tuple[float, str]] = []
    for number, ((method, name), values) in enumerate(found.items()):
        places = range(place, place + len(values))
        ordered = sorted(values)
        axes.plot(
            places, [values[each] for each in ordered], marker=_MARKS[number % len(_MARKS)], markersize=4,
            color=_COLOURS["ZO+PUB"],
        )  # fmt: skip
        axes.annotate(
            f"{method}\n{name}", (place, max(values.values())), xytext=(0, 5), textcoords="offset points", fontsize=6
        )
        ticks += [(at, f"{each:g}") for at, each in zip(places, ordered, strict=True)]
        place += len(values) + 1
    axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks], fontsize=6)
    axes.margins(y=0.2)
    axes.set_title("What PAZO introduces, varied by itself", loc="left", fontsize=10)
    return figure


def _others_chosen(rows: Sequence[Row], method: str, name: str, options: Mapping[str, Any]) -> bool:
    """Whether nothing but this one, and the learning rate, is other than chosen."""
    used = next((json.loads(row.options) for row in rows if (row.stage, row.method) == (REPORT, method)), None)
    return used is not None and all(
        used.get(key, value) == value for key, value in options.items() if key not in (name, "lr")
    )


def _axes(x: str, y: str, width: float = 6.4) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")
    return figure, axes
