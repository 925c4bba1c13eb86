"""A black box ``f(x, record) -> value``, NumPy in and out, evaluated at many points and records at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import ConfigurationError, QueryError
from sottovoce.privacy.trees import Tree, map_leaves

Function = Callable[[NDArray[np.float64], Any], Any]
"""``f(x, record)`` with x of shape ``[d]``; or, vectorised, ``f(points, records)`` with ``[N, d]`` and N records."""

Floats = NDArray[np.float64]

BLOCK = 10_000
"""Values asked for in one call of a vectorised function, about."""


@dataclass(frozen=True)
class BlackBox:
    """A function of a point and a record.

    Attributes:
        function: the user's.
        dimension: d.
        vectorised: whether one call takes N points with N records, row by row, and gives N values.
        executor: where calls run; by default here, one after the other.
        width: numbers for each record: None for one value, d for a gradient.
    """

    function: Function
    dimension: int
    vectorised: bool
    executor: Executor | None = None
    width: int | None = None

    @classmethod
    def of(
        cls, function: Function, start: Floats, example: Tree, *, vectorised: bool | None, executor: Executor | None,
        gradient: bool = False,
    ) -> BlackBox:  # fmt: skip
        """Try the function on the public example, with the user's own traceback, and find out what it takes.

        Raises:
            ConfigurationError: it takes neither form, or gives something else than one number for each record.
            QueryError: a record's value depends on the records beside it.
        """
        width = len(start) if gradient else None
        takes_batches = _takes_batches(function, start, example, width) if vectorised is None else vectorised
        given = cls(function, len(start), bool(takes_batches), executor, width)
        given._check(start, example)
        return given

    def values(self, points: Floats, records: Tree) -> Floats:
        """``[N]``, or ``[N, width]``, for points ``[N, d]`` and N records: row i from point i and record i.

        One record at a time, what cannot be evaluated is NaN, and the record counts as zero. A vectorised call that
        fails raises: the curator then asks every record alone, in its own row, so that the others keep their last bits.
        """
        rows = len(points)
        given = map_leaves(_as_array, records)
        if not self.vectorised:
            pairs = ((points[row], _row(given, row)) for row in range(rows))
            return np.asarray(list(self._each(partial(_value_of, self.width), pairs)), dtype=np.float64)
        blocks = [slice(first, min(rows, first + BLOCK)) for first in range(0, rows, BLOCK)]
        parts = ((points[block], map_leaves(partial(_part, block), given)) for block in blocks)
        return np.concatenate(list(self._each(partial(_values_of, self.width), parts)))

    def _each(self, evaluate: Callable[..., Any], arguments: Any) -> Iterator[Any]:
        work = partial(evaluate, self.function)
        if self.executor is None:
            return (work(*pair) for pair in arguments)
        return self.executor.map(work, *zip(*arguments, strict=True))

    def _check(self, start: Floats, example: Tree) -> None:
        """Two rows in one call, with the user's own traceback; then in several companies."""
        two = map_leaves(lambda leaf: _as_array(leaf)[None].repeat(2, axis=0), example)
        points = np.stack([start, start])
        if not self.vectorised:
            _answer(self.width, self.function(start.copy(), _row(two, 0)))
            return
        found = self.function(points.copy(), two)
        if np.shape(found) != _shape(2, self.width):
            raise ConfigurationError(
                f"the function gave shape {np.shape(found)} for two points {points.shape} and two records: it must "
                f"give one value for each, shape {_shape(2, self.width)}. vectorised=False is for one of each."
            )
        alone = self.values(points.copy(), map_leaves(torch.as_tensor, two))
        for made_up in variants(example).values():
            together = map_leaves(lambda own, other: torch.stack([own, other]), example, made_up)
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                    beside = self.values(points.copy(), together)
            except Exception:  # the function's own error about a made-up record
                continue
            if not np.array_equal(beside[:1], alone[:1], equal_nan=True):
                raise QueryError(
                    "the function's value for a record depends on the records beside it in the call: value i must come "
                    "from point i and record i alone. No noise makes up for that."
                )


def _takes_batches(function: Function, start: Floats, example: Tree, width: int | None) -> bool:
    """Whether it gives three values for three points and three records, the ones that it gives for one of each.

    A function of one point may take matrices by accident, as in ``abs(x - record).sum()``: it then gives one number.
    """
    three = map_leaves(lambda leaf: _as_array(leaf)[None].repeat(3, axis=0), example)
    try:
        found = np.asarray(function(np.stack([start] * 3), three))
        return found.shape == _shape(3, width)
    except Exception:
        return False


def _value_of(width: int | None, function: Function, point: Floats, record: Any) -> Any:
    try:
        return _answer(width, function(point, record))
    except KeyboardInterrupt:
        raise
    except BaseException:  # tried on the public example before: what is left speaks of a record
        return np.full(_shape(1, width)[1:], np.nan)


def _values_of(width: int | None, function: Function, points: Floats, records: Any) -> Floats:
    rows = len(points)  # the function may do with its points what it likes: they are not used again
    found = np.asarray(function(points, records), dtype=np.float64)
    if found.shape != _shape(rows, width):
        raise QueryError("a vectorised function gave another number of values than it was given points.")
    return found


def _answer(width: int | None, value: Any) -> Any:
    """One number, or one vector of ``width``."""
    found = np.asarray(value, dtype=np.float64)
    wanted = _shape(1, width)[1:]
    if found.shape != wanted and not (width is None and found.size == 1):
        needed = "one number" if width is None else f"a vector of {width}"
        raise ConfigurationError(
            f"the function gave shape {found.shape} for one point and one record: it must give {needed}."
        )
    return found.reshape(wanted)


def _shape(rows: int, width: int | None) -> tuple[int, ...]:
    return (rows,) if width is None else (rows, width)


def _as_array(leaf: Any) -> NDArray[Any]:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _row(records: Any, row: int) -> Any:
    return map_leaves(lambda leaf: leaf[row], records)


def _part(block: slice, leaf: NDArray[Any]) -> NDArray[Any]:
    return leaf[block]
