"""How near minimize() comes to the raw throughput of f, and what a step costs beside it.

    python benchmarks/nonsmooth_speed.py

Raw: f alone, on blocks of 9,600 points and records of the same shapes, one process, one thread. Ours: everything else
included: directions, points, clip, exact sums, noise, the walk. Medians of interleaved repetitions.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

import sottovoce as sv

DIMENSION, RECORDS, BATCH = 100, 960, 48
BLOCK = BATCH * 2 * DIMENSION
Function = Callable[[np.ndarray, np.ndarray], np.ndarray]


def line(text: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def residual(points: np.ndarray, records: np.ndarray) -> np.ndarray:
    """The cheapest that can be: one scalar product."""
    return np.abs(np.einsum("nd,nd->n", points, records))


def largest(points: np.ndarray, records: np.ndarray) -> np.ndarray:
    """The greatest distance in a coordinate."""
    return np.abs(points - records).max(axis=1)


def network(points: np.ndarray, records: np.ndarray) -> np.ndarray:
    """A ReLU network of 33 units on 16 inputs of a record."""
    slopes, offsets, heights = points[:, :33], points[:, 33:66], points[:, 66:99]
    units = np.maximum(slopes[:, None] * records[:, :16, None] + offsets[:, None], 0)
    return np.abs((heights[:, None] * units).sum(axis=2) + points[:, 99:] - records[:, 16:32]).mean(axis=1)


def queue(points: np.ndarray, records: np.ndarray) -> np.ndarray:
    """A simulator: a queue of 100 arrivals under a policy of 100 service rates."""
    rates, wait, total = np.abs(points) + 0.5, np.zeros(len(points)), np.zeros(len(points))
    gaps = np.exp(0.3 * records)
    for arrival in range(points.shape[1]):
        wait = np.maximum(wait + 1 / rates[:, arrival] - gaps[:, arrival], 0)
        total += wait
    return total / points.shape[1]


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    records = rng.normal(size=(RECORDS, DIMENSION)) / 10
    points = rng.normal(size=(BLOCK, DIMENSION)) / 10
    given = np.repeat(records[:BATCH], 2 * DIMENSION, axis=0)
    plan = sv.planning.Schedule(
        oracle="single-pass", windows=1, window_length=20, batch=BATCH, length=1.0, bound=9.0, records=RECORDS,
        clip=1.5, bases=1,
    )  # fmt: skip
    line(f"d = {DIMENSION}, 20 steps of {BATCH} records, {2 * DIMENSION} values each; torch {torch.__version__}")
    for f in (residual, largest, network, queue):
        raw, whole, steps = [], [], []
        for repetition in range(8):
            started = time.perf_counter()
            for _ in range(5):
                f(points, given)
            raw.append((time.perf_counter() - started) / (5 * BLOCK))
            stamps: list[float] = []

            def stamp(_: object, to: list[float] = stamps) -> None:
                to.append(time.perf_counter())

            sv.minimize(
                f, np.zeros(DIMENSION), records, budget=sv.Budget(epsilon=1.0, delta=1e-5), radius=0.1, lipschitz=1.0,
                plan=plan, vectorized=True, seed=repetition, callback=stamp,
            )  # fmt: skip
            each = (stamps[-1] - stamps[0]) / (len(stamps) - 1)
            steps.append(each)
            whole.append(each / (BLOCK))
        raw_each, our_each, step = statistics.median(raw), statistics.median(whole), statistics.median(steps)
        line(
            f"  {f.__name__:9} raw {1e6 * raw_each:6.2f} us a value, ours {1e6 * our_each:6.2f}: "
            f"{100 * raw_each / our_each:3.0f} % of raw; {1e3 * (step - BLOCK * raw_each):.1f} ms a step beside f"
        )


if __name__ == "__main__":
    main()
