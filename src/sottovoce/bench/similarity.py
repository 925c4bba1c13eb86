"""Gamma-similarity (Gong and Li 2025, Definition 4.1): how far the public gradient is from the private one.

NOT PRIVATE: it reads the private records exactly. It describes a benchmark whose data is public in truth.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sottovoce.objective.gradients import Loss
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import batch_size, select


def full_gradient(objective: ModuleObjective, records: Any, *, rows: int = 512) -> Tensor:
    """The mean gradient over all records, in float64."""
    count = batch_size(records)
    total = torch.zeros(objective.parameters.numel(), dtype=torch.float64, device=objective.parameters.device)
    for start in range(0, count, rows):
        part = select(records, slice(start, start + rows))
        total += objective.mean_gradient(part).to(torch.float64) * batch_size(part)
    return total / count


def gamma(model: nn.Module, loss: Loss, private: Any, public: Any) -> float:
    """The distance between the gradients over all public and all private records. NOT PRIVATE."""
    objective = ModuleObjective(model, loss)
    return float((full_gradient(objective, public) - full_gradient(objective, private)).norm())
