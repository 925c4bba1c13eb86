"""A record that is NaN, infinite, huge or raises: nobody can tell from anything that the run shows.

It is compared with a record that contributes zero, under the same testing entropy: stdout, stderr, logs, history,
ledger and report must be the same byte for byte (times masked), and a huge record is clipped.
"""

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import METHODS, SAMPLING, NullRecord, data, model
from torch import Tensor, nn

import sottovoce as sv
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.noise import grid_for
from sottovoce.report.entries import Entry
from sottovoce.report.page import write

VICTIM = 17
MARK = 5.0


class Marked(NullRecord):
    """The victim is known by its first input; what its loss does is what is tested."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, network: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        victim = (inputs == MARK).all(dim=1)
        values = super().__call__(network, (torch.where(victim[:, None], 0.0, inputs), targets))
        scale = sum(parameter.sum() for parameter in network.parameters())
        if self.kind == "null":
            return values
        if self.kind == "raises" and torch.compiler.is_compiling() is False and _any(victim):
            raise ValueError(f"record with inputs {inputs[victim]} is bad")
        if self.kind == "exits" and _any(victim):
            raise SystemExit(3)
        if self.kind == "warns" and _any(victim):
            warnings.warn("a private record looks odd", stacklevel=1)
        bad = {"nan": math.nan, "inf": math.inf, "huge": 1e30}.get(self.kind, 0.0)
        return torch.where(
            victim, bad * scale if self.kind == "huge" else torch.full_like(values, bad) + values, values
        )


def _any(victim: Tensor) -> bool:
    """Data-dependent control flow works outside vmap; inside it a batch has one record."""
    try:
        return bool(victim.any())
    except RuntimeError:
        return False


def run(kind: str, method: Any, folder: Path, capfd: Any, caplog: Any, **options: Any) -> tuple[sv.Session | None, str]:
    """One run, with everything it showed as one text."""
    inputs, targets = data()
    inputs[VICTIM] = MARK
    ledger = Ledger.in_memory()
    network = model()
    caplog.clear()
    with sv.testing.fixed_entropy("bad"), sv.testing.expose_answers():
        session = sv.Session(
            network, Marked(kind), private=(inputs, targets), method=method, budget=sv.Budget(epsilon=1.0, delta=1e-3),
            **options,
        )  # fmt: skip
        assert session._curator is not None
        session._curator._ledger = ledger
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            released = [step.released for step in session]
    finished = sv.Run(
        network, session.statement, [{"step": float(i), "r": float(r.sum())} for i, r in enumerate(released)]
    )
    finished.save(folder)
    entries = [{**entry, "time": "", "subject": ""} for entry in ledger.entries()]
    shown = capfd.readouterr()
    files = {
        path.name: path.read_bytes().hex() if path.suffix == ".safetensors" else path.read_text()
        for path in sorted(folder.iterdir())
    }
    return session, json.dumps(
        {
            "warned": [str(each.message) for each in warned],
            "out": shown.out,
            "err": shown.err,
            "log": caplog.text,
            "files": files,
            "ledger": entries,
        },
        indent=1,
    )


def masked(text: str) -> str:
    return re.sub(r'"seconds": [0-9.]+', '"seconds": _', text)


@pytest.mark.parametrize("sampling", ["poisson", "single-pass", "full-batch"])
@pytest.mark.parametrize("kind", ["nan", "inf", "raises", "exits", "warns"])
@pytest.mark.parametrize("name", ["DPZero", "DPZero-per-query", "DPSGD"])
def test_a_bad_record_cannot_be_told_from_one_that_contributes_zero(
    name: str, kind: str, sampling: str, tmp_path: Path, capfd: Any, caplog: Any
):
    caplog.set_level(logging.DEBUG)
    options = SAMPLING[sampling]
    _, quiet = run("null", METHODS[name], tmp_path / "null", capfd, caplog, **options)
    _, bad = run(kind, METHODS[name], tmp_path / "bad", capfd, caplog, **options)
    assert masked(bad) == masked(quiet)


def fitted(kind: str, method: Any, folder: Path, capfd: Any, **options: Any) -> str:
    """A run by `fit`, with its progress bar, its history and a report, as one text; clock times masked."""
    inputs, targets = data()
    inputs[VICTIM] = MARK
    with sv.testing.fixed_entropy("report"):
        finished = sv.fit(
            model(), Marked(kind), private=(inputs, targets), method=method, budget=sv.Budget(epsilon=1.0, delta=1e-3),
            validate=data(20), metrics={"accuracy": sv.losses.accuracy, "loss": sv.losses.cross_entropy},
            evaluate_every=2, progress=True, **options,
        )  # fmt: skip
    history = [{**row, "seconds": 0.0} for row in finished.history]
    entry = Entry(
        name=type(method).__name__, note="under test", accuracy=finished.final["accuracy"], seconds=0.0,
        peak_memory=0.0, history=history, statement=finished.statement, settings={"lr": method.lr},
    )  # fmt: skip
    write([entry], folder, title="Report", intro="A run.", facts={})
    shown = capfd.readouterr()
    files = {path.name: path.read_bytes().hex() for path in sorted(folder.iterdir())}
    return re.sub(r"\d+:\d\d:\d\d", "_", json.dumps([shown.out, shown.err, files]))


@pytest.mark.parametrize("kind", ["nan", "raises"])
@pytest.mark.parametrize("name", ["DPZero", "DPSGD"])
def test_neither_progress_bar_nor_history_nor_report_tells_of_a_bad_record(
    name: str, kind: str, tmp_path: Path, capfd: Any
):
    quiet = fitted("null", METHODS[name], tmp_path / "null", capfd, **SAMPLING["poisson"])
    assert "report.html" in quiet and name in quiet
    assert fitted(kind, METHODS[name], tmp_path / kind, capfd, **SAMPLING["poisson"]) == quiet


@pytest.mark.parametrize("name", ["DPZero", "DPSGD"])
def test_a_huge_record_is_clipped_to_its_bound(name: str, tmp_path: Path, capfd: Any, caplog: Any):
    method = replace(METHODS[name], lr=0.0)
    null, quiet = run("null", method, tmp_path / "null", capfd, caplog, **SAMPLING["full-batch"])
    huge, loud = run("huge", method, tmp_path / "huge", capfd, caplog, **SAMPLING["full-batch"])
    assert null is not None and huge is not None
    limit = math.floor(method.clip / grid_for(method.clip))
    moved = [sum(int(v) ** 2 for v in (a - b).tolist()) for a, b in zip(huge.exposed, null.exposed, strict=True)]
    assert all(0 < square <= limit**2 for square in moved)
    assert max(moved) > (0.99 * limit) ** 2
    strip = re.compile(r'"(history.csv|model.safetensors)": "[^"]*"')
    assert strip.sub("", masked(loud)) == strip.sub("", masked(quiet)), "only released values may differ"


class Broken(torch.utils.data.Dataset):
    """A map-style data set with items that raise or have another shape."""

    def __init__(self, bad: str) -> None:
        self.inputs, self.targets = data()
        self.bad = bad

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        if index == VICTIM and self.bad == "raises":
            raise OSError(f"cannot read record {index}")
        if index == VICTIM and self.bad == "misshapen":
            return self.inputs[index][:3], self.targets[index]
        if index == VICTIM and self.bad == "null":
            return torch.zeros(5), self.targets[index]
        return self.inputs[index], self.targets[index]


@pytest.mark.parametrize("bad", ["raises", "misshapen"])
def test_an_item_that_cannot_be_read_contributes_zero(bad: str):
    sums: list[list[list[int]]] = []
    for kind in ("null", bad):
        with sv.testing.fixed_entropy("items"), sv.testing.expose_answers():
            session = sv.Session(
                model(), NullRecord(), private=Broken(kind), example=(torch.zeros(5), 0), method=METHODS["DPZero"],
                budget=sv.Budget(epsilon=1.0, delta=1e-3), sampling="full-batch", steps=2,
            )  # fmt: skip
            for _ in session:
                pass
        sums.append([answer.tolist() for answer in session.exposed])
    assert sums[0] == sums[1]
