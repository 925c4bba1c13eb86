"""One window of a running sum: the exact prefix and its correlated noise, neither of which ever leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy.entropy import Entropy
from sottovoce.privacy.errors import PlanViolation
from sottovoce.privacy.noise import grid_for
from sottovoce.privacy.plan import RunningSum
from sottovoce.privacy.secret import Secret
from sottovoce.privacy.tree import prefix_sums


class Window(Secret):
    """Adds leaves in order and returns noisy prefixes.

    A window cannot be extended, copied or resumed: its noise is correlated over the prefixes, and redrawing it
    would be a second release of the same records. A run that stops early loses nothing; a run that starts again
    needs a new window on unused records.
    """

    __slots__ = ("_leaf", "_plan", "_sums", "_width", "exact_sum", "first_step", "grid")

    def __init__(self, first_step: int, plan: RunningSum, width: int, sigma: float, entropy: Entropy) -> None:
        self.first_step = first_step
        self.grid = grid_for(max(plan.sensitivities))
        self.exact_sum: NDArray[np.int64] = np.zeros(width, dtype=np.int64)
        self._plan = plan
        self._width = width
        self._leaf = -1
        self._sums = prefix_sums(plan.noise, length=plan.length, width=width, scale=sigma / self.grid, entropy=entropy)

    def take(self, leaf: int, width: int, sensitivity: float) -> None:
        """Take a leaf, once, before any data is looked at."""
        if leaf <= self._leaf or width != self._width:
            raise PlanViolation(f"this batch is in its running sum already, or width {width} is not {self._width}.")
        if not 2**10 * self.grid <= sensitivity <= self._plan.sensitivities[leaf]:
            planned = f"leaf {leaf} was planned with {self._plan.sensitivities[leaf]} on a grid of {self.grid}"
            why = f"the sensitivity, bound / block size, is {sensitivity}: too much, or nothing but rounding"
            raise PlanViolation(f"{why}; {planned}. Skip it or plan for it.")
        self._leaf = leaf

    def add(self, sums: NDArray[np.int64], *, noiseless: bool) -> NDArray[np.float64]:
        """The noisy prefix through the leaf that was taken.

        A leaf that nobody asked, or whose answer failed, counts as zero with its noise: every other leaf keeps its
        place, for which the noise was calibrated.
        """
        while self._sums.prefix < self._leaf:
            self._sums.add(np.zeros_like(self.exact_sum))
        noisy = self._sums.add(sums)
        self.exact_sum = self.exact_sum + sums
        return self.exact_sum.astype(np.float64) if noiseless else noisy
