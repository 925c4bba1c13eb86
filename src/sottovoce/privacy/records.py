"""Private records behind one interface: fetched by index, padded to a fixed shape, never able to raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from sottovoce.privacy.errors import DataError
from sottovoce.privacy.sampling import Indices

Tree = Any
"""A tensor, or a tuple, list, named tuple or dict of trees."""


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to the leaves of one tree, or to matching leaves of several of the same form."""
    if isinstance(tree, Mapping):
        items = cast("Mapping[Any, Tree]", tree)
        return {key: map_leaves(function, items[key], *(other[key] for other in others)) for key in items}
    if isinstance(tree, tuple | list):
        branches = cast("Sequence[Tree]", tree)
        for other in others:
            if len(other) != len(branches):
                raise DataError(f"trees of {len(branches)} and {len(other)} branches do not match.")
        mapped = [map_leaves(function, *matching) for matching in zip(branches, *others, strict=True)]
        if hasattr(branches, "_fields"):  # a named tuple
            return type(branches)(*mapped)
        return type(branches)(mapped)  # pyright: ignore[reportCallIssue]
    return function(tree, *others)


def leaves_of(tree: Tree) -> list[Any]:
    """The leaves in order."""
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found


def _as_tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf.detach()
    try:
        return torch.as_tensor(leaf if np.ndim(leaf) == 0 else np.asarray(leaf))
    except (TypeError, ValueError, RuntimeError):
        raise DataError(
            f"a leaf of type {type(leaf).__name__} is not numeric: records are tensors, arrays or numbers, or "
            "tuples and dicts of them; encode text and categories as integers first."
        ) from None


def _zero_record(leaf: Tensor) -> Tensor:
    return torch.zeros(leaf.shape[1:], dtype=leaf.dtype)


class Records:
    """The private data set.

    Args:
        source: a tree of tensors or arrays with one leading dimension, or a map-style data set whose items
            are trees of one fixed shape.
        example: one public record, for padding and for every check; by default zeros of the same form.

    The number of records, and every record's shape and type, are treated as public.
    """

    __slots__ = ("_leaves_first", "_source", "count", "example")

    def __init__(self, source: Tree, example: Tree | None = None) -> None:
        if isinstance(source, TensorDataset):
            source = source.tensors
        self._leaves_first = isinstance(source, Tensor | np.ndarray | tuple | list | Mapping)
        if self._leaves_first:
            self._source: Tree = map_leaves(_as_tensor, source)
            self.count = self._common_length(leaves_of(self._source))
            form = map_leaves(_zero_record, self._source)
        else:
            self._source = source
            self.count = self._dataset_length(source)
            form = map_leaves(torch.zeros_like, self._first_readable_item())
        self.example: Tree = form if example is None else map_leaves(_as_tensor, example)
        self._check_example(form)

    def __repr__(self) -> str:
        return "Records(private)"

    def __reduce__(self) -> Any:
        raise TypeError("private records are not pickled")

    @staticmethod
    def _common_length(leaves: list[Tensor]) -> int:
        if not leaves or any(leaf.ndim == 0 for leaf in leaves):
            raise DataError("private= needs at least one array, each with a leading dimension of records.")
        lengths = {int(leaf.shape[0]) for leaf in leaves}
        if len(lengths) > 1:
            raise DataError(
                f"the arrays of private= have {sorted(lengths)} records: their leading dimensions must agree."
            )
        if lengths == {0}:
            raise DataError("private= is empty: at least one record is needed.")
        return lengths.pop()

    @staticmethod
    def _dataset_length(source: Any) -> int:
        if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
            raise DataError(
                f"private= is a {type(source).__name__}: give a tensor, an array, a tuple or dict of them, or a "
                "data set with __len__ and __getitem__ (an iterator cannot be sampled)."
            )
        if len(source) == 0:
            raise DataError("private= is empty: at least one record is needed.")
        return len(source)

    def _first_readable_item(self) -> Tree:
        for index in range(self.count):
            try:
                return map_leaves(_as_tensor, self._source[index])
            except Exception:
                continue
        raise DataError("no item of private= can be read; give example= and check its __getitem__.")

    def _check_example(self, form: Tree) -> None:
        def check(wanted: Tensor, given: Tensor) -> None:
            if wanted.shape != given.shape or wanted.dtype != given.dtype:
                raise DataError(
                    f"example= has a leaf of shape {tuple(given.shape)} and type {given.dtype}, the records have "
                    f"{tuple(wanted.shape)} and {wanted.dtype}: give one record, without a batch dimension."
                )

        try:
            map_leaves(check, form, self.example)
        except (KeyError, TypeError):
            raise DataError("example= does not have the form of a record of private=.") from None

    def examples(self, size: int, device: torch.device) -> Tree:
        """A batch of copies of the public example."""

        def repeat(leaf: Tensor) -> Tensor:
            return leaf.to(device).unsqueeze(0).expand(size, *leaf.shape).clone()

        return map_leaves(repeat, self.example)

    def batch(self, indices: Indices, size: int, device: torch.device) -> tuple[Tree, Tensor]:
        """Records padded with examples to exactly ``size`` rows, and which rows hold a readable record."""
        kept = torch.zeros(size, dtype=torch.bool)
        padded = self.examples(size, torch.device("cpu"))
        if self._leaves_first:
            chosen = torch.as_tensor(indices)

            def fill(target: Tensor, leaf: Tensor) -> None:
                target[: len(chosen)] = leaf[chosen.to(leaf.device)].to(target.device)

            map_leaves(fill, padded, self._source)
            kept[: len(chosen)] = True
        else:
            for row, index in enumerate(indices.tolist()):
                kept[row] = self._fill_row(padded, row, index)

        def move(leaf: Tensor) -> Tensor:
            return leaf.to(device)

        return map_leaves(move, padded), kept

    def alone(self, padded: Tree, row: int, size: int, device: torch.device) -> Tree:
        """One row of a fetched batch, in its own slot among copies of the example."""

        def keep(target: Tensor, fetched: Tensor) -> Tensor:
            target[row] = fetched[row]
            return target

        return map_leaves(keep, self.examples(size, device), padded)

    def _fill_row(self, padded: Tree, row: int, index: int) -> bool:
        """Copy one item into its row; a record that cannot be read keeps the example there, unseen."""
        try:
            item = map_leaves(_as_tensor, self._source[index])

            def check(target: Tensor, leaf: Tensor) -> None:
                if leaf.shape != target.shape[1:] or leaf.dtype != target.dtype:
                    raise DataError("another shape or type")

            def write(target: Tensor, leaf: Tensor) -> None:
                target[row] = leaf

            map_leaves(check, padded, item)
            map_leaves(write, padded, item)
        except Exception:
            return False
        return True
