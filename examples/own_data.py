"""What own_data.toml names: records, a model and a loss, as you would write them for your own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def patients(records: int = 4000) -> dict[str, Any]:
    """Made-up measurements and a diagnosis. ``validate`` is declared PUBLIC: results are measured on it exactly."""
    generator = torch.Generator().manual_seed(0)
    measurements = torch.randn(records + 1000, 6, generator=generator)
    diagnosis = (measurements[:, 0] + measurements[:, 1] ** 2 > 1).long()
    private, validate = slice(0, records), slice(records, None)
    return {
        "private": (measurements[private], diagnosis[private]),
        "validate": (measurements[validate], diagnosis[validate]),
    }


class RiskScore(nn.Module):
    """One score for each patient; above zero means ill."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, measurements: Tensor) -> Tensor:
        return self.layers(measurements)


def smooth_mistakes(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """One value for each patient, between 0 and 1: outliers weigh no more than others."""
    measurements, diagnosis = batch
    sign = 2.0 * diagnosis - 1.0
    return torch.sigmoid(-2 * sign * model(measurements).squeeze(1))
