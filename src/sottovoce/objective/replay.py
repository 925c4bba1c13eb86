"""Where the blocks of a direction come from: replayed from their key, or kept while they fit in memory."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor

from sottovoce.objective.directions import BLOCK, Directions, Layout

_PIECE = 1 << 14
"""Replayed blocks are handed out in pieces that torch handles in one thread: waking a second one for so little work
costs more than it saves, a hundred times more while other programs use the processor."""

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

    def pieces(
        self, directions: Directions, query: int, name: str, device: torch.device
    ) -> Iterator[tuple[slice, Tensor]]:
        """One parameter's part of a direction, piece by piece, float32, each with its place; not to be changed.

        Where directions are kept there is one piece, the whole part; otherwise never more than a block exists.
        """
        span = self._layout.spans[name]
        if self._capacity:
            yield slice(0, span.stop - span.start), self._vector(directions, query, device)[span]
            return
        size = span.stop - span.start
        for start in range(0, size, BLOCK):
            block = directions.block(query, name, start, min(start + BLOCK, size)).to(device)
            step = _PIECE if block.device.type == "cpu" else BLOCK
            for first in range(0, block.numel(), step):
                piece = block[first : first + step]
                yield slice(start + first, start + first + piece.numel()), piece

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
