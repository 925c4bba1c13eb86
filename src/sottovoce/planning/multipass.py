"""The oracles that read the whole data set at every step: fresh (derived), or by differences (I24, Algorithm 4).

What they guarantee is about the records at hand; `sottovoce.planning.population` bounds how far the population is.

Fresh: sigma = moved C sqrt(T) / (n mu), conditionally unbiased:

    A / (D T) + (G0 + G1) / sqrt(M) + 2 bias,    G0^2 = d sigma^2 + v^2 / n,  G1^2 = L^2 + G0^2.

Differences: noise accumulates over a period, s1^2 + (tau - 1) s2^2, and the split of the budget that is best gives

    A / (D T) + G1 / sqrt(M) + 2 G0 + 2 bias,    G1 = L + G0,
    G0^2 = d W^2 + (direction variance) / n,  W = moved (C1 sqrt(T1) + C2 sqrt((T - T1)(S - 1))) / (n mu).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sottovoce.planning.problem import NonsmoothProblem, Options
from sottovoce.planning.schedule import Schedule

Shape = tuple[int, NDArray[np.float64]]
"""The length of a window, and numbers of windows."""

PERIODS = (1, *(2**power for power in range(1, 13)))


def required(
    problem: NonsmoothProblem, target: float, options: Options, *, differences: bool = False
) -> Schedule | None:
    """The schedule with the fewest records whose bound is at most ``target``, in at most so many steps."""
    low, high = 0.0, math.log(1e18)
    found: Schedule | None = None
    while high - low > 1e-3:
        middle = (low + high) / 2
        schedule = best(problem, math.ceil(math.exp(middle)), options, differences=differences)
        if schedule is not None and schedule.bound <= target:
            found, high = schedule, middle
        else:
            low = middle
    return found


def best(problem: NonsmoothProblem, records: int, options: Options, *, differences: bool = False) -> Schedule | None:
    """The schedule with the least bound for so many records, in at most so many steps."""
    chosen: tuple[float, int, int, int] | None = None
    for period in PERIODS if differences else (1,):
        for length, windows in _shapes(options.most_steps, period):
            bounds = _bounds(problem, records, (length, windows), period if differences else None, options)
            at = int(np.argmin(bounds))
            if chosen is None or bounds[at] < chosen[0]:
                chosen = float(bounds[at]), length, int(windows[at]), period
    if chosen is None:
        return None
    bound, length, windows, period = chosen
    one = length, np.asarray([float(windows)])
    error = float(_bounds_and_errors(problem, records, one, period if differences else None, options)[1][0])
    size = problem.lipschitz + error if differences else math.hypot(problem.lipschitz, error)
    return Schedule(
        oracle="multi-pass-differences" if differences else "multi-pass", windows=windows, window_length=length,
        batch=records, difference_batch=records if differences else 0, period=period, clip=options.clip,
        bases=options.bases, bound=bound, records=records, length=size,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _shapes(most_steps: int, period: int) -> tuple[Shape, ...]:
    """Lengths of windows and their numbers, of at least a period in all."""
    shapes: list[Shape] = []
    for length in np.unique(np.geomspace(2, max(2, most_steps), 120).astype(np.int64)).tolist():
        windows = np.unique(np.geomspace(1, max(1, most_steps // length), 160).astype(np.int64)).astype(float)
        if len(enough := windows[length * windows >= period]):
            shapes.append((length, enough))
    return tuple(shapes)


def _bounds(
    problem: NonsmoothProblem, records: int, shape: Shape, period: int | None, options: Options
) -> NDArray[np.float64]:
    """The bound for each number of windows; without a period every estimate is fresh."""
    return _bounds_and_errors(problem, records, shape, period, options)[0]


def _bounds_and_errors(
    problem: NonsmoothProblem, records: int, shape: Shape, period: int | None, options: Options
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The bounds, and G0 of each."""
    length, windows = shape
    dimension, lipschitz = problem.dimension, problem.lipschitz
    steps, step = windows * length, 2 * problem.radius / (length + 1)
    variance, bias = options.variance(problem), options.bias(problem)
    descent = options.descent(problem) / (step * steps)
    unit = problem.moved / (records * problem.mu)
    if period is None:
        own = np.sqrt(dimension * steps * (unit * options.clip) ** 2 + variance / records)
        return descent + (own + np.sqrt(lipschitz**2 + own**2)) / math.sqrt(length) + 2 * bias, own
    roots = np.ceil(steps / period)
    bound = math.sqrt(dimension) * lipschitz * 2 * step / problem.radius
    noise = unit * (options.clip * np.sqrt(roots) + bound * np.sqrt((steps - roots) * (period - 1)))
    drift = (period - 1) * 7 / 6 * dimension * lipschitz**2 * step**2 / (problem.radius**2 * options.bases)
    own = np.sqrt(dimension * noise**2 + (variance + drift) / records)
    return descent + (lipschitz + own) / math.sqrt(length) + 2 * own + 2 * bias, own
