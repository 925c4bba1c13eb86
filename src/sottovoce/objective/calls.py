"""One call of a user's function: seeded by itself, silent in a worker, and never the owner of what it returned."""

from __future__ import annotations

import logging
import os
import random
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.privacy.errors import ConfigurationError, QueryError

Floats = NDArray[np.float64]


def value_of(settings: Settings, seed: int, point: Floats, record: Any) -> Any:
    """The answer for one point and one record; NaN for whatever went wrong."""
    try:
        with settings.around(seed):
            return answer_of(settings.width, settings.function(point, record))
    except KeyboardInterrupt:
        raise
    except BaseException:  # tried on the public example before: what is left speaks of a record
        return np.full(shape_of(1, settings.width)[1:], np.nan)


def values_of(settings: Settings, seed: int, points: Floats, records: Any) -> Floats:
    """The answers of a vectorised function; raises what it raises."""
    rows = len(points)  # the function may do with its points what it likes: they are not used again
    with settings.around(seed):
        found = np.array(settings.function(points, records), dtype=np.float64)
    if found.shape != shape_of(rows, settings.width):
        raise QueryError("a vectorised function gave another number of values than it was given points.")
    return found


class Settings:
    """The function, what it gives, and the process in which the run is."""

    def __init__(self, function: Callable[..., Any], width: int | None) -> None:
        self.function, self.width, self.home = function, width, os.getpid()

    @contextmanager
    def around(self, seed: int) -> Generator[None]:
        """Random draws begin anew for every call: how many another call made, on whatever data, changes nothing.

        Here, warnings and log records are held back by the curator, which also puts the generators back. In a worker
        of another process nobody else does.
        """
        with nullcontext() if os.getpid() == self.home else _silent():
            random.seed(seed)
            np.random.seed(seed % 2**32)
            torch.default_generator.manual_seed(seed)
            yield


@contextmanager
def _silent() -> Generator[None]:
    before = logging.root.manager.disable
    logging.disable(2**31)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def answer_of(width: int | None, value: Any) -> Any:
    """One number, or one vector of ``width``: a copy, as a function may give the same array again and again."""
    if value is None:
        raise ConfigurationError("the function gave None for one point and one record: a return is missing.")
    found = np.array(value, dtype=np.float64)
    wanted = shape_of(1, width)[1:]
    if found.shape != wanted and not (width is None and found.size == 1):
        needed = "one number" if width is None else f"a vector of {width}"
        raise ConfigurationError(
            f"the function gave shape {found.shape} for one point and one record: it must give {needed}."
        )
    return found.reshape(wanted)


def shape_of(rows: int, width: int | None) -> tuple[int, ...]:
    """Of the answers for so many rows."""
    return (rows,) if width is None else (rows, width)
