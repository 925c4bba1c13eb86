"""Where the blocks of a direction come from: replayed from their key, or kept while they fit in memory."""

from __future__ import annotations

import weakref
from collections import OrderedDict

import torch
from torch import Tensor

from sottovoce.objective.directions import BLOCK, Directions, Layout

REPLAYED = 2 * BLOCK
"""Coordinates that are replayed at a time where no whole direction is kept: half a megabyte."""

KEPT_BYTES = 256 << 20
"""Directions are kept up to this size, so that both signs and every micro-batch of a query share one copy."""


class Replay:
    """Blocks of directions over one layout.

    Args:
        layout: the parameters, in order.
        kept_bytes: how much to keep of the directions last used, always at least one direction; 0 to keep
            nothing, so that no more than a block of a direction ever exists.
    """

    def __init__(self, layout: Layout, kept_bytes: int = KEPT_BYTES) -> None:
        self._layout = layout
        self._capacity = 0 if kept_bytes <= 0 else max(1, kept_bytes // (4 * layout.numel))
        self._owner: weakref.ref[Directions] | None = None
        self._kept: OrderedDict[int, Tensor] = OrderedDict()

    def spans(self, size: int) -> list[slice]:
        """How to walk through a parameter: whole where directions are kept, else block by block."""
        step = max(1, size if self._capacity else REPLAYED)
        return [slice(start, min(start + step, size)) for start in range(0, size, step)]

    def block(self, directions: Directions, query: int, name: str, span: slice, device: torch.device) -> Tensor:
        """The coordinates ``span`` of one parameter's part of a direction, float32; not to be changed."""
        if not self._capacity:
            return directions.block(query, name, span.start, span.stop).to(device)
        offset = self._layout.spans[name].start
        return self._vector(directions, query, device)[offset + span.start : offset + span.stop]

    def _vector(self, directions: Directions, query: int, device: torch.device) -> Tensor:
        if self._owner is None or self._owner() is not directions:
            # Weak: the kept copies vanish with the directions, and a new object at the old address is not them.
            self.forget()
            self._owner = weakref.ref(directions, self._forget_if)
        vector = self._kept.get(query)
        if vector is None:
            if len(self._kept) >= self._capacity:
                self._kept.popitem(last=False)
            vector = directions.vector(query)
        vector = vector.to(device)
        self._kept[query] = vector
        self._kept.move_to_end(query)
        return vector

    def _forget_if(self, gone: weakref.ref[Directions]) -> None:
        if self._owner is gone:
            self.forget()

    def forget(self) -> None:
        """Free what is kept."""
        self._kept.clear()
        self._owner = None
