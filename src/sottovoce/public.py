"""Public records have a door of their own: plain gradients on batches from a seeded generator, nothing accounted."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sottovoce.inputs import as_tree, tensors_of
from sottovoce.objective.directions import Key
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import select, stack
from sottovoce.privacy.errors import ConfigurationError, DataError, QueryError
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
        if isinstance(records, str | bytes):
            raise DataError(f"public={records!r}: records are needed, as tensors, arrays or a data set, not a name.")
        tree = tensors_of(records)
        if tree is None and hasattr(records, "__getitem__"):
            self._items, self.count = records, len(records)
        else:
            self._tree = as_tree(records if tree is None else tree)
            lengths = {leaf.shape[0] if leaf.ndim else None for leaf in leaves_of(self._tree)}
            if len(lengths) > 1 or None in lengths:
                raise DataError(f"the arrays of public= have leading dimensions {lengths}: one number of records.")
            self.count = int(lengths.pop() or 0) if lengths else 0
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
        return select(self._tree, torch.as_tensor(chosen))

    def gradient(self, key: Key, size: int) -> Tensor:
        """The mean gradient over a batch, by plain back-propagation: ``[d]``, float32 or float64."""
        records = self.batch(key, size)
        try:
            found = self._objective.mean_gradient(records)
        except QueryError:
            raise
        except Exception as error:
            raise QueryError(
                f"the gradient on the public records cannot be computed ({type(error).__name__}: {error}). They must "
                "have the form of the private ones, and the loss must be differentiable; DPZero needs no gradient."
            ) from error
        return _finite(found)

    def gradients(self, key: Key, size: int) -> Tensor:
        """The gradient of each record of a batch: ``[size, d]``."""
        return _finite(self._objective.gradients(self.batch(key, size)))


def _finite(gradients: Tensor) -> Tensor:
    if not bool(torch.isfinite(gradients).all()):
        raise DataError(
            "a gradient on public records is not finite: a public record is, or the model has diverged (lower lr=)."
        )
    return gradients
