"""What users pass as ``private=``, checked and brought into one form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from sottovoce.privacy.errors import DataError
from sottovoce.privacy.quiet import quiet
from sottovoce.privacy.records import Records
from sottovoce.privacy.trees import Tree, leaves_of, map_leaves


def as_records(private: Any, example: Tree | None = None) -> Records:
    """Private records from a tree of tensors or arrays, or from a map-style data set of fixed-shape items.

    The number of records, and every record's shape and type, are treated as public; no value is looked at.
    The example is by default a record of zeros.
    """
    if isinstance(private, TensorDataset):
        private = private.tensors
    if isinstance(private, Tensor | np.ndarray | tuple | list | Mapping):
        source = map_leaves(_as_tensor, private)
        _check_lengths(leaves_of(source))
        form = map_leaves(lambda leaf: torch.zeros(leaf.shape[1:], dtype=leaf.dtype), source)
        return Records(source, _checked(example, form))
    if not (hasattr(private, "__len__") and hasattr(private, "__getitem__")):
        raise DataError(
            f"private= is a {type(private).__name__}: give a tensor, an array, a tuple or dict of them, or a data set "
            "with __len__ and __getitem__ (an iterator cannot be sampled)."
        )
    if len(private) == 0:
        raise DataError("private= is empty: at least one record is needed.")
    if example is None:
        return Records(private, map_leaves(torch.zeros_like, _first_readable(private)), as_tree)
    return Records(private, as_tree(example), as_tree)


def as_tree(item: Any) -> Tree:
    """One item of a data set as a tree of tensors."""
    return map_leaves(_as_tensor, item)


def _as_tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf.detach()
    try:
        return torch.as_tensor(leaf if np.ndim(leaf) == 0 else np.asarray(leaf))
    except (TypeError, ValueError, RuntimeError):
        raise DataError(
            f"a leaf of type {type(leaf).__name__} is not numeric: records are tensors, arrays or numbers, or tuples "
            "and dicts of them; encode text and categories as integers first."
        ) from None


def _check_lengths(leaves: list[Tensor]) -> None:
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise DataError("private= needs at least one array, each with a leading dimension of records.")
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) > 1:
        raise DataError("the arrays of private= have different lengths: their leading dimensions must agree.")
    if lengths == {0}:
        raise DataError("private= is empty: at least one record is needed.")


def _first_readable(private: Any) -> Tree:
    """The form of the items. One unreadable item must not decide whether a run can start, so others are tried."""
    for index in range(len(private)):
        try:
            with quiet(torch.device("cpu"), index):
                return as_tree(private[index])
        except Exception:
            continue
    raise DataError("no item of private= can be read; give example= and check its __getitem__.")


def _checked(example: Tree | None, form: Tree) -> Tree:
    if example is None:
        return form

    def check(wanted: Tensor, given: Tensor) -> None:
        if wanted.shape != given.shape or wanted.dtype != given.dtype:
            raise DataError(
                f"example= has a leaf of shape {tuple(given.shape)} and type {given.dtype}, the records have "
                f"{tuple(wanted.shape)} and {wanted.dtype}: give one record, without a batch dimension."
            )

    example = as_tree(example)
    try:
        map_leaves(check, form, example)
    except DataError:
        raise
    except (KeyError, TypeError, ValueError):
        raise DataError("example= does not have the form of a record of private=.") from None
    return example
