"""One window of a running sum: the exact prefix and its correlated noise, neither of which ever leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy.entropy import Entropy
from sottovoce.privacy.errors import PlanViolation
from sottovoce.privacy.noise import grid_for
from sottovoce.privacy.plan import RunningSum
from sottovoce.privacy.secret import Secret
from sottovoce.privacy.tree import prefix_noise


class Window(Secret):
    """Adds leaves in order and returns noisy prefixes.

    A window cannot be extended, copied or resumed: its noise is correlated over the prefixes, and redrawing it
    would be a second release of the same records. A run that stops early loses nothing; a run that starts again
    needs a new window on unused records.
    """

    __slots__ = ("_leaf", "_noise", "_plan", "_width", "exact_sum", "first_step", "grid")

    def __init__(self, *, first_step: int, plan: RunningSum, width: int, sigma: float, entropy: Entropy) -> None:
        self.first_step = first_step
        self.grid = grid_for(max(plan.sensitivities))
        self.exact_sum: NDArray[np.int64] = np.zeros(width, dtype=np.int64)
        self._plan = plan
        self._width = width
        self._leaf = -1
        self._noise = prefix_noise(
            plan.noise, length=plan.length, width=width, scale=sigma / self.grid, entropy=entropy
        )

    def check(self, leaf: int, width: int, sensitivity: float) -> None:
        """Refuse what the plan does not allow, before any data is looked at."""
        if leaf <= self._leaf or width != self._width:
            raise PlanViolation(f"this batch is in its running sum already, or width {width} is not {self._width}.")
        if sensitivity > self._plan.sensitivities[leaf]:
            raise PlanViolation(
                f"leaf {leaf} was planned with sensitivity {self._plan.sensitivities[leaf]} and its bound over its "
                f"block size is {sensitivity}: lower the bound or plan for it; the data was not looked at."
            )

    def add(self, leaf: int, sums: NDArray[np.int64], *, noiseless: bool) -> NDArray[np.int64]:
        """The noisy prefix through ``leaf``; leaves that were skipped count as zero and have their noise too."""
        self.exact_sum = self.exact_sum + sums
        noise = self._noise.next()
        for _ in range(leaf - self._leaf - 1):
            noise = self._noise.next()
        self._leaf = leaf
        return self.exact_sum if noiseless else self.exact_sum + noise
