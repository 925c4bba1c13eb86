"""Estimates from gradients that the user's function gives: at a point, or in the ball around it (I24, Algorithm 5).

A gradient at z, where the walk puts z at random between two points, is an unbiased estimate that needs no smoothing.
Differences do: f_a's gradient at x is the mean of the gradients in the ball of radius a about x (I24's equation 17
takes the sphere, which is the gradient of another function), and two near points share most of their balls. So the
point w that is drawn in the ball about x serves y too where it lies in y's ball, and else its mirror image in the plane
between x and y does: the maximal coupling. The two gradients then differ with a probability of at most
kappa_d |x - y| / (2 a), and

    E |grad f(w) - grad f(w')|^2 <= 4 L^2 kappa_d |x - y| / (2 a).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sottovoce.objective.bases import points_of_ball
from sottovoce.objective.directions import Key
from sottovoce.objective.function import BlackBox, Floats


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """How a function that gives gradients is asked.

    Attributes:
        box: the gradient, of ``width`` d.
        radius: of the ball; 0 asks at the point itself, which differences cannot.
        draws: points of the ball for each record.
    """

    box: BlackBox
    radius: float = 0.0
    draws: int = 1

    def gradients(self, at: Floats, key: Key) -> SampledGradients:
        """Ask every record for its gradient."""
        return SampledGradients(self, at, key)

    def differences(self, at: Floats, before: Floats, key: Key) -> SampledDifferences:
        """Ask every record how its smoothed gradient differs between two points."""
        return SampledDifferences(self, at, before, key)


@dataclass(frozen=True)
class SampledGradients:
    """The gradient at a point, or its mean over points of the ball, for every record."""

    ask: Sampled
    at: Floats
    key: Key
    name: str = "sampled gradients"

    @property
    def width(self) -> int:
        """One number for each coordinate."""
        return self.ask.box.dimension

    def __call__(self, records: Any) -> Tensor:
        """``[B, d]``."""
        given, numbers = records
        if self.ask.radius == 0:
            points = np.tile(self.at, (len(numbers), 1))  # the function may write into them
            return torch.from_numpy(self.ask.box.values(points, given))
        total = np.zeros((len(numbers), len(self.at)))
        for draw in range(self.ask.draws):
            offsets = self.ask.radius * points_of_ball(len(self.at), self.key, numbers.tolist(), draw)
            total += self.ask.box.values(self.at + offsets, given)
        return torch.from_numpy(total / self.ask.draws)


@dataclass(frozen=True)
class SampledDifferences:
    """The mean difference of gradients at coupled points of the balls about two points, for every record."""

    ask: Sampled
    at: Floats
    before: Floats
    key: Key
    name: str = "differences of sampled gradients"

    @property
    def width(self) -> int:
        """One number for each coordinate."""
        return self.ask.box.dimension

    def __call__(self, records: Any) -> Tensor:
        """``[B, d]``."""
        given, numbers = records
        total = np.zeros((len(numbers), len(self.at)))
        for draw in range(self.ask.draws):
            here = self.at + self.ask.radius * points_of_ball(len(self.at), self.key, numbers.tolist(), draw)
            there = coupled(here, self.at, self.before, self.ask.radius)  # before the function may write into them
            total += self.ask.box.values(here, given) - self.ask.box.values(there, given)
        return torch.from_numpy(total / self.ask.draws)


def coupled(points: Floats, at: Floats, other: Floats, radius: float) -> Floats:
    """Points uniform in the ball about ``other``, equal to those given about ``at`` as often as can be.

    Where a point lies in both balls it stays; else it is mirrored in the plane that bisects the two centres, which maps
    what the first ball has alone to what the second has alone.
    """
    distance = float(np.linalg.norm(at - other))
    if distance == 0:
        return points.copy()
    normal, middle = (at - other) / distance, (at + other) / 2
    outside = np.linalg.norm(points - other, axis=1) > radius
    mirrored = points - 2 * ((points - middle) @ normal)[:, None] * normal
    return np.where(outside[:, None], mirrored, points)
