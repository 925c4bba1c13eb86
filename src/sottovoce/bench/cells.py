"""One run of a table, what tells it apart from others, and what came of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sottovoce.bench.starts import StartKey

SELECT, REPORT = "select", "report"
"""Settings are chosen on validation data in the first stage; the second reports test data."""

QUERIES, SHIFT, SENSITIVITY = "queries", "shift", "sensitivity"
"""Side experiments: Table 11, Table 7 and Figure 6."""

SHIFTS = {"imbalance": ("slight", "half", "big"), "shift": ("none", "half", "full")}
"""Options of settings that move the public data away from the private data: class sizes, or another corpus."""


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
        """Where the run starts from; the same model however far the public data is moved."""
        setting = self.setting if self.stage != SHIFT else with_options(self.setting, without=SHIFTS)
        return StartKey(setting, self.seed, self.warm_start, self.device)

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


def with_options(setting: str, *more: str, without: Iterable[str] = ()) -> str:
    """A setting's name without some of its options, and with more."""
    base, _, rest = setting.partition(":")
    dropped = tuple(f"{name}=" for name in without)
    kept = [part for part in rest.split(",") if part and not part.startswith(dropped)] if dropped else rest.split(",")
    options = ",".join(part for part in (*kept, *more) if part)
    return f"{base}:{options}" if options else base


def options_of(point: Mapping[str, Any]) -> str:
    """Settings as JSON."""
    return json.dumps(dict(point), sort_keys=True)
