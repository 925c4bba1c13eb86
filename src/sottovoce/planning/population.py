"""From the records at hand to the population they are drawn from.

I24's Proposition 5.1 claims a uniform gap for every Lipschitz loss, which is false already on the line (a zigzag whose
teeth have independent signs: `tests/errata`). It holds one level up, for the smoothed losses, whose gradients are
Lipschitz: cover the ball that the iterates can reach, and use that the mean of n vectors of length at most L is within
(2 + sqrt(2 ln(1/p))) L / sqrt(n) of its expectation, except with probability p.
"""

from __future__ import annotations

import math

from sottovoce.arguments import is_finite
from sottovoce.planning.problem import curvature_constant
from sottovoce.privacy.errors import ConfigurationError


def uniform_gap(
    *, records: int, dimension: int, lipschitz: float, radius: float, reach: float, failure: float = 0.05
) -> float:
    """How far the gradients of the smoothed loss are apart, on the records and on the population, wherever one looks.

    With probability 1 - ``failure`` over independent records,

        sup |grad F_n,a - grad F_a| <= (L / sqrt(n)) (2 + sqrt(2 (d ln(1 + 4 kappa_d sqrt(n) (R + a) / a) + ln(1 / p))))

    over the ball of radius R + a around the start: a is the smoothing radius, R the ``reach`` of the iterates, at most
    D T. An (a, b)-stationary point of the smoothed empirical loss is then (2 a, b + gap)-stationary for the population.
    """
    for name, value in (("lipschitz", lipschitz), ("radius", radius), ("reach", reach)):
        if not (is_finite(value) and value > 0):
            raise ConfigurationError(f"{name}={value!r}: it must be a positive, finite number.")
    if not 0 < failure < 1 or records < 1 or dimension < 1:
        raise ConfigurationError(
            f"records={records}, dimension={dimension}, failure={failure}: at least one record and one dimension, and "
            "a probability between 0 and 1 are needed."
        )
    cover = math.log1p(4 * curvature_constant(dimension) * math.sqrt(records) * (reach + radius) / radius)
    tail = math.sqrt(2 * (dimension * cover + math.log(1 / failure)))
    return lipschitz / math.sqrt(records) * (2 + tail)


def records_for_gap(
    gap: float, *, dimension: int, lipschitz: float, radius: float, reach: float, failure: float = 0.05
) -> int:
    """The fewest records whose `uniform_gap` is at most ``gap``."""
    if not (is_finite(gap) and gap > 0):
        raise ConfigurationError(f"gap={gap!r}: it must be a positive, finite number.")

    def found(records: int) -> float:
        return uniform_gap(
            records=records, dimension=dimension, lipschitz=lipschitz, radius=radius, reach=reach, failure=failure
        )

    high = 1
    while found(high) > gap:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle) <= gap else (middle, high)
    return high
