"""Tune a simulator with outcomes of real people: when and how often an app should remind, under differential privacy.

    python examples/minimize_reminders.py [--out FOLDER]

A person's record says when they are free, how patient they are, and how much a reminder helps. What they lose under a
policy is found by simulating a week of theirs: they act on a reminder that comes at a good moment, and switch reminders
off for good when there are too many. Policy: the hour, how wide around it, and how many in a week. The outcome jumps
wherever somebody switches off. The records are simulated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

import sottovoce as sv

mpl.use("Agg")
from matplotlib import pyplot as plt

START = np.array([0.5, 0.8, 0.5])
BOUNDS = [(0.0, 1.0), (0.05, 1.0), (0.0, 1.0)]
DAYS = 7


def people(count: int, seed: int) -> np.ndarray:
    """The free hour (as a part of the day), patience, and benefit of each person."""
    rng = np.random.default_rng(seed)
    free = np.clip(0.75 + 0.1 * rng.normal(size=count), 0, 1)
    patience = rng.uniform(0.2, 0.9, count)
    benefit = rng.uniform(0.5, 1.0, count)
    return np.column_stack([free, patience, benefit])


def loss(policies: np.ndarray, records: np.ndarray) -> np.ndarray:
    """The part of the possible benefit that each person misses in a week: ``[N]``, in [0, 1]."""
    policies = np.broadcast_to(policies, (len(records), 3))
    hour, width, often = policies.T
    free, patience, benefit = records.T
    gained, annoyed, on = np.zeros(len(records)), np.zeros(len(records)), np.ones(len(records), dtype=bool)
    for day in range(DAYS):
        at = hour + width * (((day * 0.618) % 1) - 0.5)  # spread over the window, the same for everybody
        remind = on & (((day + 0.5) / DAYS) < often)
        good = np.abs(at - free) < 0.12
        gained += remind * good * benefit
        annoyed += remind * np.where(good, 0.05, 0.2)
        on &= annoyed <= patience
    return 1 - gained / (DAYS * benefit)


def private(count: int = 40_000, epsilon: float = 1.0, callback: object = None) -> sv.MinimizeResult:
    """The policy found from so many people."""
    return sv.minimize(
        loss, START, people(count, 0), budget=sv.Budget(epsilon=epsilon, delta=1e-6), radius=0.1, clip=2.0, gap=0.5,
        bounds=BOUNDS, vectorized=True, choose="last", example=np.array([0.5, 0.5, 0.5]), callback=callback,
    )  # fmt: skip


def mean_loss(policy: np.ndarray, seed: int = 1) -> float:
    """On 50,000 other people."""
    return float(loss(np.asarray(policy), people(50_000, seed)).mean())


def main() -> None:
    """Tune, print, and draw the path over what the policies cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/examples"))
    folder = parser.parse_args().out
    result = private()
    print(f"benefit missed: {mean_loss(START):.3f} at the start, {mean_loss(result.x):.3f} under the private policy")
    print(f"hour {24 * result.x[0]:.1f}, width {24 * result.x[1]:.1f} hours, on {100 * result.x[2]:.0f} % of days")
    print(result.message)
    print(result.statement)
    folder.mkdir(parents=True, exist_ok=True)
    hours, widths = np.linspace(0, 1, 60), np.linspace(0.05, 1, 60)
    seen = people(2_000, 1)
    cost = [[loss(np.array([hour, width, result.x[2]]), seen).mean() for hour in hours] for width in widths]
    figure, axes = plt.subplots(figsize=(6, 3.8))
    drawn = axes.contourf(24 * hours, 24 * widths, cost, levels=20)
    figure.colorbar(drawn, label="benefit missed")
    path = np.concatenate([START[None], result.candidates])
    axes.plot(24 * path[:, 0], 24 * path[:, 1], color="white", marker=".", markersize=3, linewidth=1)
    axes.set(xlabel="hour", ylabel="width in hours", title="Private tuning of reminders, epsilon 1")
    figure.savefig(folder / "reminders.png", dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
