"""Runs the cells of a table, each once: what stands in the CSV file is not run again."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED as FIRST
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sottovoce.bench.cells import Cell, Row
from sottovoce.bench.contestants import find
from sottovoce.bench.measured import accuracy_on, on_device
from sottovoce.bench.runs import appending, read
from sottovoce.bench.starts import keep_start, load, start_of
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError, SottovoceError
from sottovoce.session import Session

MARKS = 10
"""How often a run is measured on validation data, at most."""


def session_of(cell: Cell, model: nn.Module) -> Session:
    """The session that trains a model as a cell says: on private records, or on public ones alone."""
    setting, contestant = load(cell.setting), find(cell.method)
    private = setting.private if contestant.trains_on == "private" else setting.public
    if cell.batch_size > (most := count(setting.private)):
        raise ConfigurationError(f"batch_size={cell.batch_size}: {cell.setting} has {most} private records.")
    return Session(
        model, setting.loss, private=private, public=setting.public if contestant.uses_public else None,
        method=contestant.method(json.loads(cell.options)),
        budget=Budget(epsilon=cell.epsilon, delta=1 / count(setting.private)) if contestant.private else None,
        steps=cell.steps, batch_size=min(cell.batch_size, count(private)), seed=cell.seed, example=setting.example,
    )  # fmt: skip


def run(cell: Cell, starts: Path | None = None, marks: int = MARKS) -> Row:
    """Train and measure. A run that diverges is a result; a mistake in the call is an error.

    Args:
        cell: what to run.
        starts: a folder that keeps warm starts, shared by all processes; without it they are computed again.
        marks: how often the model is measured on validation data, the last time at the end.
    """
    setting = load(cell.setting)
    start = start_of(cell.start, starts)
    model = start.model()
    validation, test = (on_device(part, cell.device) for part in (setting.validation, setting.test))
    found: dict[str, Any] = {"validation_accuracy": math.nan, "test_accuracy": math.nan, "status": "ok"}
    curve: list[float] = []
    seconds = 0.0
    try:
        session = session_of(cell, model)
        marked = {math.ceil(cell.steps * part / marks) for part in range(1, marks + 1)}
        clock = time.perf_counter()
        for step in session:
            if step.number in marked:
                seconds += time.perf_counter() - clock
                curve.append(round(accuracy_on(model, validation), 4))
                clock = time.perf_counter()
        found |= {"validation_accuracy": curve[-1], "test_accuracy": accuracy_on(model, test)}
        if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
            found["status"] = "diverged"
    except ConfigurationError:
        raise
    except SottovoceError as error:  # a public gradient that is not finite, an update that is not
        found["status"] = f"failed: {type(error).__name__}"
    numel = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Row(
        **dataclasses.asdict(cell), parameters=numel, records=count(setting.private),
        start_accuracy=start.accuracy, seconds=round(seconds, 4), curve=json.dumps(curve), **found,
    )  # fmt: skip


def run_all(
    cells: Sequence[Cell],
    path: Path,
    *,
    workers: int,
    tell: Callable[[Row, int, int], None],
    marks: int = MARKS,
    until: float = math.inf,
) -> list[Row]:
    """Run what is missing, and append each row as it comes. Returns the rows of all cells asked for that there are.

    Args:
        cells: what is asked for.
        path: the CSV file.
        workers: processes.
        tell: called with every new row, its number, and how many were missing.
        marks: how often a run is measured on validation data.
        until: no run begins after this time of `time.monotonic`; what is left is run another time.
    """
    have = {row.key: row for row in read(path)}
    missing = [cell for cell in dict.fromkeys(cells) if cell.key not in have]
    with appending(path) as write:
        for number, row in enumerate(_rows(missing, workers, path.parent / ".starts", marks, until), start=1):
            write(row)
            have[row.key] = row
            tell(row, number, len(missing))
    return [have[cell.key] for cell in dict.fromkeys(cells) if cell.key in have]


def _rows(cells: Sequence[Cell], workers: int, starts: Path, marks: int, until: float) -> Iterator[Row]:
    if workers < 1:
        raise ConfigurationError(f"workers={workers}: at least one process is needed.")
    if workers == 1 or len(cells) < 2:
        yield from (run(cell, starts, marks) for cell in _before(until, cells))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        list(pool.map(keep_start, dict.fromkeys(cell.start for cell in cells), itertools.repeat(starts)))
        yield from _as_they_come(pool, _before(until, cells), starts, marks, workers)


def _before(until: float, cells: Iterable[Cell]) -> Iterator[Cell]:
    return itertools.takewhile(lambda _: time.monotonic() < until, cells)


def _as_they_come(pool: Executor, cells: Iterable[Cell], starts: Path, marks: int, ahead: int) -> Iterator[Row]:
    """Results in the order in which they end; only a few cells wait, so that an interrupt loses little."""
    left, running = iter(cells), set[Future[Row]]()
    while True:
        for cell in left:
            running.add(pool.submit(run, cell, starts, marks))
            if len(running) >= ahead:
                break
        if not running:
            return
        done, running = wait(running, return_when=FIRST)
        for future in done:
            yield future.result()


def _one_thread() -> None:
    torch.set_num_threads(1)


def count(records: Any) -> int:
    """How many records there are."""
    return len(records[0])
