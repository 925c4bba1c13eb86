"""GEP (Yu et al. 2021): gradients split into their part in a public subspace and the rest, each with its own clip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sottovoce.methods.base import Moment, require_counts, require_learning_rate, require_positive
from sottovoce.objective.directions import Key
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Sampler
from sottovoce.update import Dense, Estimate


@dataclass(frozen=True, kw_only=True)
class GEP:
    """GEP: ``L e + r``, where e is a gradient's embedding in a basis L of public gradients and r what is left of it.

    Both parts come from one batch, so they are one Gaussian release: with sigma_e and sigma_r the multipliers of
    the parts, 1 / sigma^2 = 1 / sigma_e^2 + 1 / sigma_r^2 (published code doubles the Renyi divergence of one
    subsampled part, which is not a bound). It is written as the joint release of the row
    [e / clip, r / residual_clip] / sqrt(2), of length at most 1, which gives both parts sigma sqrt(2) clips.

    Args:
        lr: the learning rate.
        clip: the l2 bound on a record's embedding.
        residual_clip: the l2 bound on the rest of its gradient.
        bases: columns of L in all, at most the public batch; shared among the groups by the root of their sizes.
        groups: contiguous parts of the parameters, each with a basis of its own.
        power_iterations: rounds of the power method that finds a basis.
        public_batch: public records whose gradients the basis is made from.
    """

    private: ClassVar[bool] = True

    lr: float
    clip: float = 5.0
    residual_clip: float = 1.0
    bases: int = 32
    groups: int = 3
    power_iterations: int = 1
    public_batch: int = 32

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)
        require_positive(clip=self.clip, residual_clip=self.residual_clip)
        require_counts(bases=self.bases, groups=self.groups, public_batch=self.public_batch)
        require_counts(power_iterations=self.power_iterations)
        if not self.groups <= self.bases <= self.public_batch:
            raise ConfigurationError(
                f"bases={self.bases}, groups={self.groups}, public_batch={self.public_batch}: at least one column for "
                "each group, and no more columns than public gradients."
            )

    def plan(self, sampler: Sampler) -> Plan:
        """One joint release a step."""
        return Plan((Stage(sampler=sampler),))

    def check(self, objective: ModuleObjective) -> None:
        """A basis cannot have more columns than its group has parameters."""
        numel = objective.parameters.numel()
        if self.bases > numel or self.groups > numel:
            raise ConfigurationError(f"bases={self.bases} and the model has {numel} parameters: take fewer.")

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """Release embedding and residual, and put the gradient together again."""
        anchors = at.public.gradients(at.key.fold("public"), self.public_batch)
        basis = Basis.of(anchors, self, at.key.fold("basis"))
        released = math.sqrt(2) * batch.release(_Split(at.objective, basis, self.clip, self.residual_clip), bound=1.0)
        parts = released.to(anchors.device, anchors.dtype)
        embedding, residual = parts[: basis.width] * self.clip, parts[basis.width :] * self.residual_clip
        return Dense(basis.decode(embedding) + residual, released)


@dataclass(frozen=True)
class Basis:
    """Orthonormal columns for each of several contiguous parts of the parameters."""

    parts: tuple[Tensor, ...]

    @classmethod
    def of(cls, anchors: Tensor, method: GEP, key: Key) -> Basis:
        """The leading directions of the anchors' parts, by the power method."""
        sizes = [len(part) for part in torch.arange(anchors.shape[1]).tensor_split(method.groups)]
        roots = [math.sqrt(size) for size in sizes]
        counts = [max(1, min(size, int(method.bases * r / sum(roots)))) for size, r in zip(sizes, roots, strict=True)]
        parts: list[Tensor] = []
        for group, (part, count) in enumerate(zip(anchors.split(sizes, dim=1), counts, strict=True)):
            drawn = key.fold(group).generator().standard_normal((part.shape[1], count))
            columns = torch.as_tensor(drawn, dtype=part.dtype, device=part.device)
            for _ in range(method.power_iterations):
                columns = torch.linalg.qr(part.T @ (part @ columns))[0]
            parts.append(columns)
        return cls(tuple(parts))

    @property
    def width(self) -> int:
        """Columns in all."""
        return sum(part.shape[1] for part in self.parts)

    @property
    def numel(self) -> int:
        """The number of parameters."""
        return sum(part.shape[0] for part in self.parts)

    def encode(self, rows: Tensor) -> Tensor:
        """``[B, width]``: the coordinates of ``[B, d]`` rows."""
        split = rows.split([part.shape[0] for part in self.parts], dim=-1)
        return torch.cat([own @ part for own, part in zip(split, self.parts, strict=True)], dim=-1)

    def decode(self, coordinates: Tensor) -> Tensor:
        """The rows with these coordinates."""
        split = coordinates.split([part.shape[1] for part in self.parts], dim=-1)
        return torch.cat([own @ part.T for own, part in zip(split, self.parts, strict=True)], dim=-1)


@dataclass(frozen=True)
class _Split:
    """Every record's clipped embedding and clipped residual, side by side, of length at most 1."""

    objective: ModuleObjective
    basis: Basis
    clip: float
    residual_clip: float
    name: str = "embedding and residual"

    @property
    def width(self) -> int:
        return self.basis.width + self.basis.numel

    def __call__(self, records: Any) -> Tensor:
        """``[B, k + d]``."""
        rows = self.objective.gradients(records)
        embedding = self.basis.encode(rows)
        residual = rows - self.basis.decode(embedding)
        return torch.cat([_limited(embedding, self.clip), _limited(residual, self.residual_clip)], dim=1)


def _limited(rows: Tensor, clip: float) -> Tensor:
    """Rows clipped to ``clip`` and divided by sqrt(2) clip."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / (math.sqrt(2) * torch.clamp(norms, min=clip))
