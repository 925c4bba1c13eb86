"""Switches for tests. Whatever is made under one of them is NOT PRIVATE and says so everywhere.

They are read when a session is made and hold for its life; a named data set refuses such a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sottovoce.privacy.entropy import switches


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
    return _switched(fixed_entropy=str(key))


def expose_answers() -> Any:
    """Keep the exact integer sums of every release in ``session.exposed``: to measure sensitivities."""
    return _switched(expose_answers=True)
