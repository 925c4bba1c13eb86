"""How fast the exact noise is, how near epsilon is to the reference table, and how long a calibration takes.

    python benchmarks/privacy_figures.py

The suite holds the same figures to their limits (tests/privacy/test_noise.py, test_accounting.py); this prints them.
The table of reference values is tests/privacy/reference/epsilon.csv, made by dp-accounting alone.
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sottovoce.privacy import accounting
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.entropy import OperatingSystemEntropy
from sottovoce.privacy.events import Event
from sottovoce.privacy.noise import rounded_normals

TABLE = Path(__file__).parents[1] / "tests" / "privacy" / "reference" / "epsilon.csv"
DEFAULT_SCALE = 1.1 * 2**24  # standard deviations in grid cells, about that of a release
RATES, STEPS = (1e-3, 0.01, 0.1, 1.0), (1, 100, 10_000, 100_000)


def line(text: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def median_seconds(call: Callable[[], object], repetitions: int) -> float:
    """Median of the processor time of all threads together, so that a second core cannot help."""
    seconds: list[float] = []
    for _ in range(repetitions):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def noise_speed() -> None:
    """Normals a second in bulk, and microseconds of a lone scalar."""
    system = OperatingSystemEntropy()
    count, calls = 2**20, 100
    bulk = median_seconds(lambda: rounded_normals(count, DEFAULT_SCALE, system), 50)

    def scalars() -> None:
        for _ in range(calls):
            rounded_normals(1, DEFAULT_SCALE, system)

    line(f"exact normals, one thread: {count / bulk / 1e6:.1f} million a second of processor time (wanted: 30)")
    line(f"a lone scalar: {1e6 * median_seconds(scalars, 50) / calls:.1f} microseconds (wanted: below 50)")


def poisson(rate: float, noise_multiplier: float, steps: int) -> list[Event]:
    """One run's event, for every rate: a rate of one is the full batch."""
    if rate == 1.0:
        return [Event(sampling="full-batch", noise_multiplier=noise_multiplier, steps=steps)]
    return [Event(sampling="poisson", rate=rate, noise_multiplier=noise_multiplier, steps=steps)]


def reference_table() -> None:
    """The range of the relative difference between epsilon and its reference."""
    differences: list[float] = []
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            rate, multiplier, delta, expected = (
                float(row[name]) for name in ("rate", "noise_multiplier", "delta", "epsilon")
            )
            event = Event(sampling="poisson", rate=rate, noise_multiplier=multiplier, steps=int(row["steps"]))
            differences.append(accounting.epsilon([event], delta) / expected - 1)
    low, high = min(differences), max(differences)
    line(
        f"epsilon less its reference, {len(differences)} rows: {low:+.1e} to {100 * high:+.3f} % (wanted: -1e-6, 0.5 %)"
    )


def calibration() -> None:
    """The longest calibration to epsilon 1 at delta 1e-6."""
    seconds: dict[tuple[float, int], float] = {}
    for rate in RATES:
        for steps in STEPS:
            start = time.perf_counter()
            accounting.calibrate(lambda z, r=rate, n=steps: poisson(r, z, n), Budget(epsilon=1.0, delta=1e-6))
            seconds[rate, steps] = time.perf_counter() - start
    (rate, steps), longest = max(seconds.items(), key=lambda item: item[1])
    line(f"calibration, {len(seconds)} cases: at most {longest:.2f} s, at rate {rate:g}, {steps} steps (wanted: 2 s)")


def main() -> None:
    """Print the figures."""
    torch.set_num_threads(1)
    noise_speed()
    reference_table()
    calibration()


if __name__ == "__main__":
    main()
