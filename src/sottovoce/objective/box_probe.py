"""Before a run: what a black box takes, and whether a record's value is its own, on public and made-up records."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np
import torch

from sottovoce.objective.caller import warn_caller
from sottovoce.objective.calls import Floats, answer_of, shape_of
from sottovoce.objective.evaluation import from_seed
from sottovoce.objective.function import BLOCK, BlackBox, Function
from sottovoce.objective.strategies import ObjectiveWarning
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import ConfigurationError, QueryError
from sottovoce.privacy.trees import Tree, map_leaves

_MIXED = (
    "the function's value for a record {}: value i must come from point i and record i alone, and be the same again. "
    "No noise makes up for that."
)


def box_of(
    function: Function, start: Floats, example: Tree, *, vectorised: bool | None, executor: Executor | None,
    gradient: bool = False, stands_in: bool = False,
) -> BlackBox:  # fmt: skip
    """Try the function on the public example, with the user's own traceback, and find out what it takes.

    Raises:
        ConfigurationError: it takes neither form, or gives something else than one number (or gradient) for each.
        QueryError: a record's value depends on the records beside it, or on those before it.
    """
    width = len(start) if gradient else None
    takes_batches = _takes_batches(function, start, example, width) if vectorised is None else bool(vectorised)
    box = BlackBox(function, len(start), takes_batches, executor, width)
    if takes_batches:
        found = function(np.stack([start] * 2), _copies(example, 2))
        if np.shape(found) != shape_of(2, width):
            raise ConfigurationError(
                f"the function gave shape {np.shape(found)} for two points {(2, len(start))} and two records: it must "
                f"give one value for each, shape {shape_of(2, width)}. vectorized=False is for one of each."
            )
    else:
        found = answer_of(width, function(start.copy(), map_leaves(_array, example)))
    if not np.isfinite(np.asarray(found, dtype=np.float64)).all():
        _tell_of_the_example(stands_in)
    _compare_companies(box, start, example)
    return box


def _tell_of_the_example(stands_in: bool) -> None:
    if not stands_in:
        raise ConfigurationError("the function's value for the record given as example= is not finite.")
    warn_caller(
        "the function's value for a record of zeros is not finite. It stands for a public example, on which "
        "everything is checked: give a typical public record as example=.",
        ObjectiveWarning,
    )


def _compare_companies(box: BlackBox, start: Floats, example: Tree) -> None:
    """The example on every second row, others between: its values must keep every bit, in front and behind.

    A vectorised function is tried at the number of rows of a real call, too.
    """
    for rows in (4, BLOCK) if box.vectorised else (4,):
        points = np.broadcast_to(start, (rows, len(start)))

        def asked(records: Tree, points: Floats = points) -> Floats:
            same_draws = from_seed(torch.device("cpu"))
            with same_draws, np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                return box.values(points.copy(), records)

        own = map_leaves(lambda leaf, rows=rows: torch.stack([leaf] * rows), example)
        alone = asked(own)
        for name, other in variants(example).items():
            if rows > 4 and name not in ("noise", "integers of full range"):
                continue
            company = map_leaves(_between, own, other)
            try:
                found = asked(company)
            except Exception:  # the function's own error about a made-up record
                continue
            if not _same(found[::2], alone[::2]):
                raise QueryError(_MIXED.format(f"depends on the records beside it or before it ({name})"))
        if not _same(asked(own), alone):
            raise QueryError(_MIXED.format("is another when it is asked again: it remembers"))


def _between(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    mixed = own.clone()
    mixed[1::2] = other.to(own.dtype)
    return mixed


def _takes_batches(function: Function, start: Floats, example: Tree, width: int | None) -> bool:
    """Whether for N points and N records it gives N values, each the one of its own point and record.

    A function of one point may take matrices by accident: ``sum(abs(x - record))`` gives three numbers for three rows
    of three. Where one point and one record give no single number, it is vectorised.
    """
    made_up = variants(example)["noise"]
    return any(
        _agrees(function, start, record, 3, width) and _agrees(function, start, record, 2, width)
        for record in (made_up, example)
    )


def _agrees(function: Function, start: Floats, record: Tree, rows: int, width: int | None) -> bool:
    points = start + 0.1 * np.random.default_rng(0).standard_normal((rows, len(start)))
    found = _quietly(lambda: np.array(function(points.copy(), _copies(record, rows)), dtype=np.float64))
    if found is None or found.shape != shape_of(rows, width):
        return False
    singles = [
        _quietly(lambda row=row: answer_of(width, function(points[row].copy(), map_leaves(_array, record))))
        for row in range(rows)
    ]
    return any(single is None for single in singles) or np.allclose(np.stack(singles), found, equal_nan=True)


def _quietly(evaluate: Callable[[], Any]) -> Any:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            return evaluate()
    except Exception:
        return None


def _copies(record: Tree, count: int) -> Any:
    return map_leaves(lambda leaf: np.stack([_array(leaf)] * count), record)


def _array(leaf: Any) -> Any:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _same(one: Floats, other: Floats) -> bool:
    return np.array_equal(one, other, equal_nan=True)
