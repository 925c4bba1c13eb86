"""A cache folder of its own and a registry of small data sets for every test here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from dataset_fakes import TEST, TRAIN

from sottovoce.tasks.data.download import commands
from sottovoce.tasks.data.registry import REGISTRY
from sottovoce.tasks.data.specs import Counts


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SOTTOVOCE_DATA", str(folder))
    return folder


@pytest.fixture(autouse=True)
def nothing_is_run(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """No tool is started and nothing is downloaded, but by tests marked slow."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr(commands.subprocess, "run", lambda *_, **__: pytest.fail("something was run"))


@pytest.fixture(autouse=True)
def small_registry(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The real entries, expecting few records (of at most ten classes); tests marked slow keep the real numbers."""
    if request.node.get_closest_marker("slow"):
        return
    for name, entry in list(REGISTRY.items()):
        if entry.kind == "weights":
            continue
        classes = entry.classes[:10]
        train = (TRAIN // 10,) * len(classes)
        test = (TEST // 10,) * len(classes) if entry.counts.test else ()
        counts = Counts(train=train, test=test)
        more = Counts(train=(TRAIN // 10 + 1,) * len(classes), test=test) if entry.folder_counts else None
        small = dataclasses.replace(entry, classes=classes, counts=counts, folder_counts=more)
        monkeypatch.setitem(REGISTRY, name, small)
