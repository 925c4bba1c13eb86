"""How stationary is a point: upper bounds on the norm of the Goldstein gradient. NOT PRIVATE: for public records.

The Goldstein subdifferential of F at x with radius r is the convex hull of the gradients within r of x. Any convex
combination of gradients there bounds its least norm from above; nothing here bounds it from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from sottovoce.arguments import is_finite
from sottovoce.privacy.errors import ConfigurationError

Floats = NDArray[np.float64]
Gradient = Callable[[Floats], Floats]
"""The gradient of F at a point where it has one (nearly everywhere)."""


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A convex combination of gradients.

    Attributes:
        norm: of the combination: an upper bound on that of the Goldstein gradient.
        weights: of the points; they sum to one.
        points: where the gradients were taken, all within the radius.
        gradients: one for each point.
    """

    norm: float
    weights: Floats
    points: Floats
    gradients: Floats

    @property
    def vector(self) -> Floats:
        """The combination itself."""
        return self.weights @ self.gradients


def window_certificate(gradient: Gradient, points: Floats, radius: float) -> Combination:
    """The mean of the gradients at the points of a window, about their average.

    Raises:
        ConfigurationError: a point is further than ``radius`` from the average.
    """
    points = np.asarray(points, dtype=np.float64)
    if not (is_finite(radius) and radius > 0):
        raise ConfigurationError(f"radius={radius!r}: a positive number is needed.")
    average = points.mean(axis=0)
    furthest = float(np.linalg.norm(points - average, axis=1).max())
    if furthest > radius * (1 + 1e-12):
        raise ConfigurationError(f"a point is {furthest:g} from the average of the window, further than {radius:g}.")
    weights = np.full(len(points), 1 / len(points))
    return _combination(weights, points, np.stack([gradient(point) for point in points]))


def least_norm(
    gradient: Gradient, x: Floats, radius: float, *, samples: int | None = None, rounds: int = 20, seed: int = 0
) -> Combination:
    """The shortest convex combination of sampled gradients within ``radius`` of x, refined where it can be shorter.

    At least 2 d points of the ball, by default; then gradients along x - t g / |g| are added, t in [0, radius], while
    one of them, h, has <h, g> < |g|^2 / 2: only such a one can shorten g by much.

    Args:
        gradient: the gradient of F.
        x: the point.
        radius: of the ball.
        samples: points of the ball to begin with.
        rounds: refinements at most.
        seed: of the points.
    """
    x = np.asarray(x, dtype=np.float64)
    if not (is_finite(radius) and radius > 0) or x.ndim != 1:
        raise ConfigurationError(f"radius={radius!r}, x of shape {x.shape}: a positive radius and a vector are needed.")
    dimension = len(x)
    count = max(2 * dimension, 8) if samples is None else samples
    generator = np.random.default_rng(seed)
    points = np.concatenate([x[None], x + radius * _in_ball(generator, count, dimension)])
    gradients = np.stack([gradient(point) for point in points])
    for _ in range(rounds):
        found = _combination(_least_norm_weights(gradients), points, gradients)
        if found.norm == 0:
            return found
        far = np.append((np.arange(8) + generator.random(8)) / 8, 1.0)
        away = x - radius * far[:, None] * (found.vector / found.norm)
        new = np.stack([gradient(point) for point in away])
        shorter = new @ found.vector < found.norm**2 / 2
        if not shorter.any():
            return found
        points, gradients = np.concatenate([points, away[shorter]]), np.concatenate([gradients, new[shorter]])
    return _combination(_least_norm_weights(gradients), points, gradients)


def held_out_bound(
    combination: Combination, gradient: Gradient, *, records: int, lipschitz: float, failure: float = 0.05
) -> float:
    """A bound on the population's Goldstein gradient, from records that chose neither the points nor the weights.

    |g| + L (1 + sqrt(2 ln(1/p))) / sqrt(n), but for probability p: g is the same combination of the gradients over n
    independent records of a second split.

    Args:
        combination: chosen on a first split.
        gradient: of the mean over the second split.
        records: n, those of the second split.
        lipschitz: L, for every record.
        failure: p.
    """
    if records < 1 or not 0 < failure < 1 or not (is_finite(lipschitz) and lipschitz > 0):
        given = f"records={records}, failure={failure}, lipschitz={lipschitz}"
        raise ConfigurationError(f"{given}: a record, a probability and a positive number are needed.")
    mean = combination.weights @ np.stack([gradient(point) for point in combination.points])
    return float(np.linalg.norm(mean)) + lipschitz * (1 + math.sqrt(2 * math.log(1 / failure))) / math.sqrt(records)


def _least_norm_weights(gradients: Floats) -> Floats:
    """Non-negative least squares of [G; s 1] w ~ [0; s]: its solution, divided by its sum, is the shortest combination.

    Exactly so for every s > 0, by the conditions of optimality; s is the gradients' size, for the numbers' sake.
    """
    scale = max(float(np.linalg.norm(gradients, axis=1).max()), 1e-300)
    matrix = np.concatenate([gradients.T / scale, np.ones((1, len(gradients)))])
    target = np.zeros(len(matrix))
    target[-1] = 1.0
    weights = nnls(matrix, target)[0]
    return weights / weights.sum()


def _combination(weights: Floats, points: Floats, gradients: Floats) -> Combination:
    return Combination(
        norm=float(np.linalg.norm(weights @ gradients)), weights=weights, points=points, gradients=gradients
    )


def _in_ball(generator: np.random.Generator, count: int, dimension: int) -> Floats:
    """Uniform in the unit ball."""
    normals = generator.standard_normal((count, dimension))
    return normals / np.linalg.norm(normals, axis=1, keepdims=True) * generator.random((count, 1)) ** (1 / dimension)
