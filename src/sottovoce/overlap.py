"""Whether what is declared public is the private data: the same items, or the same memory. No private value is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from sottovoce.inputs import tensors_of
from sottovoce.privacy.errors import DataError

_ITEMS_READ = 256
"""Public items of a data set of the user's own whose memory is looked at, spread over it evenly."""


_SCALARS = frozenset((int, float, str, bytes, bool, type(None)))
"""What holds no memory to be compared, and can come in millions."""


class _Part(NamedTuple):
    """What data consist of.

    Attributes:
        source: a data set or a tree.
        rows: those that are taken from it; None for all.
        held: what a data set of the user's own keeps in its attributes.
    """

    source: Any
    rows: NDArray[np.int64] | None
    held: list[Any]


def refuse_private_as_public(private: Any, public: Any, name: str = "public=") -> None:
    """Refuse public data that are the private data, or part of them.

    Found are common items of one data set (any object, through Subset and ConcatDataset, and where a data set of the
    user's own keeps others in its attributes), and common memory of tensors and arrays: those that are given, those in
    a TensorDataset, those in the attributes of a data set of the user's own (in lists, tuples and dicts too), and up
    to 256 items of the public one. Disjoint subsets of one data set, and disjoint slices of one tensor, are allowed.

    Not found is what is equal in value but lies elsewhere: copies, a file that is opened twice, numbers and texts in
    lists of the user's own, tables of other libraries, what an attribute's own attributes or a function's closure hold,
    and records that are made anew whenever they are asked for. Finding that would take a comparison that reads private
    records.

    Args:
        private: the private records, in any form.
        public: what is declared public, in any form; or one record.
        name: what the message calls it.
    """
    mend = (
        "example= must be a public record: give a copy of one (.clone()), or made-up values such as zeros."
        if name == "example="
        else f"{name} must be other records. Take Subsets of one data set without common items, or give the public "
        "records alone, as copies (.clone()) if they are interleaved with private ones or come from one object."
    )
    own, given = _parts(private), _parts(public)
    for mine in own:
        for theirs in given:
            if mine.source is not theirs.source:
                continue
            if mine.rows is None or theirs.rows is None or bool(np.isin(mine.rows, theirs.rows).any()):
                raise DataError(f"{name} and private= read the same items of one data set: {mend}")
    memory = [(mine.source, _spans(_held(mine))) for mine in own]
    for theirs in given:  # of one source the rows were compared above
        others = [spans for source, spans in memory if source is not theirs.source and len(spans)]
        if others and _meet(np.concatenate(others), _spans(_held(theirs, read=True))):
            raise DataError(f"{name} and private= share memory: {mend}")


def _parts(data: Any, rows: NDArray[np.int64] | None = None, seen: frozenset[int] = frozenset()) -> list[_Part]:
    """What is behind subsets, concatenations and data sets of the user's own, with the rows taken from each."""
    if isinstance(data, Subset):
        return _parts(data.dataset, _chosen(data.indices, rows), seen)
    rows = None if rows is None else _within(rows, data)
    if rows is not None and not len(rows):
        return []
    if isinstance(data, ConcatDataset):
        ends = np.asarray(data.cumulative_sizes)
        return [
            part
            for inner, start, end in zip(data.datasets, [0, *ends[:-1]], ends, strict=True)
            for part in _parts(inner, None if rows is None else rows[(rows >= start) & (rows < end)] - start, seen)
        ]
    known = tensors_of(data) is not None or id(data) in seen
    held = [] if known else list(_leaves(_attributes(data)))
    parts = [_Part(data, rows, held)]
    for inner in held:
        parts += _parts(inner, None, seen | {id(data)}) if isinstance(inner, Dataset) else []
    return parts


def _attributes(data: Any) -> list[Any]:
    """What an object keeps, in its dictionary and in the slots of its classes."""
    slots = [name for kind in type(data).__mro__ for name in np.atleast_1d(vars(kind).get("__slots__", ())).tolist()]
    return [*getattr(data, "__dict__", {}).values(), *(getattr(data, name, None) for name in slots)]


def _chosen(indices: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Which rows of its source a subset takes, of which only some may be asked for."""
    try:
        own = np.fromiter((int(index) for index in indices), np.int64)
    except (TypeError, ValueError):  # keys that are no numbers: perhaps all
        return None
    return own if rows is None else own[_within(rows, own)]


def _within(rows: NDArray[np.int64], source: Any) -> NDArray[np.int64]:
    """The rows that exist, counted from the start."""
    try:
        count = len(source)
    except (TypeError, NotImplementedError):
        return rows
    return rows[(rows >= -count) & (rows < count)] % max(1, count)


def _held(part: _Part, *, read: bool = False) -> Iterator[tuple[Tensor | NDArray[Any], NDArray[np.int64] | None]]:
    """The tensors and arrays behind a part, each with the rows that belong to it; items are read if that is allowed."""
    source, rows, held = part
    if (tree := tensors_of(source)) is None:
        values: Any = [held, _items(source, rows) if read else ()]
        rows = None
    elif rows is not None and isinstance(source, tuple | list):  # of items
        values, rows = [source[int(row)] for row in rows], None
    else:
        values, rows = tree, None if isinstance(source, Mapping) else rows
    for leaf in _leaves(values):
        if isinstance(leaf, Tensor | np.ndarray):
            yield leaf, rows


def _items(data: Any, rows: NDArray[np.int64] | None) -> list[Any]:
    """Some public items, those that can be read."""
    items: list[Any] = []
    with contextlib.suppress(TypeError, NotImplementedError):
        chosen = np.arange(len(data)) if rows is None else rows
        for at in np.unique(np.linspace(0, len(chosen) - 1, min(len(chosen), _ITEMS_READ)).astype(np.int64)):
            with contextlib.suppress(Exception):
                items.append(data[int(chosen[at])])
    return items


def _leaves(value: Any) -> Iterator[Any]:
    """What lists, tuples and dicts hold, however deep, but for numbers and texts."""
    pending, seen = [value], set[int]()
    while pending:
        value = pending.pop()
        if not isinstance(value, tuple):  # which are many, and hold themselves only through others
            if not isinstance(value, Mapping | list):
                yield value
                continue
            if id(value) in seen:
                continue
            seen.add(id(value))
            value = _values(value)
        pending.extend([each for each in value if type(each) not in _SCALARS])


def _values(held: Any) -> list[Any]:
    try:
        return list(held.values() if isinstance(held, Mapping) else held)
    except Exception:  # a mapping of the user's own
        return []


def _spans(held: Iterable[tuple[Tensor | NDArray[Any], NDArray[np.int64] | None]]) -> NDArray[np.int64]:
    """The memory of each array, or of each of its rows, from its first byte to beyond its last: ``[k, 2]``."""
    found = [np.empty((0, 2), dtype=np.int64)]
    for leaf, rows in held:
        try:
            if isinstance(leaf, Tensor):
                size = leaf.element_size()
                start, strides = leaf.data_ptr(), [size * stride for stride in leaf.stride()]
            else:
                size, start, strides = leaf.itemsize, leaf.__array_interface__["data"][0], list(leaf.strides)
        except (RuntimeError, NotImplementedError):  # sparse, for one
            continue
        by_row = rows is not None and len(strides) > 0
        inner = [(length - 1) * stride for length, stride in zip(leaf.shape, strides, strict=True)][by_row:]
        if 0 in leaf.shape:
            continue
        starts = start + _within(rows, leaf) * strides[0] if rows is not None and by_row else np.asarray([start])
        first = starts + sum(min(0, reach) for reach in inner)
        last = starts + sum(max(0, reach) for reach in inner) + size
        found.append(np.stack([first, last], axis=1))
    return np.concatenate(found)


def _meet(own: NDArray[np.int64], given: NDArray[np.int64]) -> bool:
    """Whether any of some spans overlaps any of others."""
    own = own[np.argsort(own[:, 0])]
    furthest = np.maximum.accumulate(own[:, 1])
    before = np.searchsorted(own[:, 0], given[:, 1])  # how many start before each of the others ends
    return bool((furthest[before - 1] > given[:, 0])[before > 0].any())
