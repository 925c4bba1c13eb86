"""Memory for one parameter at x + scale * u, given back to the operating system as soon as it is let go.

A C library keeps freed memory for later, and where something small has been put into the gap it takes more from the
system instead: glibc's allocator thus held two layers where one was in use, in some processes and not in others. A
mapping of its own has neither trouble, and it lives exactly as long as a tensor that views it does, so an output
that is a view of a parameter (a slice of position embeddings) stays valid.
"""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

MAPPED_BYTES = 1 << 20
"""Smaller parameters come from torch's own allocator: a mapping costs a few microseconds and whole pages."""


def room_like(parameter: Tensor) -> Tensor:
    """Uninitialised memory of the parameter's format, since the kernel chosen, hence the rounding, may depend on it."""
    shape = torch.empty_like(parameter, device="meta")
    size = shape.numel() * shape.element_size()
    if parameter.device.type != "cpu" or size < MAPPED_BYTES:
        return torch.empty_like(parameter)
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = torch.frombuffer(mmap.mmap(-1, size, **private), dtype=parameter.dtype)
    return memory.as_strided(shape.shape, shape.stride())
