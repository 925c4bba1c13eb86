"""What users pass as ``private=`` and as public data, checked and brought into one form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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

    A data set's items have the form of the first of them that can be read; an item of another form, or that cannot be
    read, counts as zero. Where none can be read, a given example alone decides.
    """
    name = "private="
    private = _unwrapped(private)
    if _is_tree(private):
        source = _tree_of(private, name)
        return Records(source, _checked(example, _one_of(source)))
    _check_items(private, name)
    form = _first_readable(private)
    if form is not None:
        return Records(private, _checked(example, map_leaves(torch.zeros_like, form)), as_tree)
    if example is None:
        raise DataError(
            "no item of private= can be read as a record: private[0] to private[len(private) - 1] must be numbers, "
            "arrays or tensors, or tuples and dicts of them. Give tables as arrays, such as frame.to_numpy()."
        )
    return Records(private, as_tree(example), as_tree)


def as_public(public: Any, name: str) -> Tree:
    """Public records in memory, as one tree of tensors: from whatever `as_records` takes.

    Raises:
        DataError: they are not records of one form; the message says why, as nothing in them is private.
    """
    public = _unwrapped(public)
    if _is_tree(public):
        return _tree_of(public, name)
    _check_items(public, name)
    items: list[Tree] = []
    for index in range(len(public)):
        try:
            items.append(as_tree(public[index]))
        except Exception as error:
            raise DataError(f"item {index} of {name} cannot be read: {type(error).__name__}: {error}") from error
        if form_of(items[index]) != form_of(items[0]):
            raise DataError(
                f"item {index} of {name} is {form_of(items[index])}, item 0 is {form_of(items[0])}: one form is needed."
            )
    return map_leaves(lambda *leaves: torch.stack(leaves), items[0], *items[1:])


def as_tree(item: Any) -> Tree:
    """One item of a data set as a tree of tensors."""
    return map_leaves(_as_tensor, item)


def form_of(record: Tree) -> str:
    """The structure of a record, with the shape and type of each leaf, in words."""

    def leaf_form(leaf: Tensor) -> str:
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"

    return repr(map_leaves(leaf_form, record)).replace("'", "")


def forms_of(batch: Tree) -> str:
    """The form of each record of a batch."""
    return form_of(_one_of(batch))


def _one_of(source: Tree) -> Tree:
    """A record of zeros of the form of a tree's records."""
    return map_leaves(lambda leaf: torch.zeros(leaf.shape[1:], dtype=leaf.dtype), source)


def _unwrapped(data: Any) -> Any:
    return data.tensors if isinstance(data, TensorDataset) else data


def _is_tree(data: Any) -> bool:
    return isinstance(data, Tensor | np.ndarray | tuple | list | Mapping)


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


def _tree_of(data: Any, name: str) -> Tree:
    """A tree of tensors with one common leading dimension, which is not zero."""
    tree = map_leaves(_as_tensor, data)
    leaves = leaves_of(tree)
    hint = (
        " A list is taken for a tree of arrays, not for a list of records: give columns, as in (np.asarray(inputs), "
        "np.asarray(targets)), or a data set (torch.utils.data.Dataset) whose items are the records."
        if isinstance(data, list)
        else ""
    )
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise DataError(f"{name} needs at least one array, each with a leading dimension of records.{hint}")
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) > 1:
        raise DataError(f"the arrays of {name} have different lengths: their leading dimensions must agree.{hint}")
    if lengths == {0}:
        raise DataError(f"{name} is empty: at least one record is needed.")
    return tree


def _check_items(data: Any, name: str) -> None:
    """What is not a tree must be a map-style data set."""
    if isinstance(data, str | bytes | Path):
        raise DataError(
            f"{name} is {data!r}, which is text and is not opened: read the file, and give its records as arrays, such "
            "as np.loadtxt(path, delimiter=','), or as a data set."
        )
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(
            f"{name} is a {type(data).__name__}: give a tensor, an array, a tuple or dict of them, or a data set "
            "with __len__ and __getitem__ (an iterator cannot be sampled)."
        )
    if len(data) == 0:
        raise DataError(f"{name} is empty: at least one record is needed.")


def _first_readable(private: Any) -> Tree | None:
    """The form of the items. One unreadable item must not decide whether a run can start, so others are tried."""
    for index in range(len(private)):
        try:
            with quiet(torch.device("cpu"), index):
                return as_tree(private[index])
        except KeyboardInterrupt:
            raise
        except BaseException:  # some libraries' errors derive from it
            continue
    return None


def _checked(example: Tree | None, form: Tree) -> Tree:
    """The example, if it has the form of the records; its default is the form, which is a record of zeros."""
    if example is None:
        return form
    example = as_tree(example)

    def agree(wanted: Tensor, given: Any) -> None:
        if wanted.shape != given.shape or wanted.dtype != given.dtype:
            raise ValueError

    try:
        map_leaves(agree, form, example)
        map_leaves(agree, example, form)  # a key too many shows from this side
    except Exception:
        raise DataError(
            f"example= is {form_of(example)} and the records are {form_of(form)}: give one record of their form, of "
            "the same shapes and types, without a batch dimension."
        ) from None
    return example
