"""A black box ``f(x, record) -> value``, NumPy in and out, evaluated at many points and records at once."""

from __future__ import annotations

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
    """

    function: Function
    dimension: int
    vectorised: bool
    executor: Executor | None = None

    @classmethod
    def of(
        cls, function: Function, start: Floats, example: Tree, *, vectorised: bool | None, executor: Executor | None
    ) -> BlackBox:
        """Try the function on the public example, with the user's own traceback, and find out what it takes.

        Raises:
            ConfigurationError: it takes neither form, or gives something else than one number for each record.
            QueryError: a record's value depends on the records beside it.
        """
        given = cls(function, len(start), bool(vectorised), executor)
        if vectorised is None:
            given = cls(function, len(start), _takes_batches(function, start, example), executor)
        given._check(start, example)
        return given

    def values(self, points: Floats, records: Tree) -> Floats:
        """``[N]`` for points ``[N, d]`` and a tree of N records: value i belongs to point i and record i.

        One record at a time, what cannot be evaluated is NaN, and the record counts as zero. A vectorised call that
        fails raises: the curator then asks every record alone, in its own row, so that the others keep their last bits.
        """
        rows = len(points)
        given = map_leaves(_as_array, records)
        if not self.vectorised:
            pairs = ((points[row], _row(given, row)) for row in range(rows))
            return np.asarray(list(self._each(_value_of, pairs)), dtype=np.float64)
        blocks = [slice(first, min(rows, first + BLOCK)) for first in range(0, rows, BLOCK)]
        parts = ((points[block], map_leaves(partial(_part, block), given)) for block in blocks)
        return np.concatenate(list(self._each(_values_of, parts)))

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
            _number(self.function(start.copy(), _row(two, 0)))
            return
        found = self.function(points.copy(), two)
        if np.shape(found) != (2,):
            raise ConfigurationError(
                f"the function gave shape {np.shape(found)} for two points {points.shape} and two records: it must "
                "give one value for each, shape (2,). Give vectorised=False if it takes one point and one record."
            )
        alone = self.values(points, map_leaves(torch.as_tensor, two))
        for made_up in variants(example).values():
            together = map_leaves(lambda own, other: torch.stack([own, other]), example, made_up)
            try:
                beside = self.values(points, together)
            except Exception:  # the function's own error about a made-up record
                continue
            if not np.array_equal(beside[:1], alone[:1], equal_nan=True):
                raise QueryError(
                    "the function's value for a record depends on the records beside it in the call: value i must come "
                    "from point i and record i alone. No noise makes up for that."
                )


def _takes_batches(function: Function, start: Floats, example: Tree) -> bool:
    """Whether it gives three values for three points and three records, the ones that it gives for one of each.

    A function of one point may take matrices by accident, as in ``abs(x - record).sum()``: it then gives one number.
    """
    three = map_leaves(lambda leaf: _as_array(leaf)[None].repeat(3, axis=0), example)
    try:
        found = np.asarray(function(np.stack([start] * 3), three))
        return found.shape == (3,)
    except Exception:
        return False


def _value_of(function: Function, point: Floats, record: Any) -> float:
    try:
        return _number(function(point.copy(), record))
    except KeyboardInterrupt:
        raise
    except BaseException:  # tried on the public example before: what is left speaks of a record
        return np.nan


def _values_of(function: Function, points: Floats, records: Any) -> Floats:
    found = np.asarray(function(points.copy(), records), dtype=np.float64)
    if found.shape != (len(points),):
        raise QueryError("a vectorised function gave another number of values than it was given points.")
    return found


def _number(value: Any) -> float:
    if np.ndim(value) != 0 and np.size(value) != 1:
        raise ConfigurationError(
            f"the function gave shape {np.shape(value)} for one point and one record: it must give one number."
        )
    return float(np.asarray(value, dtype=np.float64).reshape(()))


def _as_array(leaf: Any) -> NDArray[Any]:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _row(records: Any, row: int) -> Any:
    return map_leaves(lambda leaf: leaf[row], records)


def _part(block: slice, leaf: NDArray[Any]) -> NDArray[Any]:
    return leaf[block]
