"""O2NC: from online learning to stationary points of nonsmooth, nonconvex functions (Z24, Algorithm 3, corrected).

    for each of K windows: Delta = 0
      for each of M steps: s ~ U[0, 1];  z = x + s Delta;  x = x + Delta
                           Delta = clip_D(Delta - eta * estimate(z))
      the window's average: the mean of its M points z
    return the average of a window chosen uniformly

With D = 2 r / (M + 1) every point of a window lies within r of its average, so that the mean of the gradients at the
points bounds the Goldstein gradient there, and |z_t - z_{t-1}| <= 2 D, across the border of windows too. I24 does not
start Delta anew (its regret is then 5/2 of what is claimed); both papers take D = r / M, half as large.

Everything here is post-processing of what the oracle released.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sottovoce.methods.oracles import Floats, Oracle, Place
from sottovoce.objective.directions import Key
from sottovoce.privacy.curator import Batch


@dataclass(frozen=True, kw_only=True)
class Walked:
    """One step that was taken. All of it is released or public.

    Attributes:
        number: the step, from 1.
        of: how many steps there are.
        point: z, where the estimate was made.
        estimate: the noisy gradient.
        average: the average of the window that this step ended; else None.
    """

    number: int
    of: int
    point: Floats
    estimate: Tensor
    average: Floats | None


@dataclass(frozen=True, kw_only=True)
class O2NC:
    """The walk.

    Args:
        windows: K.
        window_length: M.
        radius: of a window: all of its points lie this near to their average.
        length: an upper bound on the root mean square of an estimate's norm, G1: eta = D / (G1 sqrt(M)).
    """

    windows: int
    window_length: int
    radius: float
    length: float

    @property
    def steps(self) -> int:
        """K M."""
        return self.windows * self.window_length

    @property
    def longest_step(self) -> float:
        """D."""
        return 2 * self.radius / (self.window_length + 1)

    @property
    def rate(self) -> float:
        """eta."""
        return self.longest_step / (self.length * math.sqrt(self.window_length))

    def walk(self, start: Floats, oracle: Oracle, batches: Iterator[Batch], key: Key) -> Generator[Walked]:
        """The steps, one by one; whoever stops early has the windows that were finished."""
        x, before = start.astype(np.float64), start.astype(np.float64)
        last: Tensor | None = None
        delta, points = np.zeros_like(x), np.zeros_like(x)
        for number in range(self.steps):
            within = number % self.window_length
            if within == 0:
                delta, points = np.zeros_like(x), np.zeros_like(x)
            here = key.fold(number)
            z = x + here.fold("between").generator().random() * delta
            x = x + delta
            place = Place(number=number, at=z, before=before, estimate=last, key=here.fold("directions"))
            last = oracle.estimate(next(batches), place)
            delta = self._shortened(delta - self.rate * last.numpy())
            before, points = z, points + z
            ended = within == self.window_length - 1
            yield Walked(
                number=number + 1, of=self.steps, point=z.copy(), estimate=last.clone(),
                average=points / self.window_length if ended else None,
            )  # fmt: skip

    def _shortened(self, delta: Floats) -> Floats:
        norm = float(np.linalg.norm(delta))
        return delta if norm <= self.longest_step else delta * (self.longest_step / norm)
