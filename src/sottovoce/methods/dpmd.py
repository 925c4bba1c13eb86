"""DPMD in its first-order form (Amid et al. 2022): DP-SGD whose weight passes to a public gradient over the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from sottovoce.methods.base import Moment, require_counts, require_learning_rate, require_positive
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Sampler
from sottovoce.queries import gradients
from sottovoce.update import Dense, Estimate


@dataclass(frozen=True, kw_only=True)
class DPMD:
    """DPMD: ``a * private gradient + (1 - a) * public gradient`` with a = cos(pi t / 2 T) at step t of T.

    The private gradient is that of DP-SGD, and so is the privacy; the public part is post-processing.

    Args:
        lr: the learning rate.
        clip: the l2 bound on a record's gradient.
        public_batch: public records in a step.
    """

    private: ClassVar[bool] = True

    lr: float
    clip: float = 1.0
    public_batch: int = 32

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)
        require_positive(clip=self.clip)
        require_counts(public_batch=self.public_batch)

    def plan(self, sampler: Sampler) -> Plan:
        """One release a step."""
        return Plan((Stage(sampler=sampler),))

    def check(self, objective: ModuleObjective) -> None:
        """Any differentiable model will do; the rehearsal finds one that is not."""

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """Release the mean gradient and mix."""
        weight = math.cos(math.pi * at.number / (2 * at.of))
        private = batch.release(gradients(at.objective), bound=self.clip)
        public = at.public.gradient(at.key.fold("public"), self.public_batch)
        return Dense(weight * private.to(public.device) + (1 - weight) * public, private)
