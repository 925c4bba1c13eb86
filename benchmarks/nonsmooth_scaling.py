"""How stationary O2NC's points become with more records, for each oracle, beside the theory's exponent and bound.

    python benchmarks/nonsmooth_scaling.py --out results/nonsmooth-scaling/2026-11-20

Two families whose subdifferentials are known: distances, f = ||x - a| - 1|, nonconvex and nonsmooth on spheres, from a
start at distance 6 where the slope is 1; and truncated l1 residuals, f = min(|<a, x> - b|, 3) with |a| = 1, in ten
dimensions. Records are drawn anew for every run; epsilon 1, delta 1e-6, zero-out; radius 1; one basis (m = d).
Stationarity is the shortest convex combination of gradients, over 5,000 other records, within the
certified radius of the point: an upper bound on the population's Goldstein gradient.
"""

from __future__ import annotations

import argparse
import csv
import math
import platform
import statistics
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch

import sottovoce as sv

mpl.use("Agg")
from matplotlib import pyplot as plt

BUDGET = sv.Budget(epsilon=1.0, delta=1e-6)
RADIUS, GAP, HELD_OUT, MOST_STEPS = 1.0, 6.0, 5_000, 50
SIZES = (300, 1_000, 3_000, 10_000, 30_000)
DIMENSIONS = (10, 50, 200)
ORACLES = {"single-pass": -1 / 3, "tree": -1 / 3, "first-order": -1 / 3, "multi-pass": -2 / 3}
"""The exponents of n at fixed d and epsilon, where noise rules: beta ~ n^exponent."""
COLUMNS = ("family", "oracle", "dimension", "records", "seed", "stationarity", "bound", "evaluations")


class Run(NamedTuple):
    """One run."""

    family: str
    oracle: str
    dimension: int
    records: int
    seed: int


def line(text: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def drawn(family: str, count: int, dimension: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of a family."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(count, dimension))
    if family == "distances":
        return 6 / math.sqrt(dimension) + 0.5 / math.sqrt(dimension) * a, np.zeros(count)
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    return a, 3.0 * a.sum(axis=1) + 0.3 * rng.normal(size=count)


def values(family: str, points: np.ndarray, records: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """f, row by row."""
    a, b = records
    if family == "distances":
        away = points - a
        return np.abs(np.sqrt(np.einsum("nd,nd->n", away, away)) - 1)
    return np.minimum(np.abs(np.einsum("nd,nd->n", a, points) - b), 3.0)


def gradients(family: str, points: np.ndarray, records: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Where there is one, row by row."""
    a, b = records
    if family == "distances":
        away = points - a
        length = np.linalg.norm(away, axis=1, keepdims=True)
        return np.sign(length - 1) * away / np.maximum(length, 1e-12)
    away = np.einsum("nd,nd->n", a, np.broadcast_to(points, a.shape)) - b
    return (np.sign(away) * (np.abs(away) < 3.0))[:, None] * a


class Values:
    """f of a family, for other processes too."""

    def __init__(self, family: str, of: Any = values) -> None:
        self.family, self.of = family, of

    def __call__(self, points: np.ndarray, records: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Row by row."""
        return self.of(self.family, points, records)


def measure(run: Run) -> tuple[Any, ...]:
    """Minimise, and measure on other records."""
    torch.set_num_threads(1)
    first_order = run.oracle == "first-order"
    given = drawn(run.family, run.records, run.dimension, 1_000 + run.seed)
    result = sv.minimize(
        None if first_order else Values(run.family), np.zeros(run.dimension), given, budget=BUDGET, radius=RADIUS,
        lipschitz=1.0, gap=GAP, method=run.oracle, vectorized=True, seed=run.seed, most_steps=MOST_STEPS,
        jac=Values(run.family, gradients) if first_order else None,
    )  # fmt: skip
    others = drawn(run.family, HELD_OUT, run.dimension, 9_000 + run.seed)
    found = sv.stationarity.least_norm(
        lambda x: gradients(run.family, x, others).mean(axis=0), result.x, result.certificate.radius, rounds=10
    )
    return (*run, round(found.norm, 5), round(result.certificate.bound, 5), result.nfev)


def planned(oracles: Iterable[str], seeds: int) -> list[Run]:
    """All runs; the multi-pass oracle, which evaluates all records at every step, in ten dimensions alone."""
    return [
        Run(family, oracle, dimension, records, seed)
        for family in ("distances", "residuals")
        for oracle in oracles
        for dimension in DIMENSIONS
        if oracle != "multi-pass" or dimension == DIMENSIONS[0]
        if family == "distances" or dimension == DIMENSIONS[0]
        for records in SIZES
        for seed in range(seeds)
    ]


def main() -> None:
    """Run what is missing, append, and write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    table = arguments.out / "runs.csv"
    rows = read(table)
    have = {tuple(row[:5]) for row in rows}
    missing = [run for run in planned(ORACLES, arguments.seeds) if tuple(map(str, run)) not in have]
    missing.sort(key=lambda run: run.records * run.dimension)
    with (
        ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool,
        table.open("a", newline="") as file,
    ):
        writer = csv.writer(file)
        if not rows:
            writer.writerow(COLUMNS)
        for row in pool.map(measure, missing):
            writer.writerow(row)
            file.flush()
            line("  ".join(map(str, row)))
    rows = read(table)
    machine = f"{platform.system()} {platform.machine()}, torch {torch.__version__}"
    command = f"python benchmarks/nonsmooth_scaling.py --out {arguments.out} --seeds {arguments.seeds}"
    text = "\n".join([command, machine, "", *summary(rows)]) + "\n"
    (arguments.out / "summary.txt").write_text(text)
    draw(rows, arguments.out / "stationarity.png")
    line(text)


def read(path: Path) -> list[list[str]]:
    """The rows so far."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


def groups(rows: list[list[str]]) -> dict[tuple[str, str, int], dict[int, list[tuple[float, float]]]]:
    """Stationarity and bound by family, oracle, dimension and number of records."""
    found: dict[tuple[str, str, int], dict[int, list[tuple[float, float]]]] = {}
    for family, oracle, dimension, records, _, stationarity, bound, _ in rows:
        group = found.setdefault((family, oracle, int(dimension)), {})
        group.setdefault(int(records), []).append((float(stationarity), float(bound)))
    return found


def slope(means: dict[int, float]) -> tuple[float, float]:
    """Of a line through the logarithms, with its standard error."""
    x, y = np.log(list(means)), np.log(np.maximum(list(means.values()), 1e-6))
    fit = np.polyfit(x, y, 1)
    error = math.sqrt(np.sum((y - np.polyval(fit, x)) ** 2) / (len(x) - 2) / np.sum((x - x.mean()) ** 2))
    return float(fit[0]), error


def summary(rows: list[list[str]]) -> list[str]:
    """A line for each group, and whether a bound was ever exceeded."""
    lines = [f"{'':38}" + "".join(f"n = {records:<9,}" for records in SIZES) + "slope (theory)"]
    above = checked = 0
    for (family, oracle, dimension), group in groups(rows).items():
        means = {records: statistics.mean(value for value, _ in group[records]) for records in sorted(group)}
        told = "".join(f"{value:<13.3f}" for value in means.values())
        fitted, error = slope(means)
        lines.append(
            f"{family:10} {oracle:12} d = {dimension:<8}"
            + told
            + f"{fitted:+.2f} +- {error:.2f} ({ORACLES[oracle]:+.2f})"
        )
        for pairs in group.values():
            for value, bound in pairs:
                if bound < 1.0:
                    checked, above = checked + 1, above + (value > bound)
    total = sum(int(row[7]) for row in rows)
    lines += ["", f"runs whose bound is not vacuous: {checked}; stationarity above it: {above}"]
    return [*lines, f"{len(rows)} runs, {total:.3g} evaluations in all"]


def draw(rows: list[list[str]], path: Path) -> None:
    """Stationarity against records, a panel for each oracle."""
    found = groups(rows)
    figure, panels = plt.subplots(1, len(ORACLES), figsize=(3.6 * len(ORACLES), 3.4), sharey=True)
    for axes, (oracle, exponent) in zip(panels, ORACLES.items(), strict=True):
        for (family, which, dimension), group in found.items():
            if which != oracle:
                continue
            sizes = sorted(group)
            means = [statistics.mean(value for value, _ in group[size]) for size in sizes]
            style = "-" if family == "distances" else "--"
            axes.loglog(sizes, means, style, marker="o", markersize=3, label=f"{family}, d = {dimension}")
            bounds = [group[size][0][1] for size in sizes]
            if family == "distances" and dimension == DIMENSIONS[0]:
                axes.loglog(sizes, bounds, color="grey", label=f"bound, d = {dimension}")
        guide = np.asarray(SIZES, dtype=float)
        axes.loglog(guide, 0.6 * (guide / guide[0]) ** exponent, ":", color="black", label=f"n^{exponent:.2f}")
        axes.set(title=oracle, xlabel="records")
        axes.legend(fontsize=6)
    panels[0].set_ylabel("Goldstein stationarity")
    figure.savefig(path, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
