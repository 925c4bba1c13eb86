"""Records as trees: a tensor, or a tuple, list, named tuple or dict of trees with one leading dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sottovoce.privacy.errors import DataError

Tree = Any
"""A tensor, or a tuple, list, named tuple or dict of trees."""


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to the tensors of one tree, or to matching tensors of several of the same form."""
    if isinstance(tree, Mapping):
        return {key: map_leaves(function, tree[key], *(other[key] for other in others)) for key in tree}
    if isinstance(tree, tuple | list):
        mapped = [map_leaves(function, *matching) for matching in zip(tree, *others, strict=True)]
        return type(tree)(*mapped) if hasattr(tree, "_fields") else type(tree)(mapped)
    if not isinstance(tree, Tensor):
        raise DataError(
            f"a leaf of the records is a {type(tree).__name__}: records are tensors, or tuples, lists and dicts "
            "of tensors; convert arrays with torch.as_tensor first."
        )
    return function(tree, *others)


def leaves_of(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in order."""
    found: list[Tensor] = []
    map_leaves(found.append, tree)
    return found


def batch_size(records: Tree) -> int:
    """The common leading dimension of a batch."""
    sizes = {leaf.shape[0] if leaf.ndim else None for leaf in leaves_of(records)}
    if len(sizes) != 1 or None in sizes:
        raise DataError(
            f"a batch needs tensors with one common leading dimension; the leading dimensions here are "
            f"{sorted(map(str, sizes)) or 'missing: there is no tensor'}."
        )
    return int(sizes.pop() or 0)


def repeat(record: Tree, count: int) -> Tree:
    """A batch of copies of one record, which has no batch dimension."""
    return map_leaves(lambda leaf: leaf.unsqueeze(0).repeat(count, *[1] * leaf.ndim), record)


def select(records: Tree, rows: slice | int | torch.Tensor) -> Tree:
    """Some rows of a batch, by a slice or by numbers; with one integer, one record without the batch dimension."""
    return map_leaves(lambda leaf: leaf[rows], records)


def stack(records: list[Tree]) -> Tree:
    """A batch of the given records, none of which has a batch dimension."""
    return map_leaves(lambda *matching: torch.stack(matching), records[0], *records[1:])


def move(records: Tree, device: torch.device) -> Tree:
    """The same records on a device."""
    return map_leaves(lambda leaf: leaf.to(device, non_blocking=True), records)


def zeros_like_one(records: Tree) -> Tree:
    """One record of zeros with the shape and type of a batch's records: it holds no value of theirs."""
    return map_leaves(lambda leaf: torch.zeros(leaf.shape[1:], dtype=leaf.dtype, device=leaf.device), records)
