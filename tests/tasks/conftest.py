"""A cache folder of its own and a registry of small data sets for every test here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from dataset_fakes import TEST, TRAIN

from sottovoce.tasks.data.registry import REGISTRY


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SOTTOVOCE_DATA", str(folder))
    return folder


@pytest.fixture(autouse=True)
def small_registry(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The real entries, expecting few records; tests marked slow keep the real numbers."""
    if request.node.get_closest_marker("slow"):
        return
    for name, entry in list(REGISTRY.items()):
        monkeypatch.setitem(REGISTRY, name, dataclasses.replace(entry, train_records=TRAIN, test_records=TEST))
