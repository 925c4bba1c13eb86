"""Small models of every kind that parameters can be held in."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TiedLanguageModel(nn.Module):
    """The embedding is also the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.mix = nn.Linear(5, 5)
        self.head = nn.Linear(5, 7)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embedding(tokens).mean(1))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class WeightNormalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.layer(x)))


class Listed(nn.Module):
    """A ModuleList, a ParameterList that the parent reads, and a module used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.LayerNorm(6)])
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(6)), nn.Parameter(torch.full((6,), 0.5))])
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            for layer in self.layers:
                x = layer(x)
        return self.head(x * self.scales[0] + self.scales[1])


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(x)
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class ReadsItsChild(nn.Module):
    """The child's weight is read without calling the child: the lean strategy cannot see that."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(6, 3)
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.child.weight) + self.bias


def convolutional() -> nn.Module:
    """Channels-last weights, a frozen layer, and an in-place activation."""
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3),
        nn.Flatten(),
        nn.Linear(4 * 4 * 4, 3),
    )
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    # Not the first layer: on the CPU, torch crashes in the backward pass of a channels-last GroupNorm whose input
    # needs no gradient.
    model[3].requires_grad_(False)
    return model


def cross_entropy(model, batch) -> Tensor:
    inputs, targets = batch
    return F.cross_entropy(model(inputs).float(), targets, reduction="none")


def example_for(kind: str) -> tuple[Any, Any]:
    """A model and one public record."""
    torch.manual_seed(1)
    target = torch.tensor(2)
    if kind == "tied":
        return TiedLanguageModel(), (torch.tensor([1, 3, 5]), target)
    if kind == "lstm":
        return Recurrent(), (torch.randn(5, 3), target)
    if kind == "weight norm":
        return WeightNormalised(), (torch.randn(6), target)
    if kind == "lists":
        return Listed(), (torch.randn(6), target)
    if kind == "attention":
        return Attentive(), (torch.randn(5, 4), target)
    if kind == "convolution":
        return convolutional(), (torch.randn(2, 8, 8), target)
    raise KeyError(kind)


KINDS = ("tied", "lstm", "weight norm", "lists", "attention", "convolution")


def bits(tensor: Tensor) -> Tensor:
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(kinds[tensor.element_size()])


def snapshot(module: nn.Module) -> dict[str, tuple[nn.Parameter, int, Tensor]]:
    return {name: (p, p.data_ptr(), bits(p).clone()) for name, p in module.named_parameters()}


def assert_untouched(module: nn.Module, before: dict) -> None:
    for name, p in module.named_parameters():
        parameter, address, values = before[name]
        assert p is parameter, name
        assert p.data_ptr() == address, name
        assert torch.equal(bits(p), values), name
