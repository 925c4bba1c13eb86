"""Small runs that the guarantee tests replay: a tiny model on synthetic records, fast and reproducible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import sottovoce as sv

RECORDS = 48
METHODS = {
    "DPZero": sv.DPZero(lr=0.01, clip=1.0, queries=3),
    "DPZero-per-query": sv.DPZero(lr=0.01, clip=0.5, queries=3, clipping="per-query"),
    "DPSGD": sv.DPSGD(lr=0.5, clip=1.0),
}
SAMPLING: dict[str, dict[str, Any]] = {
    "poisson": {"sampling": "poisson", "batch_size": 12, "steps": 16},
    "single-pass": {"sampling": "single-pass", "batch_size": 8, "steps": 6},
    "full-batch": {"sampling": "full-batch", "steps": 4},
}


def data(records: int = RECORDS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(records, 5, generator=generator)
    return inputs, inputs[:, :3].argmax(dim=1)


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


class NullRecord:
    """A loss under which records whose inputs are all zero contribute nothing: a constant, with zero gradient.

    The constant is not zero, so that a slope of it is zero but a loss is not.
    """

    def __call__(self, network: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, _ = batch
        is_null = (inputs == 0).all(dim=1)
        return torch.where(is_null, torch.ones(len(inputs)), self.real(network, batch))

    def real(self, network: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return sv.losses.cross_entropy(network, batch)


def without(records: tuple[Tensor, Tensor], index: int) -> tuple[Tensor, Tensor]:
    """The neighbouring data set under zero-out."""
    inputs = records[0].clone()
    inputs[index] = 0.0
    return inputs, records[1]
