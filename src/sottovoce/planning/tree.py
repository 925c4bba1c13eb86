"""The variance-reduced single-pass oracle: a fresh estimate, then differences, under a running sum (ALGORITHMS T).

I24's Algorithm 3 (Z24's Algorithm 4 where the period is the window), with C the encoder and B the decoder of the noise:

    A / (D T) + G1 / sqrt(M) + 2 G0 + 2 bias,    D = 2 radius / (M + 1),  G1 = L + G0,
    G0^2 = V1 / B1 + (S - 1) (7/6) d L^2 D^2 / (radius^2 B2) + d sigma^2 max_t |B[t, :]|^2,
    sigma = max_i s_i |C[:, i]| / mu,  s_1 = moved C1 / B1,  s_2 = moved sqrt(d) L 2 D / (radius B2).

The error is carried from step to step, hence 2 G0. More bases do not help a difference: records differ
among themselves, their smoothed gradients by up to kappa_d L D / radius over a step.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from sottovoce.planning.problem import NonsmoothProblem, Options
from sottovoce.planning.schedule import Schedule
from sottovoce.privacy.tree import Factorisation, sensitivity

PERIODS = tuple(2**power for power in range(13))
_MOST_RECORDS = 1e18
_FRACTIONS = np.geomspace(0.02, 0.98, 24)


def required(problem: NonsmoothProblem, target: float, options: Options) -> Schedule | None:
    """The schedule with the fewest records whose bound is at most ``target``; None if there is none.

    Args:
        problem: what is to be minimised, with smoothing.
        target: the wanted stationarity.
        options: how is asked.
    """
    found = [
        schedule
        for period in PERIODS
        for length in _lengths(problem, target)
        if (schedule := _cheapest(problem, target, length, period, options)) is not None
    ]
    return min(found, key=lambda schedule: schedule.records, default=None)


def best(problem: NonsmoothProblem, records: int, options: Options) -> Schedule | None:
    """The schedule with the least bound that so many records allow, to a thousandth; None if no step fits."""
    low, high = math.log(problem.lipschitz * 1e-4), math.log(problem.lipschitz * 1e4)
    found: Schedule | None = None
    while high - low > 2e-3:
        middle = (low + high) / 2
        schedule = required(problem, math.exp(middle), options)
        if schedule is not None and schedule.records <= records:
            found, high = schedule, middle
        else:
            low = middle
    return found


def _cheapest(problem: NonsmoothProblem, target: float, length: int, period: int, options: Options) -> Schedule | None:
    """Over the errors G0 and how they are divided between fresh batches, differences and noise."""
    dimension, lipschitz, radius = problem.dimension, problem.lipschitz, problem.radius
    bias = 2 * options.bias(problem)
    target -= bias
    step = 2 * radius / (length + 1)
    most = (target - lipschitz / math.sqrt(length)) / (2 + 1 / math.sqrt(length))
    if most <= 0:
        return None
    columns, row = norms(options.noise, period)
    error, noisy, fresh = (
        grid.ravel() for grid in np.meshgrid(most * _FRACTIONS, _FRACTIONS, _FRACTIONS[::2], indexing="ij")
    )
    squared = error**2
    variance = lipschitz**2 + options.variance(problem)
    drift = (period - 1) * 7 / 6 * dimension * lipschitz**2 * step**2 / radius**2
    sigma = np.sqrt(noisy * squared / dimension) / row
    moved = problem.moved / (sigma * problem.mu)
    first = np.ceil(np.maximum(moved * options.clip * columns[0], variance / ((1 - noisy) * squared * fresh)))
    bound = math.sqrt(dimension) * lipschitz * 2 * step / radius
    later = np.ceil(np.maximum(moved * bound * columns[1], drift / ((1 - noisy) * squared * (1 - fresh))))
    if period == 1:
        later = np.zeros_like(later)
    room = target - (lipschitz + error) / math.sqrt(length) - 2 * error
    descent = options.descent(problem) * (length + 1) / (2 * radius * length)
    windows = np.ceil(descent / np.maximum(room, 1e-12 * target))
    steps = windows * length
    trees = np.ceil(steps / period)  # the last one is planned whole, too: its records are set aside
    records = trees * (np.maximum(first, 1) + (period - 1) * np.maximum(later, 1))
    records = np.where((room > 1e-12 * target) & (records < _MOST_RECORDS), records, np.inf)
    at = int(np.argmin(records))
    if not math.isfinite(records[at]):
        return None
    return Schedule(
        oracle="tree", windows=int(windows[at]), window_length=length, batch=max(1, int(first[at])),
        difference_batch=max(1, int(later[at])), period=period, clip=options.clip, bases=options.bases,
        noise=options.noise, records=int(records[at]), bound=float(descent / windows[at] + target - room[at]) + bias,
        length=float(lipschitz + error[at]),
    )  # fmt: skip


@lru_cache(maxsize=256)
def norms(noise: Factorisation, length: int) -> tuple[tuple[float, float], float]:
    """The norm of the encoder's first column, the most of its others, and that of the decoder's rows."""
    columns = tuple(
        sensitivity(noise, [1.0 if leaf in chosen else 0.0 for leaf in range(length)]) if chosen else 0.0
        for chosen in (
            {0},
            {1} if length > 1 else set[int](),
        )  # a later leaf is covered by no more rows than the second
    )
    if noise == "fenwick":
        return (columns[0], columns[1]), math.sqrt(max(prefix.bit_count() for prefix in range(1, length + 1)))
    return (columns[0], columns[1]), columns[0]  # the square root of a lower-triangular Toeplitz matrix is its own pair


def _lengths(problem: NonsmoothProblem, target: float) -> list[int]:
    scale = (problem.lipschitz / target) ** 2
    return sorted({max(2, round(factor * scale)) for factor in np.geomspace(1.05, 400, 40)})
