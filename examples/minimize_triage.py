"""Tune a rule that nobody can differentiate: who is called back by a clinic, under differential privacy.

    python examples/minimize_triage.py [--out FOLDER]

A patient is called back where a weighted sum of four findings is above a threshold: five numbers to tune. A record says
whether calling back would have been right; a missed case costs 4, a needless call 1. The cost is a step function of the
weights: no gradient exists anywhere. The records are simulated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

import sottovoce as sv

mpl.use("Agg")
from matplotlib import pyplot as plt

MISSED, NEEDLESS = 4.0, 1.0
START = np.array([0.5, 0.5, 0.5, 0.5, 0.0])


def patients(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Findings and whether a call is right."""
    rng = np.random.default_rng(seed)
    findings = rng.normal(size=(count, 4))
    risk = findings @ np.array([1.5, -1.0, 0.5, 0.0]) + 0.5 * rng.normal(size=count)
    return findings, (risk > 0.8).astype(float)


def cost(rules: np.ndarray, records: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """What each rule costs for each patient: ``[N]`` for rules ``[N, 5]`` and N patients."""
    findings, right = records
    called = (rules[..., :4] * findings).sum(axis=-1) > rules[..., 4]
    return np.where(called, NEEDLESS * (1 - right), MISSED * right)


def private(count: int = 40_000, epsilon: float = 1.0, callback: object = None) -> sv.MinimizeResult:
    """The rule found from so many patients. A step has no Lipschitz constant: slopes are cut off at 8 instead."""
    return sv.minimize(
        cost, START, patients(count, 0), budget=sv.Budget(epsilon=epsilon, delta=1e-6), radius=0.2, clip=8.0, gap=1.0,
        vectorized=True, choose="last", callback=callback,
    )  # fmt: skip


def mean_cost(rule: np.ndarray, seed: int = 1) -> float:
    """On 100,000 other patients."""
    return float(cost(np.asarray(rule), patients(100_000, seed)).mean())


def main() -> None:
    """Tune, print, and draw what each window's rule costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/examples"))
    folder = parser.parse_args().out
    result = private()
    print(
        f"a call for everybody costs {mean_cost(np.array([0, 0, 0, 0, -1])):.3f}, the first rule {mean_cost(START):.3f}"
    )
    print(f"the private one {mean_cost(result.x):.3f}: weights {result.x[:4].round(2)}, threshold {result.x[4]:.2f}")
    print(result.message)
    print(result.statement)
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(6, 3.5))
    axes.plot([mean_cost(rule) for rule in result.candidates])
    axes.axhline(mean_cost(np.array([1.5, -1.0, 0.5, 0.0, 0.3])), color="grey", linestyle=":", label="a good rule")
    axes.set(xlabel="window", ylabel="cost of a patient", title="Private tuning of a triage rule, epsilon 1")
    axes.legend()
    figure.savefig(folder / "triage.png", dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
