"""The oracles of O2NC: how the gradient at a point is estimated from batches of private records, with noise.

Each is a frozen plan (which batches, which releases) and one question at each step. All state that they carry from step
to step is public (the last estimate) or lives inside the curator (running sums).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.objective.directions import Key
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.evaluation import Query
from sottovoce.privacy.plan import Plan, RunningSum, Stage
from sottovoce.privacy.sampling import FullBatch, SinglePass
from sottovoce.privacy.tree import Factorisation

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the walk is: all of it is public.

    Attributes:
        number: the step, from 0.
        at: the point z of this step.
        before: the point of the step before; the same point at the first step.
        estimate: the estimate of the step before; None at the first step.
        key: the public randomness of this step.
    """

    number: int
    at: Floats
    before: Floats
    estimate: Tensor | None
    key: Key


class Questions(Protocol):
    """What a record can be asked: for a gradient, and how the gradient differs between two points."""

    def gradients(self, at: Floats, key: Key) -> Query:
        """``[B, d]``: of every record, at this point."""
        ...

    def differences(self, at: Floats, before: Floats, key: Key) -> Query:
        """``[B, d]``: the gradient at one point less that at another, from the same randomness."""
        ...


class Oracle(Protocol):
    """An estimate of the gradient at each step."""

    def plan(self) -> Plan:
        """Everything that a run will release."""
        ...

    def estimate(self, batch: Batch, place: Place) -> Tensor:
        """The noisy estimate at ``place.at``: ``[d]``, float64."""
        ...


@dataclass(frozen=True, kw_only=True)
class FreshSinglePass:
    """A fresh clipped estimate from unused records at every step (Z24, Algorithm 6; ALGORITHMS N).

    Every record takes part in one release of sensitivity clip / batch: the whole run is one Gaussian. The noise is new
    at every step, so that nothing of it accumulates.
    """

    questions: Questions
    steps: int
    batch: int
    clip: float

    def plan(self) -> Plan:
        """One release on each block."""
        return Plan((Stage(sampler=SinglePass(sizes=(self.batch,) * self.steps)),))

    def estimate(self, batch: Batch, place: Place) -> Tensor:
        """The noisy mean of the block's clipped gradients."""
        return batch.release(self.questions.gradients(place.at, place.key), bound=self.clip)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A fresh estimate, then differences, under a running sum (Z24, Algorithm 4; I24, Algorithm 3).

    At local step 1 of every period the sum starts anew with a block of fresh gradients at ``clip``; after that, a block
    of differences adds to it. Every record is in one block, hence in one leaf of one running sum.

    As printed, I24's NODE is empty (no noise at all), or once that is mended lets the last increment of every period
    out exactly; a period of one step has no noise either. Here the factorisation's exact column norms rule.
    """

    questions: Questions
    steps: int
    period: int
    batch: int
    difference_batch: int
    clip: float
    difference_clip: float
    noise: Factorisation = "toeplitz"

    def plan(self) -> Plan:
        """Whole periods: where the walk ends inside the last one, the rest of its blocks is set aside and not asked."""
        periods = math.ceil(self.steps / self.period)
        later = self.period - 1
        fresh, difference = self.clip / self.batch, self.difference_clip / self.difference_batch
        if later and not 2**-13 < difference / fresh < 2**13:
            raise ConfigurationError(
                f"a fresh estimate moves by {fresh:g} and a difference by {difference:g}: on one grid the "
                "smaller would be nothing but rounding. Take batches that bring them nearer to each other."
            )
        sums = RunningSum(
            sensitivities=(fresh, *[difference] * later),
            noise=self.noise,
        )
        sizes = (self.batch, *[self.difference_batch] * later) * periods
        return Plan((Stage(sampler=SinglePass(sizes=sizes), shares=(), running_sum=sums),))

    def estimate(self, batch: Batch, place: Place) -> Tensor:
        """The noisy prefix of this period's sum."""
        if place.number % self.period == 0:
            return batch.running_sum(self.questions.gradients(place.at, place.key), bound=self.clip)
        asked = self.questions.differences(place.at, place.before, place.key)
        return batch.running_sum(asked, bound=self.difference_clip)


@dataclass(frozen=True, kw_only=True)
class FreshMultiPass:
    """A fresh clipped estimate from all records at every step (derived: I24's Algorithm 4 without variance reduction).

    For full participation independent noise is best: a running sum over T steps would have T times the sensitivity.
    """

    questions: Questions
    steps: int
    records: int
    clip: float

    def plan(self) -> Plan:
        """One release of the whole data set at each step."""
        return Plan((Stage(sampler=FullBatch(steps=self.steps, records=self.records)),))

    def estimate(self, batch: Batch, place: Place) -> Tensor:
        """The noisy mean of all clipped gradients."""
        return batch.release(self.questions.gradients(place.at, place.key), bound=self.clip)


@dataclass(frozen=True, kw_only=True)
class MultiPassDifferences:
    """A fresh estimate from all records, then differences added to the last *released* estimate (I24, Algorithm 4).

    Noise accumulates over a period, s1^2 + (tau - 1) s2^2 in every coordinate. To start again from a noiseless sum with
    fresh noise, as one may read the print, would be another release that nothing pays for.
    """

    questions: Questions
    steps: int
    period: int
    records: int
    clip: float
    difference_clip: float

    def plan(self) -> Plan:
        """Fresh steps and differences take turns; the noise is split as minimises that at a period's end."""
        fresh = math.ceil(self.steps / self.period)
        stages: list[Stage] = []
        for period in range(fresh):
            stages.append(Stage(sampler=FullBatch(steps=1, records=self.records)))
            later = min(self.period, self.steps - period * self.period) - 1
            if later:
                sampler = FullBatch(steps=later, records=self.records)
                stages.append(Stage(sampler=sampler, relative_noise=self.relative_noise()))
        return Plan(tuple(stages))

    def relative_noise(self) -> float:
        """The multiplier of a difference over that of a fresh estimate: minimises s1^2 + (S - 1) s2^2 at given mu."""
        fresh = math.ceil(self.steps / self.period)
        per = math.sqrt((self.steps - fresh) / max(1, self.period - 1))
        return math.sqrt(self.clip * per / (self.difference_clip * math.sqrt(fresh)))

    def estimate(self, batch: Batch, place: Place) -> Tensor:
        """The noisy mean; or the last estimate, which was released, plus the noisy mean difference."""
        if place.number % self.period == 0 or place.estimate is None:
            return batch.release(self.questions.gradients(place.at, place.key), bound=self.clip)
        asked = self.questions.differences(place.at, place.before, place.key)
        return place.estimate + batch.release(asked, bound=self.difference_clip)
