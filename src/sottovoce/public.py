"""Public records have a door of their own: plain gradients on batches from a seeded generator, nothing accounted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from sottovoce.inputs import as_tree
from sottovoce.objective.directions import Key
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import select, stack
from sottovoce.privacy.errors import ConfigurationError, DataError
from sottovoce.privacy.trees import Tree, leaves_of


class PublicData:
    """Records that everybody may see, and gradients on them at the current parameters.

    Args:
        records: a tree of tensors or arrays with one leading dimension, or a map-style data set.
        objective: the model and the loss.
    """

    def __init__(self, records: Any, objective: ModuleObjective) -> None:
        self._objective = objective
        self._items: Any = None
        if isinstance(records, TensorDataset):
            records = records.tensors
        if hasattr(records, "__getitem__") and not isinstance(records, tuple | list | dict | Tensor | np.ndarray):
            self._items, self.count = records, len(records)
        else:
            self._tree = as_tree(records)
            lengths = {leaf.shape[0] if leaf.ndim else None for leaf in leaves_of(self._tree)}
            if len(lengths) != 1 or None in lengths:
                raise DataError(f"the arrays of public= have leading dimensions {lengths}: one number of records.")
            self.count = int(lengths.pop() or 0)
        if self.count == 0:
            raise DataError("public= is empty: give at least one public record, or take a method without public data.")

    def check_batch(self, size: int) -> None:
        """Refuse a batch that cannot be drawn."""
        if size > self.count:
            raise ConfigurationError(
                f"public_batch={size} and public= has {self.count} records: take public_batch={self.count} or less."
            )

    def batch(self, key: Key, size: int) -> Tree:
        """``size`` different records, drawn uniformly by a public key."""
        self.check_batch(size)
        chosen = np.sort(key.generator().choice(self.count, size, replace=False))
        if self._items is not None:
            return stack([as_tree(self._items[int(index)]) for index in chosen])
        return select(self._tree, torch.as_tensor(chosen))  # pyright: ignore[reportArgumentType]

    def gradient(self, key: Key, size: int) -> Tensor:
        """The mean gradient over a batch, by plain back-propagation: ``[d]``, float32 or float64."""
        return _finite(self._objective.mean_gradient(self.batch(key, size)))

    def gradients(self, key: Key, size: int) -> Tensor:
        """The gradient of each record of a batch: ``[size, d]``."""
        return _finite(self._objective.gradients(self.batch(key, size)))


def _finite(gradients: Tensor) -> Tensor:
    if not bool(torch.isfinite(gradients).all()):
        raise DataError(
            "a gradient on public records is not finite: a public record is, or the model has diverged (lower lr=)."
        )
    return gradients


def refuse_private_as_public(private: Any, public: Any) -> None:
    """Refuse public data that is the private data: the same object, overlapping memory, or common items.

    What is equal in value but lies elsewhere cannot be found without a comparison that reads private records.
    """
    mend = "public= must be other records: give the public ones alone, as copies if they are interleaved (.clone())."
    if private is public:
        raise DataError(f"public= is the same object as private=: {mend}")
    (base, own), (other, given) = _rows_of(private), _rows_of(public)
    if base is not None and base is other and (own is None or given is None or set(own) & set(given)):
        raise DataError(f"public= and private= read the same items of one data set: {mend}")
    spans = [[_span(leaf) for leaf in _tensors(data)] for data in (private, public)]
    for start, stop in spans[0]:
        for first, last in spans[1]:
            if start < last and first < stop:
                raise DataError(f"public= and private= share memory: {mend}")


def _rows_of(data: Any) -> tuple[Any, Sequence[int] | None]:
    """The data set behind nested subsets, and which of its items; None for all."""
    rows: Sequence[int] | None = None
    while isinstance(data, Subset):
        own = [int(index) for index in data.indices]
        rows = own if rows is None else [own[row] for row in rows]
        data = data.dataset
    return (data, rows) if isinstance(data, Dataset) and not isinstance(data, TensorDataset) else (None, None)


def _tensors(data: Any) -> list[Tensor]:
    if isinstance(data, TensorDataset):
        data = data.tensors
    if not isinstance(data, tuple | list | dict | Tensor | np.ndarray):
        return []
    return [leaf for leaf in leaves_of(as_tree(data)) if leaf.numel()]


def _span(leaf: Tensor) -> tuple[int, int]:
    """The memory from a tensor's first element to its last."""
    reach = sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
    return leaf.data_ptr(), leaf.data_ptr() + (reach + 1) * leaf.element_size()
