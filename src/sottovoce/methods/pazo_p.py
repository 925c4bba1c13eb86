"""PAZO-P (Gong and Li 2025, Algorithm 2): private slopes along directions in the span of public gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from sottovoce.methods.base import Moment, require_choice, require_counts, require_learning_rate, require_positive
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.subspace import within
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Sampler
from sottovoce.queries import slopes
from sottovoce.update import Along, Dense, Estimate


@dataclass(frozen=True, kw_only=True)
class PazoP:
    """PAZO-P: the directions are ``G u``, G from k public gradients, u uniform on the sphere of radius sqrt(k).

    With an orthonormal G the estimate's mean is the gradient's projection on the span. The rank falls where public
    gradients are zero or collinear; if they span nothing, the batch is not asked and the step does not move.

    One step is one Gaussian release of the plan's multiplier, whatever k and the number of queries.

    Args:
        lr: the learning rate.
        subspace: public gradients in a step, k.
        basis: ``"orthonormal"``, or ``"normalised"`` for gradients that are merely scaled to length 1.
        clip: the l2 bound on a record's vector of slopes; its natural scale grows with sqrt(queries).
        smoothing: the radius of the two-point difference.
        queries: directions in a step.
        public_batch: public records in each of the k gradients.
    """

    private: ClassVar[bool] = True

    lr: float
    subspace: int = 6
    basis: Literal["orthonormal", "normalised"] = "orthonormal"
    clip: float = 1.0
    smoothing: float = 1e-2
    queries: int = 1
    public_batch: int = 16

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)
        require_choice("basis", self.basis, ("orthonormal", "normalised"))
        require_positive(clip=self.clip, smoothing=self.smoothing)
        require_counts(subspace=self.subspace, queries=self.queries, public_batch=self.public_batch)

    def plan(self, sampler: Sampler) -> Plan:
        """One release a step."""
        return Plan((Stage(sampler=sampler),))

    def check(self, objective: ModuleObjective) -> None:
        """There cannot be more directions than dimensions, and the smoothing must move the parameters."""
        numel = objective.parameters.numel()
        if self.subspace > numel:
            raise ConfigurationError(f"subspace={self.subspace} and the model has {numel} parameters: take fewer.")
        objective.check_smoothing(self.subspace**0.5, self.smoothing)

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """Release the mean slopes along directions in the public span."""
        objective = at.objective
        gradients = torch.stack(
            [at.public.gradient(at.key.fold("public", j), self.public_batch) for j in range(self.subspace)]
        )
        u = within(
            objective.parameters.layout,
            gradients,
            count=self.queries,
            key=at.key,
            orthonormalise=self.basis == "orthonormal",
        )
        if u is None:
            batch.skip()
            return Dense(torch.zeros_like(gradients[0]), torch.zeros(self.queries, dtype=torch.float64))
        answers = batch.release(slopes(objective, u, self.smoothing), bound=self.clip)
        return Along(u, answers / self.queries)
