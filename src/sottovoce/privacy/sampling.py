"""Which records a step sees: the sampler and its accounting event are one object.

Membership is drawn from the protective entropy, never from a seeded generator: whoever can replay the draw
knows who was in the batch, and amplification by sampling is gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy.entropy import Entropy
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.events import Event

Indices = NDArray[np.int64]
_CHUNK = 1 << 20  # words drawn at once: bounds the memory of a draw whatever the number of records


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Every record is in every step's batch independently with probability ``rate``.

    A record is in the batch iff its own 64-bit word is below floor(rate * 2^64), so the probability is never
    above the one that is accounted. Empty batches happen and are released like any other.

    Args:
        rate: the sampling probability, in (0, 1].
        steps: the number of batches.
        records: the public number of records that the divisor ``rate * records`` is made from.
    """

    rate: float
    steps: int
    records: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1 or self.records < 1 or self.steps < 1:
            given = f"rate={self.rate}, records={self.records}, steps={self.steps}"
            needed = "the sampling rate, batch_size / records, lies in (0, 1]; at least one record and one step"
            raise ConfigurationError(f"{given}: {needed} are needed.")

    def event(self, noise_multiplier: float) -> Event:
        """One Poisson-subsampled Gaussian a step."""
        return Event(sampling="poisson", rate=self.rate, noise_multiplier=noise_multiplier, steps=self.steps)

    def divisor(self, step: int) -> float:  # the same at every step
        """The expected batch size."""
        return self.rate * self.records

    def largest_expected_batch(self) -> float:
        """Four standard deviations above the mean: one micro-batch is nearly always enough."""
        return min(self.divisor(0) + 4 * math.sqrt(self.divisor(0)), self.records)

    def check(self, records: int) -> None:
        """Any data set will do."""

    def batches(self, records: int, entropy: Entropy) -> Iterator[Indices]:
        """Independent draws; step t depends on its own fork alone, so runs of neighbours can be compared."""
        threshold = math.floor(Fraction(self.rate) * 2**64)
        for step in range(self.steps):
            yield self._draw(records, threshold, entropy.fork("membership", step))

    @staticmethod
    def _draw(records: int, threshold: int, entropy: Entropy) -> Indices:
        if threshold >= 2**64:
            return np.arange(records, dtype=np.int64)
        chosen = [
            start + np.flatnonzero(entropy.words(min(_CHUNK, records - start)) < np.uint64(threshold))
            for start in range(0, records, _CHUNK)
        ]
        return np.concatenate(chosen).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class SinglePass:
    """Disjoint blocks of fixed public sizes: every record is used at most once.

    A run is then one Gaussian of the step's multiplier, exactly, however many steps it has. Which records
    fall into which block is drawn from the protective entropy (a sorted data set trains badly).

    Args:
        sizes: the block of each step; their sum must not exceed the number of records.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if min(self.sizes, default=0) < 1:
            raise ConfigurationError(f"sizes={self.sizes[:5]}...: at least one block, each of at least one record.")

    @property
    def steps(self) -> int:
        """One step a block."""
        return len(self.sizes)

    def event(self, noise_multiplier: float) -> Event:
        """One unsubsampled Gaussian for the whole pass."""
        return Event(sampling="single-pass", noise_multiplier=noise_multiplier, steps=self.steps)

    def divisor(self, step: int) -> float:
        """The size of this step's block."""
        return float(self.sizes[step])

    def largest_expected_batch(self) -> float:
        """The largest block."""
        return float(max(self.sizes))

    def check(self, records: int) -> None:
        """The blocks must fit into the data set."""
        if (needed := sum(self.sizes)) > records:
            asked = f"a single pass of {self.steps} blocks needs {needed} records and the data set has {records}"
            raise ConfigurationError(f"{asked}: take fewer steps or smaller batches; no record may be used twice.")

    def batches(self, records: int, entropy: Entropy) -> Iterator[Indices]:
        """Consecutive blocks of one random permutation."""
        order = np.argsort(entropy.fork("membership").words(records), kind="stable").astype(np.int64)
        start = 0
        for size in self.sizes:
            yield np.sort(order[start : start + size])
            start += size


@dataclass(frozen=True, kw_only=True)
class FullBatch(Poisson):
    """Every record in every step: no sampling, no amplification, the exact Gaussian-DP composition.

    Args:
        steps: the number of steps.
        records: the public number of records, which is the divisor.
    """

    rate: float = field(default=1.0, init=False)

    def event(self, noise_multiplier: float) -> Event:
        """One unsubsampled Gaussian a step."""
        return Event(sampling="full-batch", noise_multiplier=noise_multiplier, steps=self.steps)


Sampler = Poisson | SinglePass
"""A way to draw batches, with the event that accounts for it and the public numbers it fixes."""
