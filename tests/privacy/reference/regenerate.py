"""Recomputes the reference table: privacy loss distributions at interval 1e-5, connecting the dots.

Run as ``python tests/privacy/reference/regenerate.py`` from the repository's root; it takes some minutes. It reads
the rows (rate, noise multiplier, steps, delta) from the table and writes their epsilon anew, using dp-accounting
with its own defaults only, none of Sottovoce.

Rows were drawn at random where this reference is sane: the grid that the library chooses is coarser than 1.4e-5, as
otherwise the reference is the less accurate of the two; and delta is at least 25 times what rounding in the Fourier
transforms of the composition can be, 4e-16 times the steps, which leaves the reference itself uncertain by up to
some tenths of a percent at the smallest deltas.
"""

import csv
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism

TABLE = Path(__file__).parent / "epsilon.csv"
INTERVAL = 1e-5


class Row(NamedTuple):
    rate: float
    noise_multiplier: float
    steps: int
    delta: float
    epsilon: float


def read() -> list[Row]:
    with TABLE.open(newline="") as file:
        return [
            Row(float(r["rate"]), float(r["noise_multiplier"]), int(r["steps"]), float(r["delta"]), float(r["epsilon"]))
            for r in csv.DictReader(file)
        ]


def write(rows: Sequence[Row]) -> None:
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows([*map(repr, row[:-1]), f"{row.epsilon:.12g}"] for row in rows)


def distribution(rate: float, noise_multiplier: float) -> PrivacyLossDistribution:
    return from_gaussian_mechanism(
        noise_multiplier,
        pessimistic_estimate=True,
        value_discretization_interval=INTERVAL,
        sampling_prob=rate,
        use_connect_dots=True,
    )


def recompute(rows: Sequence[Row]) -> list[Row]:
    """The same rows with their epsilon computed anew."""
    done: list[Row] = []
    for (rate, multiplier), same in groupby(sorted(rows), key=lambda row: (row.rate, row.noise_multiplier)):
        step = distribution(rate, multiplier) if rate < 1 else None
        for steps, group in groupby(same, key=lambda row: row.steps):
            # Without subsampling, n steps are one with sqrt(n) times less noise.
            composed = step.self_compose(steps) if step else distribution(1.0, multiplier / math.sqrt(steps))
            done += [row._replace(epsilon=composed.get_epsilon_for_delta(row.delta)) for row in group]
    return done


if __name__ == "__main__":
    write(recompute(read()))
