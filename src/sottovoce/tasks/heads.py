"""What is learnt on top of a frozen or pretrained network."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks.drawing import drawn
from sottovoce.tasks.dropout import dropout as dropout_layer
from sottovoce.tasks.naming import is_count, require_counts


def head(
    *, inputs: int, classes: int, hidden: int = 0, dropout: float = 0.0, always_dropout: bool = False, seed: int = 0
) -> nn.Module:
    """A linear layer, or with ``hidden`` units one hidden layer; its parameters depend on ``seed`` alone."""
    require_counts(inputs=inputs, classes=classes)
    if hidden != 0 and not is_count(hidden):
        raise ConfigurationError(f"hidden={hidden!r}: a whole number is needed, 0 for a linear layer.")
    layer = dropout_layer(dropout, always=always_dropout)

    def make() -> nn.Module:
        if not hidden:
            return nn.Sequential(layer, nn.Linear(inputs, classes))
        return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), layer, nn.Linear(hidden, classes))

    return drawn(seed, make)


class Standardised(nn.Module):
    """Features shifted and scaled by the mean and deviation of PUBLIC features; both are constants."""

    mean: Tensor
    scale: Tensor

    def __init__(self, public: Tensor) -> None:
        super().__init__()
        deviation = public.std(dim=0, correction=0)
        floor = 0.1 * float(deviation.mean()) + 1e-6  # a feature that is constant in public may vary elsewhere
        self.register_buffer("mean", public.mean(dim=0))
        self.register_buffer("scale", 1 / deviation.clamp(min=floor))

    def forward(self, features: Tensor) -> Tensor:
        """The scaled features."""
        return (features - self.mean) * self.scale


def stacked(*, body: nn.Module, standardised: Standardised, head: nn.Module) -> nn.Module:
    """A whole network: features, their fixed scaling, and the head."""
    return nn.Sequential(OrderedDict(body=body, standardised=standardised, head=head))


def pair_features(first: Tensor, second: Tensor) -> Tensor:
    """u, v, |u - v| and u v of two sentences' vectors (Conneau et al. 2017), each ``[B, width]``."""
    return torch.cat([first, second, (first - second).abs(), first * second], dim=1)
