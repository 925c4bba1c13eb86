"""Initial parameters that depend on a public seed alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def drawn(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """``make()`` with torch's generator started from ``seed``, on the CPU; its state is restored afterwards."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return make()
