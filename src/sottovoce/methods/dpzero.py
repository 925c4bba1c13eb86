"""DPZero (Zhang et al. 2023): private zeroth-order descent from clipped two-point slopes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from sottovoce.methods.base import Moment, require_choice, require_counts, require_learning_rate, require_positive
from sottovoce.objective.directions import Kind, draw
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Sampler
from sottovoce.queries import slopes
from sottovoce.update import Along, Estimate


@dataclass(frozen=True, kw_only=True)
class DPZero:
    """DPZero: along public random directions, release the noisy mean of the clipped slopes and descend.

    One step is one Gaussian release of the plan's multiplier, whatever the number of queries: the directions of a
    step share one batch, so the q slopes of a record are one vector, clipped and noised as one.
    The published code draws its noise from the direction's seed, so that whoever knows the seed subtracts it;
    here directions come from a public key and noise from the operating system.

    Args:
        lr: the learning rate. The estimate's length is about sqrt(numel) times the slope's.
        clip: the l2 bound on a record's vector of slopes (``"joint"``), or on each slope (``"per-query"``).
        smoothing: the radius of the two-point difference.
        queries: directions in a step, q.
        directions: ``"sphere"`` of radius sqrt(numel) as in the paper, ``"gaussian"`` as in its code, or
            ``"rademacher"`` signs, which are the cheapest to draw.
        clipping: ``"joint"`` clips the q-vector in l2, which distorts less at equal noise; its natural scale is
            sqrt(q) times larger. ``"per-query"`` is as published: q separate bounds, a vector bound of sqrt(q) clip.
    """

    private: ClassVar[bool] = True

    lr: float
    clip: float = 1.0
    smoothing: float = 1e-3
    queries: int = 1
    directions: Kind = "sphere"
    clipping: Literal["joint", "per-query"] = "joint"

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)
        require_positive(clip=self.clip, smoothing=self.smoothing)
        require_counts(queries=self.queries)
        require_choice("directions", self.directions, ("sphere", "gaussian", "rademacher"))
        require_choice("clipping", self.clipping, ("joint", "per-query"))

    def plan(self, sampler: Sampler) -> Plan:
        """One release a step."""
        return Plan((Stage(sampler=sampler),))

    def check(self, objective: ModuleObjective) -> None:
        """The smoothing must move the parameters in their own precision."""
        objective.check_smoothing(math.sqrt(objective.parameters.numel()), self.smoothing)

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """Release the mean slopes along fresh directions; the estimate is their mean combination."""
        u = draw(self.directions, at.objective.parameters.layout, count=self.queries, key=at.key)
        if self.clipping == "joint":
            answers = batch.release(slopes(at.objective, u, self.smoothing), bound=self.clip)
        else:
            limited = slopes(at.objective, u, self.smoothing, limit=self.clip)
            answers = batch.release(limited, bound=math.sqrt(self.queries) * self.clip)
        return Along(u, answers / self.queries)
