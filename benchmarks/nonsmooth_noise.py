"""Two ratios of noise: square-root Toeplitz against the binary tree, orthonormal against independent directions.

    python benchmarks/nonsmooth_noise.py --out results/nonsmooth-noise/2026-11-20

Running sums: the standard deviation of the released prefixes of zeros at mu = 1 and leaves of sensitivity 1, at the
worst prefix and over all. Directions: the single-pass oracle calibrated to the worst case, sqrt(d) L for whole
orthonormal bases and d L for as many independent directions (Z24, I24), at equal privacy and equal evaluations: the
noise of its estimates for a function without slope, and the stationarity that both reach on truncated l1 residuals.
"""

from __future__ import annotations

import argparse
import csv
import math
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sottovoce as sv
from sottovoce.inputs import as_records
from sottovoce.methods.o2nc import O2NC
from sottovoce.methods.oracles import FreshSinglePass
from sottovoce.objective.bases import haar_bases
from sottovoce.objective.directions import Key
from sottovoce.privacy.curator import Curator
from sottovoce.privacy.entropy import OperatingSystemEntropy
from sottovoce.privacy.tree import Factorisation, prefix_sums, sensitivity

UNIT = 2.0**20
WIDTHS = {4: 40_000, 6: 20_000, 8: 10_000, 10: 8_000, 12: 1_500, 14: 250}
TABLE = {  # ALGORITHMS.md, section 2: worst and root mean square of the tree, and of the Toeplitz factorisation
    4: (4.47, 3.21, 1.94, 1.80), 6: (6.48, 4.59, 2.39, 2.23), 8: (8.49, 6.00, 2.83, 2.67),
    10: (10.49, 7.42, 3.27, 3.11), 12: (12.49, 8.83, 3.71, 3.55), 14: (14.49, 10.25, 4.16, 3.99),
}  # fmt: skip
RECORDS = {10: 20_000, 100: 8_000, 1000: 480}
BUDGET, RADIUS, BATCH, LENGTH = sv.Budget(epsilon=1.0, delta=1e-6), 1.0, 16, 10


def line(text: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def prefix_noise(noise: Factorisation, length: int, width: int) -> tuple[float, float]:
    """Of the worst prefix, and over all of them."""
    scale = UNIT * sensitivity(noise, [1.0] * length)
    sums = prefix_sums(noise, length=length, width=width, scale=scale, entropy=OperatingSystemEntropy())
    zeros = np.zeros(width, dtype=np.int64)
    squares = [float(np.mean((sums.add(zeros) / UNIT) ** 2)) for _ in range(length)]
    # The tree's worst prefix has all bits set; the other's is the last: known, as the largest of many is biased.
    worst = squares[length - 2] if noise == "fenwick" else squares[length - 1]
    return math.sqrt(worst), math.sqrt(sum(squares) / length)


def running_sums() -> list[tuple[Any, ...]]:
    """Rows of the first table."""
    rows: list[tuple[Any, ...]] = []
    for power, width in WIDTHS.items():
        for noise, at in (("fenwick", 0), ("toeplitz", 2)):
            worst, rms = prefix_noise(noise, 2**power, width)
            for what, value, wanted in (("worst", worst, TABLE[power][at]), ("rms", rms, TABLE[power][at + 1])):
                rows.append((noise, 2**power, what, round(value, 4), wanted, round(100 * (value / wanted - 1), 2)))
                line(f"{noise:9} n = 2^{power:<3} {what:6} {value:7.3f}  table {wanted:6.2f}  {rows[-1][-1]:+.2f} %")
    return rows


@dataclass(frozen=True)
class Residuals:
    """GRAD of truncated l1 residuals, or of nothing, along a whole basis or along independent directions."""

    dimension: int
    orthonormal: bool
    flat: bool = False
    at: Any = None
    key: Key = Key(0)  # noqa: RUF009
    name: str = "residuals"

    @property
    def width(self) -> int:
        """d."""
        return self.dimension

    def gradients(self, at: Any, key: Key) -> Residuals:
        """The question at a point."""
        return Residuals(self.dimension, self.orthonormal, self.flat, at, key)

    def differences(self, at: Any, before: Any, key: Key) -> Residuals:
        """Not asked here."""
        raise NotImplementedError

    def __call__(self, records: Any) -> Tensor:
        """``[B, d]``."""
        (a, b), numbers = records
        rows = torch.empty(len(numbers), self.dimension, dtype=torch.float64)
        for row, number in enumerate(numbers.tolist()):
            if self.orthonormal:
                u = haar_bases(self.dimension, self.key, [number])[0]
            else:
                u = torch.from_numpy(self.key.fold(number).generator().standard_normal((self.dimension,) * 2))
                u = u / u.norm(dim=1, keepdim=True)
            ends = [f_of(torch.as_tensor(self.at) + sign * RADIUS * u, a[row], b[row]) for sign in (1, -1)]
            slopes = (ends[0] - ends[1]) / (2 * RADIUS) * (0.0 if self.flat else 1.0)
            rows[row] = slopes @ u
        return rows


def f_of(points: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """min(|<a, x> - b|, 3)."""
    return (points @ a - b).abs().clamp(max=3.0)


def drawn(count: int, dimension: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions of length one, and offsets about a point at distance 3 sqrt(d)."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(count, dimension))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    return a, a.sum(axis=1) * 3.0 + 0.3 * rng.normal(size=count)


def directions() -> list[tuple[Any, ...]]:
    """Rows of the second table."""
    rows: list[tuple[Any, ...]] = []
    for dimension, count in RECORDS.items():
        noise: dict[bool, float] = {}
        for orthonormal in (True, False):
            bound = math.sqrt(dimension) if orthonormal else float(dimension)
            records = drawn(count, dimension, 0)
            windows = count // (BATCH * LENGTH)
            found: dict[bool, Any] = {}
            for flat in (True, False):
                used = 2 if flat else windows
                questions = Residuals(dimension, orthonormal, flat)
                oracle = FreshSinglePass(questions=questions, steps=used * LENGTH, batch=BATCH, clip=bound)
                data = as_records((records, torch.arange(count)))
                curator = Curator(data, oracle.plan(), BUDGET)
                sigma = curator.noise_multiplier * bound / BATCH
                size = math.sqrt(1 + 1 / BATCH * 2 + dimension * sigma**2)
                walk = O2NC(windows=used, window_length=LENGTH, radius=RADIUS, length=size)
                found[flat] = list(walk.walk(np.zeros(dimension), oracle, curator.batches(), Key(1)))
            noise[orthonormal] = math.sqrt(float(torch.stack([step.estimate for step in found[True]]).square().mean()))
            end = [step.average for step in found[False] if step.average is not None][-1]
            others = drawn(4_000, dimension, 1)
            reached = sv.stationarity.least_norm(lambda x, o=others: slope(x, o), end, 2 * RADIUS, samples=64, rounds=5)
            rows.append((dimension, "orthonormal" if orthonormal else "independent", noise[orthonormal], reached.norm))
        ratio = noise[False] / noise[True]
        line(
            f"d = {dimension:<5} {count:,} records: noise {noise[True]:.4g} and {noise[False]:.4g}, ratio {ratio:.2f}, "
            f"sqrt(d) = {math.sqrt(dimension):.2f}; stationarity {rows[-2][-1]:.3f} and {rows[-1][-1]:.3f}"
        )
    return rows


def slope(x: np.ndarray, records: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The mean gradient."""
    a, b = records
    away = a @ x - b
    return ((np.sign(away) * (np.abs(away) < 3.0))[:, None] * a).mean(axis=0)


def main() -> None:
    """Measure both, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, columns, measure in (
        ("directions", ("dimension", "directions", "noise", "stationarity"), directions),
        ("running-sums", ("noise", "length", "what", "measured", "table", "percent"), running_sums),
    ):
        with (arguments.out / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([columns, *measure()])
    machine = f"{platform.system()} {platform.machine()}, torch {torch.__version__}"
    command = f"python benchmarks/nonsmooth_noise.py --out {arguments.out}\n{machine}\n"
    (arguments.out / "command.txt").write_text(command)


if __name__ == "__main__":
    main()
