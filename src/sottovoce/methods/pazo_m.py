"""PAZO-M (Gong and Li 2025, Algorithm 1): a public gradient mixed with private slopes along random directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sottovoce.methods.base import Moment, require_counts, require_learning_rate, require_positive, require_share
from sottovoce.objective.directions import sphere
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Sampler
from sottovoce.queries import slopes
from sottovoce.update import AlongAnd, Estimate


@dataclass(frozen=True, kw_only=True)
class PazoM:
    """PAZO-M: ``mix * public gradient + (1 - mix) * zeroth-order estimate``, the latter as long as a gradient.

    Directions lie on the sphere of radius numel^(1/4), where the estimate's root mean square length is that of the
    gradient; its mean is then the gradient divided by sqrt(numel).

    One step is one Gaussian release of the plan's multiplier, whatever the number of queries: a record's slopes are
    one vector, clipped and noised as one. The public gradient costs nothing.

    Args:
        lr: the learning rate.
        mix: the weight of the public gradient, in [0, 1].
        clip: the l2 bound on a record's vector of slopes; its natural scale grows with sqrt(queries).
        smoothing: the radius of the two-point difference.
        queries: directions in a step.
        public_batch: public records in a step.
    """

    private: ClassVar[bool] = True

    lr: float
    mix: float = 0.5
    clip: float = 1.0
    smoothing: float = 1e-2
    queries: int = 1
    public_batch: int = 32

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)
        require_share("mix", self.mix)
        require_positive(clip=self.clip, smoothing=self.smoothing)
        require_counts(queries=self.queries, public_batch=self.public_batch)

    def plan(self, sampler: Sampler) -> Plan:
        """One release a step."""
        return Plan((Stage(sampler=sampler),))

    def check(self, objective: ModuleObjective) -> None:
        """The smoothing must move the parameters in their own precision."""
        objective.check_smoothing(objective.parameters.numel() ** 0.25, self.smoothing)

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """Release the mean slopes and mix."""
        layout = at.objective.parameters.layout
        u = sphere(layout, radius=layout.numel**0.25, count=self.queries, key=at.key)
        answers = batch.release(slopes(at.objective, u, self.smoothing), bound=self.clip)
        public = at.public.gradient(at.key.fold("public"), self.public_batch)
        return AlongAnd(u, (1 - self.mix) * answers / self.queries, self.mix * public)
