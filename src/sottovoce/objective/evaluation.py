"""How the user's model is run: in evaluation mode, at full float32 precision, by one fixed choice of kernels."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from sottovoce.objective.state import ModelState


@contextmanager
def evaluating(module: nn.Module, loss: object = None, *, trained: bool = False) -> Iterator[None]:
    """Evaluation mode inside; afterwards every submodule has its own training flag, state and attributes again, and so
    has the object whose call or method the loss is. ``trained``: the trainable parameters have their values, too.

    TF32 is off inside, since a slope is a difference of two nearly equal losses, and so is cuDNN's
    benchmarking, which may choose another kernel, hence other rounding, from one call to the next.
    """
    flags = [(part, part.training) for part in module.modules()]
    saved: list[tuple[Any, str, Any]] = []
    state = ModelState(module, loss, trained=trained)
    try:
        if any(training for _, training in flags):
            module.eval()
        _switch_off(saved)
        yield
    finally:
        for owner, name, value in reversed(saved):
            setattr(owner, name, value)
        state.put_back()
        for part, training in flags:
            if part.training != training:
                part.training = training


@contextmanager
def from_seed(device: torch.device, seed: int = 3) -> Iterator[None]:
    """The global generators of torch, NumPy and Python set inside and put back afterwards: a random loss repeats."""
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _switch_off(saved: list[tuple[Any, str, Any]]) -> None:
    """Change only what differs, noting each old value."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    _set(saved, cudnn, "benchmark", False)
    try:
        for owner in (matmul, cudnn):
            _set(saved, owner, "allow_tf32", False)
    except RuntimeError:  # the user set precision by the newer names, which torch does not mix with the older
        for owner in (matmul, getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)):
            if owner is not None:
                _set(saved, owner, "fp32_precision", "ieee")


def _set(saved: list[tuple[Any, str, Any]], owner: Any, name: str, wanted: Any) -> None:
    present = getattr(owner, name)
    if present != wanted:
        setattr(owner, name, wanted)
        saved.append((owner, name, present))
