"""Losses and metrics that give one value for each example: ``loss(model, batch) -> Tensor[B]``.

A batch is a pair ``(inputs, targets)`` with leading dimension ``B``. Value ``i`` depends on example ``i`` alone, as
long as the model keeps examples apart (no batch normalisation): that is what the bound on one record's share of a
release rests on. So nothing here is summed or averaged over the batch. All work under ``torch.func``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = tuple[Tensor, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    """Minus the log-probability of the right class, for logits ``[B, classes]`` and integer classes ``[B]``."""
    inputs, targets = batch
    logits = model(inputs)
    _require_classes(logits, targets)
    return functional.cross_entropy(logits, targets, reduction="none")


def squared_error(model: nn.Module, batch: Batch) -> Tensor:
    """The squared error of each example, averaged over the outputs of that example.

    Outputs and targets need as many values for each example; ``[B, 1]`` and ``[B]`` match.
    """
    inputs, targets = batch
    outputs = model(inputs)
    flat, wanted = outputs.reshape(len(outputs), -1), targets.reshape(len(targets), -1)
    if flat.shape != wanted.shape:
        raise ValueError(
            f"the model gives outputs of shape {tuple(outputs.shape)} for targets of shape {tuple(targets.shape)}: "
            "squared_error needs as many values for each example in both."
        )
    return (flat - wanted).square().mean(dim=1)


def logistic(model: nn.Module, batch: Batch) -> Tensor:
    """``log(1 + exp(-margin))`` for two classes; see :func:`hinge` for what the model and the targets are."""
    return functional.softplus(-_margin(model, batch))


def hinge(model: nn.Module, batch: Batch) -> Tensor:
    """``max(0, 1 - margin)`` for two classes.

    The model gives one score for each example (``[B]`` or ``[B, 1]``); a target above zero is the positive class, any
    other the negative one, so that both 0/1 and -1/+1 can be used. The margin is the score with the target's sign.
    """
    return functional.relu(1 - _margin(model, batch))


def zero_one(model: nn.Module, batch: Batch) -> Tensor:
    """1 where the prediction is wrong and 0 where it is right: what gradients cannot minimise.

    With logits ``[B, classes]`` the prediction is the largest; with one score for each example it is the score's sign,
    and a score of exactly zero counts as wrong.
    """
    inputs, targets = batch
    outputs = model(inputs)
    if _is_score(outputs):
        return (_signed(outputs, targets) <= 0).to(outputs.dtype)
    _require_classes(outputs, targets)
    return (outputs.argmax(dim=1) != targets).to(outputs.dtype)


def accuracy(model: nn.Module, batch: Batch) -> Tensor:
    """1 where the prediction is right and 0 where it is wrong: a metric, ``1 - zero_one``."""
    return 1 - zero_one(model, batch)


def _margin(model: nn.Module, batch: Batch) -> Tensor:
    inputs, targets = batch
    outputs = model(inputs)
    if not _is_score(outputs):
        raise ValueError(
            f"the model gives outputs of shape {tuple(outputs.shape)}: a loss for two classes needs one score for each "
            "example, [B] or [B, 1]. With several classes use cross_entropy."
        )
    return _signed(outputs, targets)


def _signed(scores: Tensor, targets: Tensor) -> Tensor:
    flat, wanted = scores.reshape(-1), targets.reshape(-1)
    if flat.shape != wanted.shape:
        raise ValueError(
            f"the model gives scores of shape {tuple(scores.shape)} for targets of shape {tuple(targets.shape)}: one "
            "target for each score is needed."
        )
    return torch.where(wanted > 0, flat, -flat)


def _is_score(outputs: Tensor) -> bool:
    return outputs.ndim == 1 or (outputs.ndim == 2 and outputs.shape[1] == 1)


def _require_classes(logits: Tensor, targets: Tensor) -> None:
    if logits.ndim != 2 or targets.shape != logits.shape[:1] or targets.is_floating_point():
        raise ValueError(
            f"the model gives outputs of shape {tuple(logits.shape)} for targets of shape {tuple(targets.shape)} and "
            f"type {targets.dtype}: logits [B, classes] and integer classes [B] are needed."
        )


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {loss.__name__.replace("_", "-"): loss for loss in (cross_entropy, squared_error, logistic, hinge, zero_one)}
)
"""The losses by the names that a configuration file uses."""

METRICS: Mapping[str, Loss] = MappingProxyType({"accuracy": accuracy, "zero-one": zero_one})
"""The metrics by the names that a configuration file uses."""
