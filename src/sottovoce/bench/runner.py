"""Runs the cells of a table, each once: what stands in the CSV file is not run again."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED as FIRST
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from sottovoce.bench.contestants import find
from sottovoce.bench.starts import StartKey, keep_start, load, start_of
from sottovoce.fit import evaluate
from sottovoce.losses import accuracy
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError, SottovoceError
from sottovoce.session import Session

SELECT, REPORT = "select", "report"
"""Settings are chosen on validation data in the first stage; the second reports test data."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run.

    Attributes:
        setting: the name of a setting, with options: ``"fashion-mnist"`` or ``"fashion-mnist:imbalance=big"``.
        method: the name of a contestant.
        epsilon: the budget; infinite for contestants without one.
        seed: of model, directions and public batches; noise and private batches have none.
        stage: ``"select"`` or ``"report"``, or the name of a side experiment.
        options: the method's settings, as JSON with sorted keys.
        steps: the number of steps.
        batch_size: the expected number of private records in a step.
        warm_start: steps of SGD on public records that every contestant starts from; 0 for a random start.
        device: where the model is.
    """

    setting: str
    method: str
    epsilon: float
    seed: int
    stage: str
    options: str
    steps: int
    batch_size: int
    warm_start: int
    device: str = "cpu"

    @property
    def start(self) -> StartKey:
        """Where the run starts from."""
        return StartKey(self.setting, self.seed, self.warm_start, self.device)

    @property
    def key(self) -> tuple[str, ...]:
        """What tells cells apart in the CSV file: everything but the device."""
        return tuple(str(getattr(self, each.name)) for each in dataclasses.fields(Cell) if each.name != "device")


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """A cell and what came of it; accuracies are NaN where the run failed.

    Attributes:
        curve: validation accuracy after tenths of the run.
        seconds: of the training steps alone.
        status: ``"ok"``, or why there is no result.
    """

    parameters: int
    records: int
    start_accuracy: float
    validation_accuracy: float
    test_accuracy: float
    seconds: float
    curve: str
    status: str


def options_of(point: Mapping[str, Any]) -> str:
    """Settings as JSON."""
    return json.dumps(dict(point), sort_keys=True)


def run(cell: Cell, starts: Path | None = None) -> Row:
    """Train and measure. A run that diverges is a result; a mistake in the call is an error.

    Args:
        cell: what to run.
        starts: a folder that keeps warm starts, shared by all processes; without it they are computed again.
    """
    setting, contestant = load(cell.setting), find(cell.method)
    device = torch.device(cell.device)
    start = start_of(cell.start, starts)
    model = start.model()
    held = [_held(part, device) for part in (setting.validation, setting.test)]
    found: dict[str, Any] = {"validation_accuracy": math.nan, "test_accuracy": math.nan, "status": "ok"}
    curve: list[float] = []
    seconds = 0.0
    private = setting.private if contestant.trains_on == "private" else setting.public
    try:
        budget = Budget(epsilon=cell.epsilon, delta=1 / _count(setting.private)) if contestant.private else None
        session = Session(
            model, setting.loss, private=private, public=setting.public if contestant.uses_public else None,
            method=contestant.method(json.loads(cell.options)), budget=budget, steps=cell.steps,
            batch_size=min(cell.batch_size, _count(private)), seed=cell.seed, example=setting.example,
        )  # fmt: skip
        marks = {math.ceil(cell.steps * tenth / 10) for tenth in range(1, 11)}
        clock = time.perf_counter()
        for step in session:
            if step.number in marks:
                seconds += time.perf_counter() - clock
                curve.append(round(evaluate(model, accuracy, held[0]), 4))
                clock = time.perf_counter()
        found |= {"validation_accuracy": curve[-1], "test_accuracy": evaluate(model, accuracy, held[1])}
        if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
            found["status"] = "diverged"
    except ConfigurationError:
        raise
    except SottovoceError as error:  # a public gradient that is not finite, an update that is not
        found["status"] = f"failed: {type(error).__name__}"
    numel = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Row(
        **dataclasses.asdict(cell), parameters=numel, records=_count(setting.private),
        start_accuracy=start.accuracy, seconds=round(seconds, 4), curve=json.dumps(curve), **found,
    )  # fmt: skip


def read(path: Path) -> list[Row]:
    """The rows of a CSV file; none if there is no file.

    Raises:
        ConfigurationError: the file has other columns.
    """
    if not path.exists():
        return []
    kinds = {field.name: field.type for field in dataclasses.fields(Row)}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if set(reader.fieldnames or ()) != set(kinds):
            raise ConfigurationError(f"{path} has other columns than this release writes: take another --out folder.")
        cast: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}
        return [Row(**{name: cast[str(kinds[name])](value) for name, value in row.items()}) for row in reader]


def run_all(cells: Sequence[Cell], path: Path, *, workers: int, tell: Callable[[Row, int, int], None]) -> list[Row]:
    """Run what is missing, and append each row as it comes. Returns the rows of all cells asked for."""
    have = {row.key: row for row in read(path)}
    missing = [cell for cell in dict.fromkeys(cells) if cell.key not in have]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=[field.name for field in dataclasses.fields(Row)])
        if new:
            writer.writeheader()
        for number, row in enumerate(_rows(missing, workers, path.parent / ".starts"), start=1):
            writer.writerow(dataclasses.asdict(row))
            file.flush()
            have[row.key] = row
            tell(row, number, len(missing))
    return [have[cell.key] for cell in dict.fromkeys(cells)]


def _rows(cells: Sequence[Cell], workers: int, starts: Path) -> Iterator[Row]:
    if workers < 1:
        raise ConfigurationError(f"workers={workers}: at least one process is needed.")
    if workers == 1 or len(cells) < 2:
        yield from (run(cell, starts) for cell in cells)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        list(pool.map(keep_start, dict.fromkeys(cell.start for cell in cells), itertools.repeat(starts)))
        yield from _as_they_come(pool, cells, starts, 2 * workers)


def _as_they_come(pool: Executor, cells: Iterable[Cell], starts: Path, ahead: int) -> Iterator[Row]:
    """Results in the order in which they end; only a few cells wait, so that an interrupt loses little."""
    left, running = iter(cells), set[Future[Row]]()
    while True:
        for cell in left:
            running.add(pool.submit(run, cell, starts))
            if len(running) >= ahead:
                break
        if not running:
            return
        done, running = wait(running, return_when=FIRST)
        for future in done:
            yield future.result()


def _one_thread() -> None:
    torch.set_num_threads(1)


def _count(records: Any) -> int:
    return len(records[0])


def _held(records: Any, device: torch.device) -> Any:
    return tuple(leaf.to(device) for leaf in records)
