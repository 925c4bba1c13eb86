"""Private records behind one interface: fetched by index, padded to a fixed shape, never able to raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sottovoce.privacy.quiet import quiet
from sottovoce.privacy.sampling import Indices
from sottovoce.privacy.secret import Secret
from sottovoce.privacy.trees import Tree, leaves_of, map_leaves


class Records(Secret):
    """The private data set. How many records there are, and a record's shape and type, are public.

    Args:
        source: a tree of tensors with one common leading dimension, or, with ``as_tree``, any map-style data set.
        example: one public record, which pads batches and alone says what form every item must have.
        as_tree: turns one item of a data set into a tree of tensors; None if the source is a tree itself.
    """

    __slots__ = ("_as_tree", "_source", "count", "example")

    def __init__(self, source: Any, example: Tree, as_tree: Callable[[Any], Tree] | None = None) -> None:
        self._source = source
        self._as_tree = as_tree
        self.example = example
        self.count: int = len(leaves_of(source)[0]) if as_tree is None else len(source)

    def examples(self, size: int, device: torch.device) -> Tree:
        """A batch of copies of the public example."""

        def repeat(leaf: Tensor) -> Tensor:
            return leaf.to(device).unsqueeze(0).expand(size, *leaf.shape).clone()

        return map_leaves(repeat, self.example)

    def batch(self, indices: Indices, size: int, device: torch.device, seed: int = 0) -> tuple[Tree, Tensor]:
        """Records padded with examples to exactly ``size`` rows, and which rows hold a readable record."""
        padded = self.examples(size, torch.device("cpu"))
        kept = torch.arange(size) < len(indices)
        if self._as_tree is None:
            chosen = torch.as_tensor(indices)

            def fill(target: Tensor, leaf: Tensor) -> None:
                target[: len(chosen)] = leaf[chosen.to(leaf.device)].to(target.device)

            map_leaves(fill, padded, self._source)
        else:
            for row, index in enumerate(indices.tolist()):
                with quiet(torch.device("cpu"), seed + index):  # what one item draws, no other item feels
                    kept[row] = self._fill_row(self._as_tree, padded, row, index)

        def move(leaf: Tensor) -> Tensor:
            return leaf.to(device)

        return map_leaves(move, padded), kept

    def alone(self, fetched: Tree, row: int, device: torch.device) -> Tree:
        """One row of a fetched batch, in its own slot among copies of the example."""

        def keep(target: Tensor, source: Tensor) -> Tensor:
            target[row] = source[row]
            return target

        return map_leaves(keep, self.examples(len(leaves_of(fetched)[0]), device), fetched)

    def _fill_row(self, as_tree: Callable[[Any], Tree], padded: Tree, row: int, index: int) -> bool:
        """Copy one item into its row, in the example's types; one that does not fit its form is not kept.

        Numbers become floating-point ones as they are, and integers if nothing is lost: 3.0 does, 2.5 and NaN do not.
        """

        def write(target: Tensor, leaf: Tensor) -> None:
            fits = leaf.dtype == target.dtype or (target.is_floating_point() and not leaf.is_complex())
            if leaf.shape != target.shape[1:] or not (fits or torch.equal(leaf.to(target.dtype).to(leaf.dtype), leaf)):
                raise ValueError
            target[row] = leaf

        try:
            map_leaves(write, padded, as_tree(self._source[index]))
        except KeyboardInterrupt:
            raise
        except BaseException:  # some libraries' errors derive from it
            return False
        return True
