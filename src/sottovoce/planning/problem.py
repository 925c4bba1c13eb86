"""What a plan is made for: the size of the problem, the smoothness of the loss, and the guarantee wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from sottovoce.arguments import is_finite, is_whole
from sottovoce.privacy.accounting import gaussian_mu_for
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.tree import Factorisation


@dataclass(frozen=True, kw_only=True)
class NonsmoothProblem:
    """Minimise F(x) = E f(x; record) over R^d, f nonconvex and ``lipschitz``-Lipschitz in x for every record.

    Attributes:
        dimension: d.
        lipschitz: L, for every record.
        gap: F(start) less the infimum of F.
        radius: the smoothing radius and the radius of a window. What is guaranteed is a Goldstein gradient within twice
            this radius of the point, or within this radius where nothing is smoothed.
        budget: the privacy that the run has; None for none at all.
    """

    dimension: int
    lipschitz: float
    gap: float
    radius: float
    budget: Budget | None

    def __post_init__(self) -> None:
        if not is_whole(self.dimension) or self.dimension < 1:
            raise ConfigurationError(f"dimension={self.dimension!r}: a whole number of at least 1 is needed.")
        if self.budget is not None and self.budget.neighbours == "add-remove":
            raise ConfigurationError(
                "neighbours='add-remove': plans of blocks and passes are for 'zero-out' and 'replace-one', where the "
                "number of records is public."
            )
        for name in ("lipschitz", "gap", "radius"):
            value = getattr(self, name)
            if not (is_finite(value) and value > 0):
                raise ConfigurationError(f"{name}={value!r}: it must be a positive, finite number.")

    @cached_property
    def mu(self) -> float:
        """The Gaussian-DP parameter of the budget; infinite without one."""
        return math.inf if self.budget is None else gaussian_mu_for(self.budget.epsilon, self.budget.delta)

    @property
    def moved(self) -> float:
        """How many bounds one record can move a sum by: it is replaced by another, or by nothing."""
        return 2.0 if self.budget is not None and self.budget.neighbours == "replace-one" else 1.0

    def descent(self, smoothed: bool) -> float:
        """A = gap + L radius: what a smoothed loss can fall by (the gap alone where nothing is smoothed)."""
        return self.gap + self.lipschitz * self.radius if smoothed else self.gap


@dataclass(frozen=True, kw_only=True)
class Options:
    """How an oracle asks.

    Attributes:
        bases: orthonormal bases of directions for each record and step; 0 where gradients are asked for.
        clip: the l2 bound on a record's estimate: above L, or L itself for gradients.
        most_steps: steps of the oracles that read all records at every step.
        noise: the factorisation of running sums.
    """

    bases: int
    clip: float
    most_steps: int
    noise: Factorisation

    def variance(self, problem: NonsmoothProblem) -> float:
        """v^2 of one record's estimate."""
        return direction_variance(problem.dimension, self.bases, problem.lipschitz) if self.bases else 0.0

    def bias(self, problem: NonsmoothProblem) -> float:
        """What the clip adds to the bias at most."""
        variance = self.variance(problem)
        squared = problem.lipschitz**2 * problem.dimension / max(1, problem.dimension - 1)  # of one basis, by Poincare
        return clip_bias(variance, squared, self.clip, problem.lipschitz)

    def descent(self, problem: NonsmoothProblem) -> float:
        """A, with smoothing or without."""
        return problem.descent(smoothed=self.bases > 0)


def curvature_constant(dimension: int) -> float:
    """kappa_d: smoothing an L-Lipschitz function over a ball of radius a makes its gradient kappa_d L / a-Lipschitz.

    2 Gamma(d/2 + 1) / (sqrt(pi) Gamma((d + 1)/2)), at most sqrt(d); it tends to sqrt(2 d / pi).
    """
    half = dimension / 2
    return 2 * math.exp(math.lgamma(half + 1) - math.lgamma(half + 0.5)) / math.sqrt(math.pi)


def direction_variance(dimension: int, bases: float, lipschitz: float) -> float:
    """v^2: the mean squared distance of one record's estimate, from so many orthonormal bases, from its own gradient.

    L^2 d / ((d - 1) bases) by Poincare's inequality on the sphere; in one dimension the estimate is exact.
    """
    return 0.0 if dimension == 1 else lipschitz**2 * dimension / ((dimension - 1) * bases)


def clip_bias(variance: float, squared: float, clip: float, lipschitz: float) -> float:
    """What a clip above L adds to the bias at most: the less of v^2 / (4 (clip - L)) and E |g|^2 / (4 clip).

    (|e| - s)_+ <= |e|^2 / (4 s) for every s > 0: of the error, with s = clip - L, as the record's own gradient is no
    longer than L; or of the whole estimate, with s = clip, which is less where one basis has to do.
    """
    return 0.0 if variance == 0 else min(variance / (4 * (clip - lipschitz)), squared / (4 * clip))
