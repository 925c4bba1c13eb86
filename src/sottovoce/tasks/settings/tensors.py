"""Small handlings of examples."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sottovoce.tasks.data.arrays import Labels, Pixels
from sottovoce.tasks.settings.setting import Examples


def first(examples: Examples) -> Examples:
    """The first record, without the batch dimension, in memory of its own."""
    inputs, targets = examples
    return inputs[0].clone(), targets[0].clone()


def labels(given: Labels) -> Tensor:
    """Classes as a tensor, in memory of its own."""
    return torch.from_numpy(np.array(given))


def pixels(given: Pixels) -> Tensor:
    """Pixels in [0, 1]."""
    return torch.from_numpy(given).to(torch.float32).div_(255)
