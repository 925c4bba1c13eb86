"""A schedule of O2NC: the numbers that a run needs, and what it then guarantees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from sottovoce.privacy.tree import Factorisation

OracleName = Literal["single-pass", "tree", "multi-pass", "multi-pass-differences", "first-order"]
"""The oracles: naive single-pass (the default); variance-reduced with a running sum; two over the whole data."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Windows of steps, the records of each step, and the bound that follows.

    Attributes:
        oracle: how the gradient is estimated.
        windows: K; one of them is chosen at random, and the average of its points is returned.
        window_length: M, the steps in a window.
        period: S, the steps from one fresh estimate to the next; 1 where nothing is carried over.
        batch: the records of a step with a fresh estimate.
        difference_batch: the records of the other steps.
        clip: the l2 bound on a record's estimate.
        bases: orthonormal bases of directions for each record and step; 0 where gradients are asked for.
        noise: the factorisation of running sums.
        length: G1, the root mean square of an estimate's norm is at most this; the step's size follows from it.
        bound: the expected norm of the Goldstein gradient is at most this.
        records: the records needed.
    """

    oracle: OracleName
    windows: int
    window_length: int
    batch: int
    length: float
    bound: float
    records: int
    clip: float
    bases: int
    period: int = 1
    difference_batch: int = 0
    noise: Factorisation = "toeplitz"

    @property
    def steps(self) -> int:
        """All steps of the run."""
        return self.windows * self.window_length

    def evaluations(self, dimension: int) -> int:
        """Values of f that a run asks for; gradients where ``bases`` is 0."""
        fresh = math.ceil(self.steps / self.period)
        each, difference = (2 * self.bases * dimension, 4 * self.bases * dimension) if self.bases else (1, 2)
        return fresh * self.batch * each + (self.steps - fresh) * self.difference_batch * difference

    def vacuous(self, lipschitz: float) -> bool:
        """Whether the bound says no more than that f is Lipschitz."""
        return not self.bound < lipschitz
