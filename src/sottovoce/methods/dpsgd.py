"""DP-SGD (Abadi et al. 2016): private stochastic gradient descent from clipped per-example gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sottovoce.methods.base import Moment, require_learning_rate, require_positive
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Sampler
from sottovoce.queries import gradients
from sottovoce.update import Dense, Estimate


@dataclass(frozen=True, kw_only=True)
class DPSGD:
    """DP-SGD: release the noisy mean of the clipped per-example gradients and descend.

    One step is one Gaussian release of the plan's multiplier; the divisor is the public expected batch size.

    Args:
        lr: the learning rate.
        clip: the l2 bound on a record's gradient.
    """

    private: ClassVar[bool] = True

    lr: float
    clip: float = 1.0

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)
        require_positive(clip=self.clip)

    def plan(self, sampler: Sampler) -> Plan:
        """One release a step."""
        return Plan((Stage(sampler=sampler),))

    def check(self, objective: ModuleObjective) -> None:
        """Any differentiable model will do; the rehearsal finds one that is not."""

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """Release the mean gradient."""
        return Dense(batch.release(gradients(at.objective), bound=self.clip))
