"""Fit a small ReLU network by absolute error, under differential privacy: nonsmooth twice over, and nonconvex.

    python examples/minimize_robust_regression.py [--out FOLDER]

Absolute error shrugs at the gross errors that every real table has: here a tenth of the targets are typing mistakes. No
derivative is used; ``f`` is plain NumPy. The records are simulated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

import sottovoce as sv

mpl.use("Agg")
from matplotlib import pyplot as plt

UNITS = 5
START = np.concatenate([np.linspace(-1, 1, UNITS), np.full(UNITS, 0.2), np.full(UNITS, 0.3), [0.0]])


def table(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One input and one target for each record; a tenth of the targets is nonsense."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, count)
    y = np.abs(x) - 0.5 * (x > 0.5) * (x - 0.5) + 0.05 * rng.normal(size=count)
    wrong = rng.random(count) < 0.1
    return x, np.where(wrong, 20.0 * rng.random(count), y)


def predict(networks: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``[N]`` for networks ``[N, 3 UNITS + 1]`` or one network, and N inputs."""
    slopes, offsets, heights = (networks[..., part * UNITS : (part + 1) * UNITS] for part in range(3))
    return (heights * np.maximum(slopes * x[..., None] + offsets, 0)).sum(axis=-1) + networks[..., -1]


def absolute_error(networks: np.ndarray, records: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """One loss for each network and record."""
    x, y = records
    return np.abs(predict(networks, x) - y)


def private(count: int = 60_000, epsilon: float = 1.0, callback: object = None) -> sv.MinimizeResult:
    """The network found from so many records."""
    return sv.minimize(
        absolute_error, START, table(count, 0), budget=sv.Budget(epsilon=epsilon, delta=1e-6), radius=0.1, clip=1.0,
        gap=1.0, vectorized=True, choose="last", callback=callback,
    )  # fmt: skip


def mean_error(network: np.ndarray, seed: int = 1) -> float:
    """Median absolute error on other records: what the typing mistakes cannot touch."""
    x, y = table(50_000, seed)
    return float(np.median(absolute_error(np.asarray(network), (x, y))))


def main() -> None:
    """Fit, print, and draw the curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/examples"))
    folder = parser.parse_args().out
    result = private()
    print(f"median absolute error: {mean_error(START):.3f} at the start, {mean_error(result.x):.3f} after")
    print(result.message)
    print(result.statement)
    folder.mkdir(parents=True, exist_ok=True)
    x = np.linspace(-1, 1, 300)
    figure, axes = plt.subplots(figsize=(6, 3.5))
    axes.plot(x, np.abs(x) - 0.5 * (x > 0.5) * (x - 0.5), color="grey", linestyle=":", label="the truth")
    axes.plot(x, predict(START, x), label="start")
    axes.plot(x, predict(result.x, x), label="private fit")
    axes.set(xlabel="input", ylabel="target", title="Private robust regression, epsilon 1")
    axes.legend()
    figure.savefig(folder / "robust_regression.png", dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
