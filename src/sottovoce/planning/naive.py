"""The naive single-pass oracle: a fresh clipped estimate from unused records at every step (ALGORITHMS N).

Z24's Algorithm 6 with the clip of I24's Algorithm 3 made explicit. Its noise is new at every step, hence conditionally
unbiased, and enters the bound as G0 / sqrt(M):

    A / (D T) + (G0 + G1) / sqrt(M) + 2 bias,    D = 2 radius / (M + 1),  T = K M,
    G0^2 = d sigma^2 + V1 / B,  G1^2 = L^2 + G0^2,  V1 = L^2 + v^2,  sigma = moved C / (B mu).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sottovoce.planning.problem import NonsmoothProblem, Options
from sottovoce.planning.schedule import Schedule

Floats = NDArray[np.float64]


def required(problem: NonsmoothProblem, target: float, options: Options) -> Schedule | None:
    """The schedule with the fewest records whose bound is at most ``target``; None if there is none.

    Args:
        problem: what is to be minimised.
        target: the wanted stationarity.
        options: how is asked; ``bases`` is 0 for the first-order oracle.
    """
    target -= 2 * options.bias(problem)
    batches, lengths = np.meshgrid(_batches(problem, options.clip), _lengths(problem, target))
    room = target - _error(problem, batches, lengths, options)
    with np.errstate(divide="ignore", invalid="ignore"):
        windows = np.ceil(options.descent(problem) * (lengths + 1) / (2 * problem.radius * lengths * room))
        records = np.where(room > 0, batches * lengths * windows, np.inf)
    at = np.unravel_index(np.argmin(records), records.shape)
    if not math.isfinite(records[at]):
        return None
    return _schedule(problem, int(batches[at]), int(lengths[at]), int(windows[at]), options)


def best(problem: NonsmoothProblem, records: int, options: Options) -> Schedule | None:
    """The schedule with the least bound that so many records allow; None if there are too few for a single step."""
    batches, lengths = np.meshgrid(
        np.unique(np.geomspace(1, records, 400).astype(np.int64)).astype(float),
        np.unique(np.geomspace(2, max(2, records), 400).astype(np.int64)).astype(float),
    )
    windows = np.floor(records / (batches * lengths))
    with np.errstate(divide="ignore"):
        descent = options.descent(problem) * (lengths + 1) / (2 * problem.radius * lengths * windows)
    bounds = np.where(windows >= 1, descent + _error(problem, batches, lengths, options), np.inf)
    at = np.unravel_index(np.argmin(bounds), bounds.shape)
    if not math.isfinite(bounds[at]):
        return None
    return _schedule(problem, int(batches[at]), int(lengths[at]), int(windows[at]), options)


def _schedule(problem: NonsmoothProblem, batch: int, length: int, windows: int, options: Options) -> Schedule:
    error = float(_error(problem, np.asarray(float(batch)), np.asarray(float(length)), options))
    descent = options.descent(problem) * (length + 1) / (2 * problem.radius * windows * length)
    squared = float(_squared_error(problem, np.asarray(float(batch)), options))
    return Schedule(
        oracle="single-pass" if options.bases else "first-order", windows=windows, window_length=length, batch=batch,
        bound=descent + error + 2 * options.bias(problem), records=batch * length * windows, clip=options.clip,
        bases=options.bases, length=math.hypot(problem.lipschitz, math.sqrt(squared)),
    )  # fmt: skip


def _error(problem: NonsmoothProblem, batches: Floats, lengths: Floats, options: Options) -> Floats:
    """(G0 + G1) / sqrt(M)."""
    own = _squared_error(problem, batches, options)
    return (np.sqrt(own) + np.sqrt(problem.lipschitz**2 + own)) / np.sqrt(lengths)


def _squared_error(problem: NonsmoothProblem, batches: Floats, options: Options) -> Floats:
    """G0^2."""
    sampling = problem.lipschitz**2 + options.variance(problem)
    noise = problem.dimension * (problem.moved * options.clip / (batches * problem.mu)) ** 2
    return noise + sampling / batches


def _batches(problem: NonsmoothProblem, clip: float) -> Floats:
    """Around the batch at which noise and gradient are alike."""
    scale = 1.0 if math.isinf(problem.mu) else math.sqrt(problem.dimension) * clip / (problem.mu * problem.lipschitz)
    return np.unique(np.maximum(1.0, np.rint(np.geomspace(0.05, 200, 500) * max(1.0, problem.moved * scale))))


def _lengths(problem: NonsmoothProblem, target: float) -> Floats:
    """Around the window at which L / sqrt(M) is the target."""
    scale = (problem.lipschitz / max(target, 1e-12)) ** 2
    return np.unique(np.maximum(2.0, np.rint(np.geomspace(0.5, 200, 800) * scale)))  # a window of one step stands still
