"""GRAD and DIFF: gradients of a smoothed black box, and their differences, from values alone (Z24, section 3).

For smoothing radius a and directions u_1 .. u_m, the rows of whole orthonormal bases,

    GRAD(x)    = (d / m) sum_j c_j u_j,   c_j = (f(x + a u_j) - f(x - a u_j)) / (2 a)
    DIFF(x, y) = (d / m) sum_j e_j u_j,   e_j = c_j(x) - c_j(y), the same u_j at both points

are unbiased for grad f_a(x) and for grad f_a(x) - grad f_a(y), f_a the mean of f over the ball of radius a. With whole
bases |GRAD| <= sqrt(d) L and |DIFF| <= sqrt(d) L |x - y| / a for every f whose c_j lie within +-L, and they are clipped
to that: the papers' d L, for independent directions, is sqrt(d) times larger. Directions that differ between the two
points, as in I24, destroy the cancellation; and I24 draws them in the ball of radius a, which shrinks the estimate by a
hundred at a = 0.1.

Every record has directions of its own, drawn from a public key, the step and the record's public number: they do not
depend on its values, nor on who else was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sottovoce.objective.bases import haar_bases
from sottovoce.objective.directions import Key
from sottovoce.objective.function import BLOCK, BlackBox, Floats
from sottovoce.privacy.trees import Tree, map_leaves


@dataclass(frozen=True, kw_only=True)
class Smoothed:
    """How a black box is asked for gradients.

    Attributes:
        box: the function.
        radius: the smoothing radius a.
        bases: orthonormal bases for each record.
        limit: slopes are cut off at this, the Lipschitz constant or what takes its place.
        project: applied to every point before it is evaluated, onto the bounds; must not lengthen any distance.
    """

    box: BlackBox
    radius: float
    bases: int
    limit: float
    project: Callable[[Floats], Floats] = lambda points: points

    def slopes(self, at: Floats, bases: Tensor, records: Tree) -> Tensor:
        """``[P, d]``: for each pair of a basis ``[P, d, d]`` and a record, the slopes along the basis' rows."""
        pairs, dimension = bases.shape[:2]
        steps = self.radius * bases.numpy()
        points = np.empty((pairs, dimension, 2, dimension))
        np.add(at, steps, out=points[:, :, 0])
        np.subtract(at, steps, out=points[:, :, 1])
        repeated = map_leaves(lambda leaf: leaf.repeat_interleave(2 * dimension, dim=0), records)
        values = self.box.values(self.project(points.reshape(-1, dimension)), repeated).reshape(pairs, dimension, 2)
        with np.errstate(all="ignore"):
            found = torch.from_numpy((values[..., 0] - values[..., 1]) / (2 * self.radius))
        found = torch.where(torch.isfinite(found), found, torch.nan)  # a record with such a slope counts as zero
        return found.clamp(-self.limit, self.limit)

    def over_bases(self, key: Key, batch: Any, row: Callable[[Tensor, Tree], Tensor]) -> Tensor:
        """The mean over each record's bases of ``row(bases, records)``, ``[B, d]``; so many pairs in one call.

        A batch is a pair of records and their numbers. Pairs are cut in the same places whatever the records hold.
        """
        records, numbers = batch
        dimension, count = self.box.dimension, len(numbers)
        at_once = max(1, BLOCK // (2 * dimension))
        total = torch.zeros(count, dimension, dtype=torch.float64)
        known = numbers.tolist()
        for basis in range(self.bases):
            for first in range(0, count, at_once):
                part = slice(first, min(count, first + at_once))
                bases = haar_bases(dimension, key, known[part], basis)
                total[part] += row(bases, map_leaves(lambda leaf, part=part: leaf[part], records))
        return total / self.bases

    def gradients(self, at: Floats, key: Key) -> SmoothedGradients:
        """Ask every record for GRAD at this point."""
        return SmoothedGradients(self, at, key)

    def differences(self, at: Floats, before: Floats, key: Key) -> SmoothedDifferences:
        """Ask every record for DIFF between two points."""
        return SmoothedDifferences(self, at, before, key)


@dataclass(frozen=True)
class SmoothedGradients:
    """GRAD at a point, for every record."""

    ask: Smoothed
    at: Floats
    key: Key
    name: str = "smoothed gradients"

    @property
    def width(self) -> int:
        """One number for each coordinate."""
        return self.ask.box.dimension

    def __call__(self, records: Any) -> Tensor:
        """``[B, d]``."""

        def row(bases: Tensor, part: Tree) -> Tensor:
            slopes = self.ask.slopes(self.at, bases, part)
            return torch.einsum("pj,pjd->pd", slopes, bases)  # d / m = 1 for a whole basis

        return self.ask.over_bases(self.key, records, row)


@dataclass(frozen=True)
class SmoothedDifferences:
    """DIFF between two points, for every record: GRAD at both, along the same directions."""

    ask: Smoothed
    at: Floats
    before: Floats
    key: Key
    name: str = "differences of smoothed gradients"

    @property
    def width(self) -> int:
        """One number for each coordinate."""
        return self.ask.box.dimension

    def __call__(self, records: Any) -> Tensor:
        """``[B, d]``; each e_j is cut off at limit |x - y| / radius."""
        most = self.ask.limit * float(np.linalg.norm(self.at - self.before)) / self.ask.radius

        def row(bases: Tensor, part: Tree) -> Tensor:
            here = self.ask.slopes(self.at, bases, part)
            there = self.ask.slopes(self.before, bases, part)
            return torch.einsum("pj,pjd->pd", (here - there).clamp(-most, most), bases)

        return self.ask.over_bases(self.key, records, row)
