"""Built-in models for images, by name. None mixes the examples of a batch and none is random when it is evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks.drawing import drawn
from sottovoce.tasks.naming import is_count, nearest, require_counts, require_known_options

Shape = tuple[int, int, int]
"""Channels, height and width of one image."""

Activation = Literal["tanh", "relu"]
_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


def build(name: str, *, shape: Shape, classes: int, seed: int = 0, **options: Any) -> nn.Module:
    """The built-in model ``name`` for images of ``shape``, with logits for ``classes`` classes.

    The parameters depend on ``seed`` alone (they are public: the seed may be published). They are drawn on the CPU, and
    the state of the global random generator is the same before and after.

    Raises:
        ConfigurationError: an unknown name or option (the message names the nearest), or an option out of range.
    """
    if name not in _BUILDERS:
        raise ConfigurationError(f"unknown model {name!r}: {nearest(name, _BUILDERS)}")
    builder = _BUILDERS[name]
    require_known_options(builder, options, f"the model {name!r}", hidden=("shape", "classes"))
    if len(shape) != 3 or any(not is_count(size) for size in shape):
        raise ConfigurationError(f"shape={shape!r}: (channels, height, width) are needed, all positive.")
    if not is_count(classes):
        raise ConfigurationError(f"classes={classes!r}: a positive whole number is needed.")
    return drawn(seed, lambda: builder(shape=shape, classes=classes, **options))


def names() -> tuple[str, ...]:
    """The names that :func:`build` knows."""
    return tuple(_BUILDERS)


def linear(*, shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression on the pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def mlp(*, shape: Shape, classes: int, width: int = 128, depth: int = 1, activation: Activation = "tanh") -> nn.Module:
    """``depth`` hidden layers of ``width`` units."""
    require_counts(width=width, depth=depth)
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(shape)
    for _ in range(depth):
        layers += [nn.Linear(inputs, width), _activation(activation)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def small_cnn(
    *, shape: Shape, classes: int, width: int = 16, hidden: int = 80, activation: Activation = "tanh"
) -> nn.Module:
    """Two strided convolutions and two linear layers: 102,314 parameters for MNIST's shape and classes.

    The convolutions are those that Papernot, Thakurta, Song, Chien and Erlingsson (2021) train privately, without their
    pooling; tanh is their advice, as it bounds the activations and thereby the gradients that are clipped.
    """
    require_counts(width=width, hidden=hidden)
    channels, height, breadth = shape
    rows, columns = (_after_convolutions(size) for size in (height, breadth))
    if rows < 1 or columns < 1:
        raise ConfigurationError(f"shape={shape!r}: small-cnn needs images of at least 8 x 8 pixels.")
    return nn.Sequential(
        nn.Conv2d(channels, width, 8, stride=2, padding=3),
        _activation(activation),
        nn.Conv2d(width, 2 * width, 4, stride=2),
        _activation(activation),
        nn.Flatten(),
        nn.Linear(2 * width * rows * columns, hidden),
        _activation(activation),
        nn.Linear(hidden, classes),
    )


def resnet(*, shape: Shape, classes: int, width: int = 40, blocks: int = 2) -> nn.Module:
    """A residual network without normalisation: three stages of ``blocks`` blocks, 1.09 million parameters by default.

    Batch normalisation mixes examples, so it cannot be used under differential privacy. Instead every branch is scaled
    by 1 / sqrt(number of blocks), which keeps the variance of the signal bounded at any depth (Hayou, Clerico, He,
    Deligiannidis, Doucet and Rousseau, "Stable ResNet", 2021).
    """
    return _residual_network(shape=shape, classes=classes, width=width, blocks=blocks, stages=3)


def nf_resnet_18(*, shape: Shape, classes: int, width: int = 64) -> nn.Module:
    """ResNet-18 without normalisation: four stages of two blocks, 11.2 million parameters for CIFAR-10's shape.

    The shape is that of the NF-ResNets (Brock, De and Smith, 2021); the signal is kept bounded as in :func:`resnet`,
    by scaled branches alone, and weights are not standardised.
    """
    return _residual_network(shape=shape, classes=classes, width=width, blocks=2, stages=4)


def _residual_network(*, shape: Shape, classes: int, width: int, blocks: int, stages: int) -> nn.Module:
    require_counts(width=width, blocks=blocks)
    scale = (stages * blocks) ** -0.5
    layers: list[nn.Module] = [nn.Conv2d(shape[0], width, 3, padding=1)]
    inputs = width
    for stage in range(stages):
        outputs = width * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            layers.append(ResidualBlock(inputs, outputs, stride=stride, scale=scale))
            inputs = outputs
    model = nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


class ResidualBlock(nn.Module):
    """``shortcut(x) + scale * conv(relu(conv(relu(x))))``, with no normalisation."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, signal: Tensor) -> Tensor:
        """The block's output, of the shape of its shortcut."""
        branch = self.second(torch.relu(self.first(torch.relu(signal))))
        return self.shortcut(signal) + self.scale * branch


_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "small-cnn": small_cnn,
    "linear": linear,
    "mlp": mlp,
    "resnet": resnet,
    "nf-resnet-18": nf_resnet_18,
}


def _after_convolutions(size: int) -> int:
    return ((size + 6 - 8) // 2 + 1 - 4) // 2 + 1


def _activation(name: str) -> nn.Module:
    if name not in _ACTIVATIONS:
        raise ConfigurationError(f"activation={name!r}: {nearest(name, _ACTIVATIONS)}")
    return _ACTIVATIONS[name]()
