"""Batches without privacy, for the reference methods SGD and MeZO. NOT PRIVATE; seeded, shuffled, fixed in size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from sottovoce.objective.directions import Key
from sottovoce.privacy.errors import DataError
from sottovoce.privacy.records import Records
from sottovoce.privacy.statement import Statement


def plain_batches(records: Records, *, size: int, steps: int, key: Key, device: torch.device) -> Iterator[Any]:
    """Shuffled epochs of full batches, from a public seed.

    Raises:
        DataError: an item cannot be read, or has another form than the example. Nothing is private here: it is named.
    """
    generator = key.fold("plain batches").generator()
    order = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        while len(order) < size:
            order = np.concatenate([order, generator.permutation(records.count)])
        batch, kept = records.batch(order[:size], size, device)
        if not bool(kept.all()):
            bad = int(order[:size][~kept.numpy()][0])
            raise DataError(
                f"item {bad} of private= cannot be read, or cannot be converted to the example's shapes and types; "
                f"private[{bad}] shows which. A private method would count it as zero; mend or leave out the item, or "
                "give another example=."
            )
        yield batch
        order = order[size:]


def plain_statement(method: object, *, steps: int, steps_run: int) -> Statement:
    """Says that nothing is guaranteed."""
    return Statement(
        private=False,
        epsilon=math.inf,
        epsilon_spent=math.inf,
        delta=0.0,
        neighbours="none",
        unit="record",
        relation=f"{type(method).__name__} is a reference without privacy: it read the records directly.",
        steps_planned=steps,
        steps_run=steps_run,
        dataset="treated as public",
        public=("everything",),
        not_covered=("everything",),
    )
