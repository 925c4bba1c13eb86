"""PAZO-S (Gong and Li 2025, Algorithm 3): private records choose among public gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from sottovoce.methods.base import Moment, require_counts, require_learning_rate, require_positive
from sottovoce.objective.directions import gaussian, held
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Sampler
from sottovoce.queries import losses_along
from sottovoce.update import Dense, Estimate


@dataclass(frozen=True, kw_only=True)
class PazoS:
    """PAZO-S: release the noisy losses after a step along each of k public gradients, and take the best.

    One more candidate, the best one plus public Gaussian noise, is asked after the k, of the same batch. Losses are
    cut off to [0, clip], so that a record's k losses and its last one have l2 norm at most sqrt(k + 1) clip together:
    one step is one Gaussian release of the plan's multiplier whatever k is, and each loss has noise of
    sqrt(k + 1) clip. A loss that is not a number counts as the worst, clip, or such a candidate would be preferred; a
    record of which none is a number counts as zero.

    Args:
        lr: the learning rate, of the candidates too.
        candidates: public gradients in a step, k.
        clip: the largest loss that counts.
        explore: the standard deviation of the noise in each coordinate of the last candidate; with 0 there is none, and
            the k losses have noise of sqrt(k) clip.
        public_batch: public records in each gradient.
    """

    private: ClassVar[bool] = True

    lr: float
    candidates: int = 3
    clip: float = 1.0
    explore: float = 1e-3
    public_batch: int = 32

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)
        require_positive(clip=self.clip)
        if self.explore != 0:
            require_positive(explore=self.explore)
        require_counts(candidates=self.candidates, public_batch=self.public_batch)

    def plan(self, sampler: Sampler) -> Plan:
        """Two releases a step: the candidates' losses, then that of the last one, where there is one."""
        return Plan((Stage(sampler=sampler, shares=self._shares()),))

    def _shares(self) -> tuple[float, ...]:
        first = self.candidates / (self.candidates + 1)
        return (first, 1 - first) if self.explore else (1.0,)

    def check(self, objective: ModuleObjective) -> None:
        """Any model with a gradient on public records will do."""

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """Release the candidates' losses and step along the best."""
        k, layout = self.candidates, at.objective.parameters.layout
        gradients = torch.stack([at.public.gradient(at.key.fold("public", j), self.public_batch) for j in range(k)])
        first, *last = self._shares()
        ask = losses_along(at.objective, held(layout, gradients), -at.rate, limit=self.clip)
        losses = batch.release(ask, bound=k**0.5 * self.clip, share=first)
        best = gradients[int(losses.argmin())]
        if not last:
            return Dense(best, losses)
        noise = gaussian(layout, count=1, key=at.key.fold("explore"), scale=self.explore).vector(0)
        extra = best + noise.to(best.device)
        ask = losses_along(at.objective, held(layout, extra[None]), -at.rate, limit=self.clip)
        answers = torch.cat([losses, batch.release(ask, bound=self.clip, share=last[0])])
        return Dense(extra if int(answers.argmin()) == k else best, answers)
