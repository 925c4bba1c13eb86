"""A tiny setting that takes no data from the disk, and rows made up for tables."""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from torch import Tensor, nn

from sottovoce.bench.cells import REPORT, Row
from sottovoce.losses import cross_entropy
from sottovoce.tasks.settings import Setting

GRIDS: dict[str, Any] = {
    "SGD": ({"lr": 0.1}, {"lr": 0.5}),
    "MeZO": ({"lr": 0.01},),
    "DPSGD": ({"lr": 0.5}, {"lr": 1.0}),
    "DPZero": ({"lr": 0.01, "queries": 2},),
    "DPMD": ({"lr": 0.5, "public_batch": 8},),
    "DopeSGD": ({"lr": 0.5, "public_batch": 8},),
    "GEP": ({"lr": 0.5, "bases": 3, "groups": 1, "public_batch": 8},),
    "PazoM": ({"lr": 0.5, "public_batch": 8},),
    "PazoP": ({"lr": 0.5, "subspace": 2, "public_batch": 8},),
    "PazoS": ({"lr": 0.5, "public_batch": 8},),
}


def part(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def make_model(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(4, 2)


def setting(name: str = "tiny", **_: Any) -> Setting:
    return Setting(
        name=name, title="Tiny", paper="not in the paper", private=part(120, 0), public=part(20, 1),
        validation=part(30, 2), test=part(40, 3), make_model=make_model, loss=cross_entropy,
        example=(torch.zeros(4), torch.tensor(0)), steps=4, batch_size=12, grids=GRIDS,
    )  # fmt: skip


def row(method: str, epsilon: float, accuracy: float, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "setting": "tiny", "method": method, "epsilon": epsilon, "seed": 0, "stage": REPORT, "options": "{}",
        "steps": 10, "batch_size": 8, "warm_start": 0, "parameters": 10, "records": 120, "start_accuracy": 0.5,
        "validation_accuracy": accuracy, "test_accuracy": accuracy, "seconds": 1.0, "curve": json.dumps([accuracy]),
        "status": "ok" if not math.isnan(accuracy) else "failed: DataError",
    }  # fmt: skip
    return Row(**{**values, **changes})
