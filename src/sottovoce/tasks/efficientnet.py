"""EfficientNet-Lite0 (Tan and Le 2019): its layers as in the published weights, with batch normalisation frozen.

Frozen batch normalisation is a fixed scaling of each channel, learnt once on ImageNet: it mixes no examples, in
training mode neither.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.privacy.errors import DataError

WIDTH = 1280
"""Features of an image."""


class Stage(NamedTuple):
    """A run of blocks of one width."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    Stage(blocks=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(blocks=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(blocks=2, kernel=5, stride=2, expansion=6, channels=40),
    Stage(blocks=3, kernel=3, stride=2, expansion=6, channels=80),
    Stage(blocks=3, kernel=5, stride=1, expansion=6, channels=112),
    Stage(blocks=4, kernel=5, stride=2, expansion=6, channels=192),
    Stage(blocks=1, kernel=3, stride=1, expansion=6, channels=320),
)


class EfficientNetLite0(nn.Module):
    """Images ``[B, 3, height, width]`` in [0, 1] to ``[B, 1280]`` features, after enlarging them to ``size`` pixels."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.conv_stem = SameConvolution(3, 32, 3, stride=2)
        self.bn0 = FrozenBatchNorm(32)
        blocks: list[nn.Module] = []
        inputs = 32
        for stage in STAGES:
            for number in range(stage.blocks):
                stride = 1 if number else stage.stride
                blocks.append(Block(inputs, stage.channels, stage.kernel, stride, stage.expansion))
                inputs = stage.channels
        self.blocks = nn.ModuleList(blocks)
        self.conv_head = SameConvolution(inputs, WIDTH, 1)
        self.bn1 = FrozenBatchNorm(WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        """The mean of the last channels over the image."""
        signal = functional.interpolate(images, size=(self.size, self.size), mode="bilinear", align_corners=False)
        signal = (signal * 255 - 127) / 128  # the scaling that the weights were trained with
        signal = functional.relu6(self.bn0(self.conv_stem(signal)))
        for block in self.blocks:
            signal = block(signal)
        return functional.relu6(self.bn1(self.conv_head(signal))).mean(dim=(2, 3))


class Block(nn.Module):
    """An inverted residual: expand, filter each channel, project; added to its input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.adds = stride == 1 and inputs == outputs
        self.expands = expansion > 1
        if self.expands:
            self.expand_conv = SameConvolution(inputs, inner, 1)
            self.bn0 = FrozenBatchNorm(inner)
        self.depthwise_conv = SameConvolution(inner, inner, kernel, stride=stride, groups=inner)
        self.bn1 = FrozenBatchNorm(inner)
        self.project_conv = SameConvolution(inner, outputs, 1)
        self.bn2 = FrozenBatchNorm(outputs)

    def forward(self, signal: Tensor) -> Tensor:
        """The block's output."""
        inner = functional.relu6(self.bn0(self.expand_conv(signal))) if self.expands else signal
        inner = functional.relu6(self.bn1(self.depthwise_conv(inner)))
        inner = self.bn2(self.project_conv(inner))
        return signal + inner if self.adds else inner


class SameConvolution(nn.Conv2d):
    """A convolution without bias whose padding is TensorFlow's "same": an odd pixel goes to the right and below."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """One output for every ``stride``-th pixel."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        below, right = (max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in input.shape[-2:])
        padding = (right // 2, right - right // 2, below // 2, below - below // 2)
        return functional.conv2d(functional.pad(input, padding), self.weight, stride=stride, groups=self.groups)


class FrozenBatchNorm(nn.Module):
    """Batch normalisation with the stored mean and variance, always; its scale and shift are parameters."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, signal: Tensor) -> Tensor:
        """Each channel scaled and shifted."""
        scale = self.weight * (self.running_var + 1e-3).rsqrt()
        shift = self.bias - self.running_mean * scale
        return signal * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)


def pretrained(file: Path, *, size: int = 96) -> EfficientNetLite0:
    """The network with the weights of ``file``, a state dictionary that is read without running any code.

    Raises:
        DataError: its names or shapes are not those of EfficientNet-Lite0.
    """
    stored = torch.load(file, weights_only=True, map_location="cpu")
    named = {
        ".".join(part.lstrip("_") for part in name.split(".")): value
        for name, value in stored.items()
        if not name.startswith("_fc.") and not name.endswith("num_batches_tracked")
    }
    model = EfficientNetLite0(size)
    try:
        model.load_state_dict(named)
    except RuntimeError as error:
        raise DataError(f"{file}: not the weights of EfficientNet-Lite0 ({error}).") from error
    return model.eval()
