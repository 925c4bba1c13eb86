"""Stand-ins for the objective: the trusted room is tested without any model."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import sottovoce as sv
from sottovoce.inputs import as_records
from sottovoce.privacy.curator import Curator
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import FullBatch, Poisson, Sampler, SinglePass

BUDGET = sv.Budget(epsilon=1.0, delta=1e-5)


@dataclass(frozen=True)
class Ask:
    """A query made of a plain function."""

    function: Callable[[Tensor], Tensor]
    width: int = 1
    name: str = "fake"

    def __call__(self, records: Tensor) -> Tensor:
        return self.function(records)


def itself(width: int = 1) -> Ask:
    """Each record's own values."""
    return Ask(lambda records: records.reshape(len(records), -1)[:, :width].double(), width)


SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "poisson": lambda n: Poisson(rate=0.3, steps=6, records=n),
    "single-pass": lambda n: SinglePass(sizes=(n // 6,) * 6),
    "full-batch": lambda n: FullBatch(steps=6, records=n),
}


def curator(data: Tensor, sampler: Sampler, budget: sv.Budget = BUDGET, **options: object) -> Curator:
    return Curator(as_records(data), Plan((Stage(sampler=sampler),)), budget, **options)  # pyright: ignore[reportArgumentType]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
