"""Switches for tests. Whatever is made under one of them is NOT PRIVATE and says so everywhere.

They are read when a session is made and hold for its life; a named data set refuses such a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy.entropy import Entropy, switches


class ReplayableEntropy:
    """NOT PRIVATE. A stream of words fixed by its key."""

    def __init__(self, key: str) -> None:
        self._key = key
        seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "little")
        self._generator = np.random.Philox(key=seed)

    def fork(self, *purpose: str | int) -> Entropy:
        """An independent stream that depends on this key and the purpose alone, not on what was drawn."""
        return ReplayableEntropy("/".join([self._key, *map(str, purpose)]))

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of this stream."""
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)


@contextmanager
def _switched(**changes: Any) -> Iterator[None]:
    token = switches.set(replace(switches.get(), **changes))
    try:
        yield
    finally:
        switches.reset(token)


def no_noise() -> Any:
    """Release exact clipped sums: to compare with a reference, or to see what the clip alone costs."""
    return _switched(no_noise=True)


def fixed_entropy(key: int | str) -> Any:
    """Draw batches and noise from a stream fixed by ``key``: to replay a run, or to compare neighbours."""
    return _switched(fixed_entropy=ReplayableEntropy(str(key)))


def expose_answers() -> Any:
    """Keep the exact integer sums of every release in ``session.exposed``: to measure sensitivities."""
    return _switched(expose_answers=True)
