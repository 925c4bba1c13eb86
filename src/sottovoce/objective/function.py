"""A black box ``f(x, record) -> value``, NumPy in and out, evaluated at many points and records at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from sottovoce.objective.calls import Floats, Settings, shape_of, value_of, values_of
from sottovoce.privacy.trees import Tree, map_leaves

Function = Callable[[Floats, Any], Any]
"""``f(x, record)`` with x of shape ``[d]``; or, vectorised, ``f(points, records)`` with ``[N, d]`` and N records."""

BLOCK = 10_000
"""Values asked for in one call of a vectorised function, about."""

_PARTS = 8
"""Calls that a block is divided into where an executor has workers for them."""


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

    def values(self, points: Floats, records: Tree) -> Floats:
        """``[N]``, or ``[N, width]``, for points ``[N, d]`` and N records: row i from point i and record i.

        One record at a time, what cannot be evaluated is NaN, and the record counts as zero. A vectorised call that
        fails raises: the curator then asks every record alone, in its own row, so that the others keep their last bits.

        Each call's random draws start from its place and one draw of this one's: a record cannot change another's.
        """
        rows, given = len(points), map_leaves(_as_array, records)
        seed = int(np.random.randint(2**31))  # inside the curator's generators, which are secret
        if not self.vectorised:
            pairs = ((seed + row, points[row], _row(given, row)) for row in range(rows))
            found = np.asarray(list(self._each(value_of, pairs)), dtype=np.float64)
        else:
            size = BLOCK if self.executor is None else max(1, min(BLOCK, -(-rows // _PARTS)))
            blocks = [slice(first, min(rows, first + size)) for first in range(0, rows, size)]
            parts = ((seed + b.start, points[b], map_leaves(partial(_part, b), given)) for b in blocks)
            found = np.concatenate(list(self._each(values_of, parts)))
        np.random.seed(seed)  # from here on draws depend on no record
        return found.reshape(shape_of(rows, self.width))

    def _each(self, evaluate: Callable[..., Any], arguments: Any) -> Iterator[Any]:
        work = partial(evaluate, Settings(self.function, self.width))
        if self.executor is None:
            return (work(*each) for each in arguments)
        each = list(arguments)
        # Processes are handed many at a time; threads take no notice.
        return self.executor.map(work, *zip(*each, strict=True), chunksize=max(1, len(each) // 32))


def _as_array(leaf: Any) -> Any:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _row(records: Any, row: int) -> Any:
    return map_leaves(lambda leaf: leaf[row], records)


def _part(block: slice, leaf: Any) -> Any:
    return leaf[block]
