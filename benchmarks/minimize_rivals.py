"""What privacy costs a black-box minimiser: Nelder-Mead and CMA-ES without privacy, minimize() at several budgets.

    python benchmarks/minimize_rivals.py --out results/minimize-rivals/2026-11-20

The three worked examples in examples/minimize_*.py. The rivals minimise the mean cost over the same records, exactly
and without any privacy, with 400 evaluations of that mean; CMA-ES is pycma (``pip install -e '.[dev]'``). Costs are
those of other records. Means and standard deviations over the seeds of noise and starts.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cma
import matplotlib as mpl
import numpy as np
from scipy.optimize import minimize as scipy_minimize

mpl.use("Agg")
from matplotlib import pyplot as plt

EXAMPLES = Path(__file__).parents[1] / "examples"
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
EVALUATIONS = 400
COLUMNS = ("example", "method", "epsilon", "seed", "cost", "seconds")
PARTS = {
    # example: records, cost of a record, the measure that is reported, count, scale of a first step
    "triage": ("patients", "cost", "mean_cost", 40_000, 0.5),
    "robust_regression": ("table", "absolute_error", "mean_error", 60_000, 0.5),
    "reminders": ("people", "loss", "mean_loss", 40_000, 0.2),
}


def line(text: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def load(name: str) -> Any:
    """A worked example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"minimize_{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rivals(name: str, module: Any, seed: int) -> dict[str, Callable[[], Any]]:
    """Minimisers of the exact mean."""
    make, cost, _, count, scale = PARTS[name]
    records = getattr(module, make)(count, 0)
    bounds = getattr(module, "BOUNDS", None)
    first = records if isinstance(records, np.ndarray) else records[0]

    def mean(x: Any) -> float:
        at = np.broadcast_to(np.asarray(x), (len(first), len(module.START)))
        return float(getattr(module, cost)(at, records).mean())

    start = module.START + 0.05 * np.random.default_rng(seed).normal(size=len(module.START)) * (seed > 0)
    if bounds is not None:
        start = np.clip(start, *np.asarray(bounds).T)

    def nelder_mead() -> Any:
        options = {"maxfev": EVALUATIONS, "initial_simplex": start + scale * np.eye(len(start) + 1, len(start), -1)}
        return scipy_minimize(mean, start, method="Nelder-Mead", bounds=bounds, options=options).x

    def evolution() -> Any:
        options = {"maxfevals": EVALUATIONS, "verbose": -9, "seed": seed + 1}
        if bounds is not None:
            options["bounds"] = np.asarray(bounds).T.tolist()
        return cma.fmin2(mean, start, scale, options)[0]

    return {"Nelder-Mead": nelder_mead, "CMA-ES": evolution}


def ours(module: Any, count: int, epsilon: float) -> Any:
    """What minimize() finds."""
    return module.private(count, epsilon).x


def main() -> None:
    """Run all, write the rows and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[Any, ...]] = []
    for name, (_, _, measure, count, _) in PARTS.items():
        module = load(name)
        cost = getattr(module, measure)
        rows.append((name, "start", 0.0, 0, cost(module.START), 0.0))
        for seed in range(arguments.seeds):
            runs: list[tuple[str, float, Callable[[], Any]]] = [
                (rival, float("inf"), run) for rival, run in rivals(name, module, seed).items()
            ]
            runs += [("minimize", e, partial(ours, module, count, e)) for e in EPSILONS]
            for method, epsilon, run in runs:
                started = time.perf_counter()
                found = cost(run())
                rows.append((name, method, epsilon, seed, round(found, 5), round(time.perf_counter() - started, 2)))
                line("  ".join(map(str, rows[-1])))
    with (arguments.out / "runs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    draw(rows, arguments.out / "cost-against-epsilon.png")
    machine = f"{platform.system()} {platform.machine()}, numpy {np.__version__}, pycma {cma.__version__}"
    command = f"python benchmarks/minimize_rivals.py --out {arguments.out} --seeds {arguments.seeds}"
    text = "\n".join([command, machine, "", *summary(rows)]) + "\n"
    (arguments.out / "summary.txt").write_text(text)
    line(text)


def groups(rows: list[tuple[Any, ...]]) -> dict[tuple[str, str, float], list[float]]:
    """Costs by example, method and budget."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for name, method, epsilon, _, cost, _ in rows:
        found.setdefault((name, method, epsilon), []).append(cost)
    return found


def summary(rows: list[tuple[Any, ...]]) -> list[str]:
    """Mean and standard deviation of each group."""
    return [
        f"{name:18} {method:12} epsilon {epsilon:<5g} {statistics.mean(costs):.4f}"
        + (f" +- {statistics.stdev(costs):.4f}" if len(costs) > 1 else "")
        for (name, method, epsilon), costs in groups(rows).items()
    ]


def draw(rows: list[tuple[Any, ...]], path: Path) -> None:
    """Cost against epsilon, the rivals as levels."""
    found = groups(rows)
    figure, panels = plt.subplots(1, len(PARTS), figsize=(4 * len(PARTS), 3.2))
    for axes, name in zip(panels, PARTS, strict=True):
        means = [statistics.mean(found[name, "minimize", epsilon]) for epsilon in EPSILONS]
        errors = [statistics.stdev(found[name, "minimize", epsilon]) for epsilon in EPSILONS]
        axes.errorbar(EPSILONS, means, errors, marker="o", label="minimize, private")
        levels = {"start": "lightgrey", "Nelder-Mead": "tab:orange", "CMA-ES": "tab:green"}
        for method, colour in levels.items():
            (costs,) = [each for (of, what, _), each in found.items() if (of, what) == (name, method)]
            axes.axhline(statistics.mean(costs), color=colour, linestyle="--", label=method)
        axes.set(xscale="log", xlabel="epsilon", title=name.replace("_", " "))
    panels[0].set_ylabel("cost on other records")
    panels[-1].legend(fontsize=7)
    figure.savefig(path, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
