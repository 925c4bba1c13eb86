"""The demonstration, with few steps on made-up images."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sottovoce import demo
from sottovoce.methods import DPSGD, SGD, DPZero, MeZO
from sottovoce.tasks import data
from sottovoce.tasks.data.arrays import Arrays

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "demo_accuracy.py"
PRIVATE = {"DP-SGD", "DPZero", "PAZO-M", "PAZO-P", "PAZO-S"}
WITH_PUBLIC = {"PAZO-M", "PAZO-P", "PAZO-S"}


class Here:
    """Runs what a pool of processes would, in this one."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, function: Callable[..., Any], *given: Any, **named: Any) -> Here:
        self.made = function(*given, **named)
        return self

    def result(self) -> Any:
        return self.made


def images(name: str) -> data.ImageData:
    spec, random = data.spec(name), np.random.default_rng(0)

    def some(count: int) -> Any:
        return random.integers(0, 256, (count, *spec.shape), dtype=np.uint8), random.integers(0, 10, count)

    return data.ImageData(spec=spec, provenance={}, **dataclasses.asdict(Arrays(*some(4_600), *some(40))))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for reader in ("load", "load_images"):
        monkeypatch.setattr(data, reader, images)
    monkeypatch.setattr(data, "path", Path)

    def short(contestant: demo.Contestant) -> demo.Contestant:
        return replace(contestant, steps=2, batch_size=16)

    others = {
        name: {epsilon: short(other) for epsilon, other in runs.items()} for name, runs in demo.OTHER_EPSILONS.items()
    }
    monkeypatch.setattr(demo, "CONTESTANTS", {name: short(each) for name, each in demo.CONTESTANTS.items()})
    monkeypatch.setattr(demo, "OTHER_EPSILONS", others)
    monkeypatch.setattr(demo, "ProcessPoolExecutor", Here)


def test_every_contestant_runs_at_its_epsilons_and_the_report_holds_them(tmp_path: Path):
    entries = demo.run_demo(tmp_path, progress=False)
    assert {entry.name for entry in entries} == {*PRIVATE, "SGD", "MeZO", "public only"}
    found = {name: sorted(e.epsilon for e in entries if e.name == name and e.private) for name in PRIVATE}
    assert all(epsilons[:2] == [0.1, 1.0] for epsilons in found.values()), found
    for entry in entries:
        assert entry.statement.steps_run == 2
        assert 0 <= entry.accuracy <= 1
        if entry.private:
            assert entry.statement.epsilon_spent <= entry.epsilon * (1 + 1e-9)
        uses_public = any("public=" in assumed for assumed in entry.statement.assumed)
        assert uses_public == (entry.name in WITH_PUBLIC) == (entry.trains_on == "private and public")
        assert len(entry.history) == (2 if entry.epsilon in (1.0, math.inf) else 1)
    assert {entry.name for entry in entries if entry.kind == "public"} == {"public only"}
    page = (tmp_path / "report.html").read_text()
    assert 'aria-label="Accuracy against epsilon"' in page
    assert page.count("<img") == 3
    assert len(json.loads((tmp_path / "entries.json").read_text())["entries"]) == len(entries)


def test_the_parts_share_no_image_and_leave_the_validation_part_out():
    known = demo.parts()
    rows = {name: {row.numpy().tobytes() for row in part[0]} for name, part in vars(known).items()}
    assert [len(rows[name]) for name in ("private", "public", "test")] == [600, 2_000, 40]
    assert len(set.union(*rows.values())) == 2_640


@pytest.mark.parametrize("name", ["public only", "SGD"])
def test_public_only_never_sees_a_private_record(name: str):
    """With private images that are not numbers it learns what it learns without; SGD does not."""
    known = demo.parts()
    inputs, targets = known.private
    poisoned = replace(known, private=(torch.full_like(inputs, torch.nan), targets))
    losses = [
        demo.train_one(name, demo.CONTESTANTS[name], each, demo.BUDGET, progress=False).history[-1]["loss"]
        for each in (known, poisoned)
    ]
    assert math.isfinite(losses[0])
    assert (losses[0] == losses[1]) == (name == "public only")


def test_what_the_committed_results_were_made_with_is_unchanged(monkeypatch: pytest.MonkeyPatch):
    """results/demo-accuracy holds accuracies of these settings; who changes them has to measure again."""
    monkeypatch.undo()
    made = {
        name: (each.method, each.steps, each.batch_size, each.update.momentum, each.update.schedule)
        for name, each in demo.CONTESTANTS.items()
        if each.trains_on == "private"
    }
    assert made == {
        "DP-SGD": (DPSGD(lr=2.0, clip=1.0), 250, 512, 0.0, "constant"),
        "DPZero": (DPZero(lr=8e-3, clip=40.0, queries=4), 1000, 256, 0.0, "linear"),
        "SGD": (SGD(lr=0.1), 300, 512, 0.9, "constant"),
        "MeZO": (MeZO(lr=4e-3, queries=4, directions="sphere"), 1000, 256, 0.0, "linear"),
    }


def test_the_peak_counts_from_when_it_was_forgotten():
    if math.isnan(demo.peak_memory()):
        pytest.skip("the peak cannot be told here")
    block = np.ones(40_000_000)
    del block
    demo.forget_peak()
    before = demo.peak_memory()
    block = np.ones(20_000_000)
    grown = demo.peak_memory() - before
    assert 150 < grown < 250, grown
    assert block.sum() == 20_000_000


@pytest.mark.parametrize(
    ("name", "private"), [("DP-SGD", 4_600), ("MeZO", 4_600), ("PAZO-P", 600), ("public only", 2_000)]
)
def test_the_benchmark_keeps_all_images_where_no_public_data_is_used(
    name: str, private: int, monkeypatch: pytest.MonkeyPatch
):
    spec = importlib.util.spec_from_file_location("demo_accuracy", BENCHMARK)
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    seen: list[int] = []
    fit = benchmark.sv.fit

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(len(named["private"][0]))
        return fit(*given, **named)

    monkeypatch.setattr(benchmark.sv, "fit", watched)
    variants = {variant for one, variant, _, _ in benchmark.wanted(1, 1) if one == name}
    kind = benchmark.NOISY if name in PRIVATE else benchmark.PUBLIC if name == "public only" else benchmark.REFERENCE
    assert kind in variants
    assert (benchmark.NOISELESS in variants) == (name in PRIVATE)
    assert 0 <= benchmark.train(name, kind, 0) <= 1
    assert seen == [private]
