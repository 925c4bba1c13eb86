"""DOPE-SGD: DP-SGD whose clipping is centred at a public gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sottovoce.methods.base import Moment, require_counts, require_learning_rate, require_positive
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Sampler
from sottovoce.queries import gradients_about
from sottovoce.update import Dense, Estimate


@dataclass(frozen=True, kw_only=True)
class DopeSGD:
    """DOPE-SGD: the public gradient plus the noisy mean of the clipped differences of private gradients from it.

    The public gradient is added once, outside the sum: published code adds it once for each record of the realised
    batch, which with a fixed divisor would tell the size of the batch. The privacy is that of DP-SGD.

    Args:
        lr: the learning rate.
        clip: the l2 bound on the difference of a record's gradient from the public one.
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
        """Release the mean difference and add the public gradient."""
        public = at.public.gradient(at.key.fold("public"), self.public_batch)
        differences = batch.release(gradients_about(at.objective, public), bound=self.clip)
        return Dense(public + differences.to(public.device), differences)
