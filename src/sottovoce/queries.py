"""The questions that methods ask of a batch: one row of numbers for each record, from that record alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sottovoce.objective.directions import Directions
from sottovoce.objective.module import ModuleObjective


@dataclass(frozen=True)
class Losses:
    """Every record's loss at the current point."""

    objective: ModuleObjective
    name: str = "losses"
    width: int = 1

    def __call__(self, records: Any) -> Tensor:
        """``[B, 1]``."""
        return self.objective.losses(records)[:, None]


@dataclass(frozen=True)
class Slopes:
    """Every record's two-point slope along each of several public directions."""

    objective: ModuleObjective
    directions: Directions
    smoothing: float
    limit: float | None = None
    name: str = "slopes"

    @property
    def width(self) -> int:
        """One slope for each direction."""
        return self.directions.count

    def __call__(self, records: Any) -> Tensor:
        """``[B, q]``: (f(x + smoothing u) - f(x - smoothing u)) / (2 smoothing), each within +-limit."""
        columns: list[Tensor] = []
        for query in range(self.directions.count):
            ahead = self.objective.losses_along(records, self.directions, query, self.smoothing)
            behind = self.objective.losses_along(records, self.directions, query, -self.smoothing)
            columns.append((ahead - behind) / (2 * self.smoothing))
        slopes = torch.stack(columns, dim=1)
        return slopes if self.limit is None else slopes.clamp(-self.limit, self.limit)


@dataclass(frozen=True)
class Gradients:
    """Every record's gradient."""

    objective: ModuleObjective
    name: str = "gradients"

    @property
    def width(self) -> int:
        """One number for each trainable parameter."""
        return self.objective.parameters.numel()

    def __call__(self, records: Any) -> Tensor:
        """``[B, d]``."""
        return self.objective.gradients(records)


@dataclass(frozen=True)
class LossesAlong:
    """Every record's loss at x + scale * u for each of several public directions u, within [0, limit]."""

    objective: ModuleObjective
    directions: Directions
    scale: float
    limit: float
    name: str = "losses along"

    @property
    def width(self) -> int:
        """One loss for each direction."""
        return self.directions.count

    def __call__(self, records: Any) -> Tensor:
        """``[B, k]``, each within [0, limit].

        A loss that is not a number is the worst, ``limit``, as zero would be the best; a record of which no loss is a
        number counts as zero.
        """
        columns = [
            self.objective.losses_along(records, self.directions, query, self.scale)
            for query in range(self.directions.count)
        ]
        values = torch.stack(columns, dim=1)
        within = values.nan_to_num(nan=self.limit).clamp(0.0, self.limit)
        return within.masked_fill(values.isnan().all(dim=1, keepdim=True), torch.nan)


@dataclass(frozen=True)
class GradientsAbout:
    """Every record's gradient less a public vector."""

    objective: ModuleObjective
    centre: Tensor
    name: str = "gradients about a public one"

    @property
    def width(self) -> int:
        """One number for each trainable parameter."""
        return self.objective.parameters.numel()

    def __call__(self, records: Any) -> Tensor:
        """``[B, d]``."""
        rows = self.objective.gradients(records)
        return rows - self.centre.to(rows.device, rows.dtype)


def losses_along(objective: ModuleObjective, directions: Directions, scale: float, *, limit: float) -> LossesAlong:
    """Ask for the loss at x + scale * u, for each direction u, cut off below at 0 and above at ``limit``."""
    return LossesAlong(objective, directions, scale, limit)


def gradients_about(objective: ModuleObjective, centre: Tensor) -> GradientsAbout:
    """Ask for the gradient less ``centre``, which is public."""
    return GradientsAbout(objective, centre)


def losses(objective: ModuleObjective) -> Losses:
    """Ask for the loss at the current point."""
    return Losses(objective)


def slopes(
    objective: ModuleObjective, directions: Directions, smoothing: float, *, limit: float | None = None
) -> Slopes:
    """Ask for the slope along each direction, at this smoothing radius, each cut off at ``limit`` if given."""
    return Slopes(objective, directions, smoothing, limit)


def gradients(objective: ModuleObjective) -> Gradients:
    """Ask for the gradient."""
    return Gradients(objective)
