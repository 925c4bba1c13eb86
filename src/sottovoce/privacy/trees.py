"""Records come as trees: a tensor, or a tuple, list, named tuple or dict of trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch import Tensor

Tree = Any


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to the leaves of one tree, or to matching leaves of several of the same form.

    Raises:
        ValueError, KeyError or TypeError: if the forms differ.
    """
    if isinstance(tree, Mapping):
        items = cast("Mapping[Any, Tree]", tree)
        return {key: map_leaves(function, items[key], *(other[key] for other in others)) for key in items}
    if isinstance(tree, tuple | list):
        branches = cast("Sequence[Tree]", tree)
        mapped = [map_leaves(function, *matching) for matching in zip(branches, *others, strict=True)]
        kind: Any = type(branches)
        return kind(*mapped) if hasattr(branches, "_fields") else kind(mapped)
    return function(tree, *others)


def leaves_of(tree: Tree) -> list[Tensor]:
    """The leaves in order."""
    found: list[Tensor] = []
    map_leaves(found.append, tree)
    return found
