"""How the benchmark measures a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sottovoce.fit import evaluate
from sottovoce.losses import accuracy
from sottovoce.tasks.dropout import switched_off


def accuracy_on(model: nn.Module, records: Any) -> float:
    """The share of the records that the model puts in the right class, without any dropout."""
    with switched_off(model):
        return evaluate(model, accuracy, records)


def on_device(records: Any, device: str) -> Any:
    """The records where the model is."""
    return tuple(leaf.to(torch.device(device)) for leaf in records)
