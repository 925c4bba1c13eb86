"""A quadratic loss, whose slopes are exact at any smoothing, and a batch that answers with the plain mean."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sottovoce.methods import Moment
from sottovoce.objective.directions import Key
from sottovoce.objective.module import ModuleObjective
from sottovoce.public import PublicData


class Point(nn.Module):
    """The parameters are a point."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start.clone())


def half_squares(model: Any, batch: Tensor) -> Tensor:
    """Half the squared distance of the point from each record."""
    return ((model.x - batch) ** 2).sum(dim=1) / 2


class PlainBatch:
    """Answers without clip and noise; notes what it was asked."""

    def __init__(self, records: Tensor) -> None:
        self.records = records
        self.asked: list[tuple[Any, float, float]] = []
        self.skipped = False

    def release(self, query: Any, *, bound: float, share: float = 1.0) -> Tensor:
        self.asked.append((query, bound, share))
        return query(self.records).double().mean(dim=0)

    def skip(self) -> None:
        self.skipped = True


def moment(
    start: Tensor,
    public: Tensor | None = None,
    *,
    seed: int = 0,
    number: int = 0,
    of: int = 1,
    rate: float = 0.1,
    loss: Any = half_squares,
) -> Moment:
    objective = ModuleObjective(Point(start), loss, example=torch.zeros(len(start)))
    data = None if public is None else PublicData(public, objective)
    return Moment(objective=objective, key=Key(seed), number=number, of=of, rate=rate, public_data=data)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
