"""The plan of a run: everything it may release, frozen before any data is read.

The noise is calibrated to the plan and the ledger reserves it; the curator refuses a release that is not in
it. One number, the noise multiplier, scales all of a plan's noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.events import Event
from sottovoce.privacy.sampling import Sampler, SinglePass
from sottovoce.privacy.tree import Factorisation, sensitivity


@dataclass(frozen=True, kw_only=True)
class RunningSum:
    """A stream of noisy prefix sums over windows of consecutive single-pass batches.

    Args:
        sensitivities: for each leaf of a window, how much one record can move that leaf's *mean*
            (bound / block size); their number is the window's length.
        noise: the factorisation of the noise.
        share: the part of the batch's budget that the stream takes; the rest is for direct releases.
    """

    sensitivities: tuple[float, ...]
    noise: Factorisation = "toeplitz"
    share: float = 1.0

    def __post_init__(self) -> None:
        if not self.sensitivities or not all(math.isfinite(s) and s > 0 for s in self.sensitivities):
            raise ConfigurationError("a running sum needs a positive, finite sensitivity for every leaf.")

    @property
    def length(self) -> int:
        """Leaves in a window."""
        return len(self.sensitivities)

    def sensitivity(self) -> float:
        """How far one record moves the encoded stream, in l2, at its worst leaf."""
        return sensitivity(self.noise, self.sensitivities)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of steps that all release the same things.

    Args:
        sampler: how the batches are drawn.
        shares: one entry for every direct release on a batch; a release of share s has the noise of
            multiplier / sqrt(s), so that all of them together are one Gaussian of the stage's multiplier.
        running_sum: an optional stream over the stage's batches (single-pass only: a second participation of
            a record would cost far more than the single-participation theorem says).
        relative_noise: this stage's multiplier over the plan's.
    """

    sampler: Sampler
    shares: tuple[float, ...] = (1.0,)
    running_sum: RunningSum | None = None
    relative_noise: float = 1.0

    def __post_init__(self) -> None:
        shares = [*self.shares, *([self.running_sum.share] if self.running_sum else [])]
        if not all(0 < share <= 1 for share in shares) or math.fsum(shares) > 1:
            why = "every share lies in (0, 1], all together at most 1, as a batch's releases are paid for as one"
            raise ConfigurationError(f"shares {shares}: {why}.")
        if not (math.isfinite(self.relative_noise) and self.relative_noise > 0):
            raise ConfigurationError(f"relative_noise={self.relative_noise}: it must be positive and finite.")
        if self.running_sum is not None:
            length, steps = self.running_sum.length, self.sampler.steps
            if not isinstance(self.sampler, SinglePass) or steps % length:
                raise ConfigurationError(f"a running sum needs a SinglePass of whole windows: {length}, not {steps}.")


@dataclass(frozen=True)
class Plan:
    """All stages of a run, in order."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise ConfigurationError("a plan needs at least one stage.")

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return sum(stage.sampler.steps for stage in self.stages)

    def events(self, noise_multiplier: float) -> tuple[Event, ...]:
        """What the run costs at this multiplier."""
        return tuple(stage.sampler.event(noise_multiplier * stage.relative_noise) for stage in self.stages)
