"""Moreau envelopes and Lasry-Lions smoothing, exact on the line and for ridge losses (I24, Appendix D, corrected).

    moreau_l h(x)       = min_y h(y) + (y - x)^2 / (2 l)
    lasry_lions_l h(x)  = max_z min_y h(y) + (z - y)^2 / (4 l) - (z - x)^2 / (2 l)

The second is smooth for nonconvex h too: for an L-Lipschitz h it lies within L^2 l of h, is L-Lipschitz, and its slope
is 1/l-Lipschitz. I24's equation 20 has y and z interchanged (its inner minimum is -infinity), and its Fact D.2 claims
L l and L / l. With l = radius / (3 L) a stationary point of the smoothed function is Goldstein-stationary within the
radius.

A ridge loss phi(<a, x>) stays one: it is smoothed along a alone, with l |a|^2 in place of l. That is what makes the
method useful beyond a few dimensions: a record costs one number, not a search through space. Smoothing acts on every
record's loss by itself, so a smoothed mean is the mean of smoothed losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.arguments import is_finite
from sottovoce.privacy.errors import ConfigurationError

Floats = NDArray[np.float64]

_HALVINGS = 60
"""Of an interval of 4 L l: to less than a last digit of its ends."""


@dataclass(frozen=True)
class PiecewiseLinear:
    """A continuous, piecewise linear function on the line.

    Attributes:
        breaks: where the slope changes, increasing; at least one.
        slopes: one more than there are breaks, from left to right.
        value: at the first break.
    """

    breaks: Floats
    slopes: Floats
    value: float = 0.0

    def __post_init__(self) -> None:
        breaks, slopes = (np.atleast_1d(np.asarray(each, dtype=np.float64)) for each in (self.breaks, self.slopes))
        if not len(breaks) or len(slopes) != len(breaks) + 1 or not (np.diff(breaks) > 0).all():
            raise ConfigurationError(
                f"{len(breaks)} breaks and {len(slopes)} slopes: increasing breaks, at least one, and one slope more."
            )
        if not (np.isfinite(breaks).all() and np.isfinite(slopes).all() and is_finite(self.value)):
            raise ConfigurationError("breaks, slopes and value must be finite.")
        object.__setattr__(self, "breaks", breaks)
        object.__setattr__(self, "slopes", slopes)

    @classmethod
    def absolute(cls) -> PiecewiseLinear:
        """|t|."""
        return cls(np.zeros(1), np.array([-1.0, 1.0]))

    @classmethod
    def ramp(cls, *, height: float = 1.0, width: float = 1.0) -> PiecewiseLinear:
        """0 up to 0, then rising to ``height`` over ``width`` and level again: a step made Lipschitz; nonconvex."""
        if not (is_finite(width) and width > 0):
            raise ConfigurationError(f"width={width!r}: a positive number is needed.")
        return cls(np.array([0.0, width]), np.array([0.0, height / width, 0.0]))

    @property
    def lipschitz(self) -> float:
        """The steepest slope."""
        return float(np.abs(self.slopes).max())

    @property
    def values(self) -> Floats:
        """At the breaks."""
        return self.value + np.concatenate([[0.0], np.cumsum(self.slopes[1:-1] * np.diff(self.breaks))])

    def __call__(self, t: ArrayLike) -> Floats:
        """At any points, of any shape."""
        at = np.asarray(t, dtype=np.float64)
        piece = np.searchsorted(self.breaks, at)
        anchor = np.maximum(piece - 1, 0)
        return self.values[anchor] + self.slopes[piece] * (at - self.breaks[anchor])

    def nearest(self, t: ArrayLike, scale: ArrayLike) -> tuple[Floats, Floats]:
        """The Moreau envelope and the y that attains it; of several, the first from the left."""
        at, scale = np.broadcast_arrays(np.asarray(t, dtype=np.float64), _positive(scale))
        left = np.concatenate([[-np.inf], self.breaks])
        right = np.concatenate([self.breaks, [np.inf]])
        free = at[..., None] - scale[..., None] * self.slopes  # where a whole line of this slope would have it
        candidates = np.clip(free, left, right)
        anchor = np.maximum(np.arange(len(self.slopes)) - 1, 0)
        heights = self.values[anchor] + self.slopes * (candidates - self.breaks[anchor])
        costs = heights + (candidates - at[..., None]) ** 2 / (2 * scale[..., None])
        best = costs.argmin(axis=-1)[..., None]
        return np.take_along_axis(costs, best, -1)[..., 0], np.take_along_axis(candidates, best, -1)[..., 0]

    def moreau(self, t: ArrayLike, scale: ArrayLike) -> Floats:
        """The Moreau envelope: from below, within L^2 scale / 2; not smooth where the function is not convex."""
        return self.nearest(t, scale)[0]

    def lasry_lions(self, t: ArrayLike, scale: ArrayLike) -> tuple[Floats, Floats]:
        """The smoothed function and its slope, to rounding.

        The maximum over z is of a strongly concave function, whose slope falls from positive to negative within
        2 L scale of t: it is halved in.
        """
        at, scale = np.broadcast_arrays(np.asarray(t, dtype=np.float64), _positive(scale))
        reach = 2 * self.lipschitz * scale
        low, high = at - reach, at + reach
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            _, nearest = self.nearest(middle, 2 * scale)
            rising = (middle - nearest) / (2 * scale) > (middle - at) / scale
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        z = (low + high) / 2
        return self.moreau(z, 2 * scale) - (z - at) ** 2 / (2 * scale), (z - at) / scale


@dataclass(frozen=True)
class RidgeLoss:
    """phi(<a, x> - b) for records (a, b): the smoothed loss and its gradient, from one number a record.

    Attributes:
        profile: phi.
        scale: l; ``for_radius`` gives the one that a Goldstein radius needs.
    """

    profile: PiecewiseLinear
    scale: float

    @classmethod
    def for_radius(cls, profile: PiecewiseLinear, radius: float, *, feature_norm: float) -> RidgeLoss:
        """l = radius / (3 L), L the Lipschitz constant in x of a record with features of at most this norm."""
        for name, value in (("radius", radius), ("feature_norm", feature_norm)):
            if not (is_finite(value) and value > 0):
                raise ConfigurationError(f"{name}={value!r}: a positive number is needed.")
        return cls(profile, radius / (3 * profile.lipschitz * feature_norm))

    def values(self, points: Floats, features: Floats, targets: Floats) -> Floats:
        """``[N]`` smoothed losses at points ``[N, d]`` or ``[d]``, for features ``[N, d]``."""
        return self._smoothed(points, features, targets)[0]

    def gradients(self, points: Floats, features: Floats, targets: Floats) -> Floats:
        """``[N, d]``; none is longer than L times its record's features."""
        return self._smoothed(points, features, targets)[1][:, None] * features

    def _smoothed(self, points: Floats, features: Floats, targets: Floats) -> tuple[Floats, Floats]:
        squared = np.einsum("nd,nd->n", features, features)
        offset = np.einsum("...d,...d->...", features, np.broadcast_to(points, features.shape)) - targets
        flat = squared == 0  # a record without features has a constant loss
        value, slope = self.profile.lasry_lions(offset, self.scale * np.where(flat, 1.0, squared))
        return np.where(flat, self.profile(offset), value), np.where(flat, 0.0, slope)


def component_stationarity(profile: PiecewiseLinear, t: ArrayLike, radius: ArrayLike) -> Floats:
    """One record's Goldstein stationarity: the least |slope| in the convex hull of those within ``radius`` of t."""
    at, around = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(radius, dtype=np.float64))
    first = np.searchsorted(profile.breaks, at - around, side="right")
    last = np.searchsorted(profile.breaks, at + around, side="left")
    inside = np.arange(len(profile.slopes))
    within = (inside >= first[..., None]) & (inside <= np.maximum(first, last)[..., None])
    least = np.where(within, profile.slopes, np.inf).min(axis=-1)
    most = np.where(within, profile.slopes, -np.inf).max(axis=-1)
    return np.where((least <= 0) & (most >= 0), 0.0, np.minimum(np.abs(least), np.abs(most)))


def _positive(scale: ArrayLike) -> Floats:
    found = np.asarray(scale, dtype=np.float64)
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise ConfigurationError(f"scale={scale!r}: it must be positive and finite.")
    return found
