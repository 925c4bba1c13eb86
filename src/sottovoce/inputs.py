"""What users pass as ``private=`` and as public data, checked and brought into one form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from sottovoce.privacy.errors import DataError
from sottovoce.privacy.records import Records
from sottovoce.privacy.trees import Tree, leaves_of, map_leaves


def as_records(private: Any, example: Tree | None = None, public: Any = None) -> Records:
    """Private records from a tree of tensors or arrays, or from a map-style data set of fixed-shape items.

    The number of records, and every record's shape and type, are treated as public; no value is looked at.

    What has a fixed form (a tree, a TensorDataset or a Subset of one) gives it, and its example is by default a record
    of zeros. Any other data set could show its form only through an item, and no record may decide how the others are
    read: a public ``example`` is needed, or ``public`` data, whose first record then serves. It alone fixes structure,
    shapes and types. Each item is converted to it; one that cannot be read, has another shape, or whose values the
    example's types cannot hold (2.5 or NaN among integers) counts as zero, and nothing tells so. The references
    without privacy name such an item.

    Raises:
        DataError: the data, as a whole, are not records; the example has another form; or there is none.
    """
    name = "private="
    if (tree := tensors_of(private)) is not None:
        source = _tree_of(tree, name)
        return Records(source, _checked(example, _one_of(source)))
    _check_items(private, name)
    if (tensors := _tensors_behind(private)) is not None:
        return Records(private, _checked(example, _one_of(tensors)), as_tree)
    if example is None and public is None:
        raise DataError(
            f"private= is a {type(private).__name__}, a data set of items, and no private record may decide what form "
            "they have: give one public record of that form as example=, such as example=(torch.zeros(3), "
            "torch.tensor(0)) for pairs of three inputs and a label, or example=public[0]. It fixes the shapes and "
            "types of all; an item that does not fit them counts as zero."
        )
    return Records(private, _first_of(public) if example is None else as_tree(example), as_tree)


def as_public(public: Any, name: str) -> Tree:
    """Public records in memory, as one tree of tensors: from whatever `as_records` takes.

    Raises:
        DataError: they are not records of one form; the message says why, as nothing in them is private.
    """
    if (tree := tensors_of(public)) is not None:
        return _tree_of(tree, name)
    _check_items(public, name)
    items: list[Tree] = []
    for index in range(len(public)):
        items.append(_public_item(public, index, name))
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


def tensors_of(data: Any) -> Tree | None:
    """The tree of tensors or arrays that the data are, or that a TensorDataset holds; None for any other data set."""
    if isinstance(data, TensorDataset) and type(data).__getitem__ is TensorDataset.__getitem__:
        return data.tensors
    return data if isinstance(data, Tensor | np.ndarray | tuple | list | Mapping) else None


def _tensors_behind(data: Any) -> Tree | None:
    """The tensors that nested subsets choose items from."""
    while type(data) is Subset:
        data = data.dataset
    return data.tensors if isinstance(data, TensorDataset) and tensors_of(data) is not None else None


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


def _first_of(public: Any) -> Tree:
    """The first public record."""
    if (tree := tensors_of(public)) is not None:
        return map_leaves(lambda leaf: leaf[0], _tree_of(tree, "public="))
    _check_items(public, "public=")
    return _public_item(public, 0, "public=")


def _public_item(items: Any, index: int, name: str) -> Tree:
    try:
        return as_tree(items[index])
    except Exception as error:
        raise DataError(f"item {index} of {name} cannot be read: {type(error).__name__}: {error}") from error


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
