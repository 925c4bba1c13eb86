"""Asking a query of private records, in one fixed shape, so that no record can raise, show or change a shape."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.privacy.clip import LARGEST_COUNT, clipped_sum
from sottovoce.privacy.errors import QueryError
from sottovoce.privacy.plan import Plan
from sottovoce.privacy.quiet import quiet
from sottovoce.privacy.records import Records
from sottovoce.privacy.sampling import Indices
from sottovoce.privacy.trees import Tree, map_leaves


class Query(Protocol):
    """A question: ``width`` numbers for each record of a batch, row i from record i alone."""

    @property
    def name(self) -> str:
        """What kind of question this is; each kind is tried on the public example first."""
        ...

    @property
    def width(self) -> int:
        """Numbers for each record."""
        ...

    def __call__(self, records: Tree) -> Tensor:
        """``[B, width]`` for a batch of B records."""
        ...


def physical_batch(plan: Plan, largest: int) -> int:
    """The one padded shape of a run: the smallest multiple of 16 that holds nearly every batch.

    Beyond ``largest`` it is the smallest that holds nearly every batch in equal parts.

    A kernel may round a row differently in another shape, and a record's contribution must not depend on who
    else was sampled; so every micro-batch has this shape, whatever the realised batch size.
    """
    expected = max(stage.sampler.largest_expected_batch() for stage in plan.stages)
    parts = math.ceil(expected / largest)
    return min(16 * math.ceil(expected / parts / 16), largest)


class Evaluator:
    """Evaluates queries on padded micro-batches and returns exact clipped integer sums."""

    __slots__ = ("_device", "_probed", "_records", "_rows")

    def __init__(self, records: Records, rows: int, device: torch.device) -> None:
        self._records = records
        self._rows = rows
        self._device = device
        self._probed: set[tuple[str, int]] = set()

    def probe(self, query: Query) -> None:
        """Try a kind of query once, on the public example, so that bugs show with their own traceback."""
        kind = (query.name, query.width)
        if kind in self._probed:
            return
        answer: Any = query(self._records.examples(self._rows, self._device))
        if not self._fits(answer, query):
            given = f"{tuple(answer.shape)} and {answer.dtype}" if isinstance(answer, Tensor) else type(answer).__name__
            needed = f"a floating-point tensor of shape ({self._rows}, {query.width}), one row for each"
            raise QueryError(f"the query {query.name!r} gave {given} for {self._rows} records; it must give {needed}.")
        self._probed.add(kind)

    def sums(
        self, query: Query, indices: Indices, seed: int, *, bound: float, grid: float, prescale: float = 1.0
    ) -> NDArray[np.int64]:
        """The exact sum over these records, in grid units; an empty batch runs one micro-batch of padding."""
        total = torch.zeros(query.width, dtype=torch.float64, device=self._device)
        for start in range(0, max(1, len(indices)), self._rows):
            records, kept = self._records.batch(indices[start : start + self._rows], self._rows, self._device, seed)
            rows, kept = self._rows_of(query, records, kept, seed + LARGEST_COUNT + start)
            total += clipped_sum(rows, kept, bound=bound, grid=grid, prescale=prescale).to(self._device)
        return total.cpu().numpy().astype(np.int64)

    def _rows_of(self, query: Query, records: Tree, kept: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """The query's rows. If the micro-batch raises, each record is asked alone, in its own slot."""
        together = self._quietly(query, records, seed)
        if together is not None:
            return together, kept
        rows = torch.zeros(self._rows, query.width, dtype=torch.float64, device=self._device)
        for row in (int(index) for index in torch.nonzero(kept)[:, 0]):
            alone = self._quietly(query, self._records.alone(records, row, self._device), seed)
            if alone is None:
                kept[row] = False
            else:
                rows[row] = alone[row].to(torch.float64)
        return rows, kept

    def _quietly(self, query: Query, records: Tree, seed: int) -> Tensor | None:
        """The answer, or None for whatever went wrong: neither an error nor a warning may speak of a record."""
        copy = map_leaves(torch.clone, records)  # a loss that writes into its batch must not reach the next question
        try:
            with quiet(self._device, seed):
                answer: Any = query(copy)
        except KeyboardInterrupt:
            raise
        except BaseException:  # some libraries' errors derive from it
            return None
        return answer if self._fits(answer, query) else None

    def _fits(self, answer: Any, query: Query) -> bool:
        shape = (self._rows, query.width)
        return isinstance(answer, Tensor) and tuple(answer.shape) == shape and answer.dtype.is_floating_point
