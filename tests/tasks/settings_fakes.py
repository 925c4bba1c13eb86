"""Small data sets in memory, in place of those in the cache."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from sottovoce.tasks import data
from sottovoce.tasks.data import ImageData, TextData

SMALL = {"public_records": 20, "validation_records": 10}
WORDS = [f"{first}{second}" for first, second in itertools.product("bcdfghklm", ("at", "en", "ig", "o", "ul"))]


def images(name: str, records: int = 120) -> ImageData:
    """Each image is one grey, which tells the record's number."""
    spec = data.spec(name)

    def part(count: int, start: int) -> tuple[Any, Any]:
        greys = (start + np.arange(count)).astype(np.uint8).reshape(-1, 1, 1, 1)
        labels = np.random.default_rng(start).permutation(np.arange(count) % len(spec.classes))
        return np.broadcast_to(greys, (count, *spec.shape)).copy(), labels.astype(np.int64)

    return ImageData(spec, *part(records, 0), *part(20, 200), provenance={})


def texts(name: str, records: int = 60) -> TextData:
    """Texts of made-up words; the first tells the label."""
    spec = data.spec(name)
    generator = np.random.default_rng(len(name))

    def part(count: int) -> tuple[list[tuple[str, ...]], Any]:
        labels = generator.permutation(np.arange(count) % len(spec.classes))
        found = [
            tuple(f"{WORDS[label]} {' '.join(generator.choice(WORDS, 4))}" for _ in spec.fields) for label in labels
        ]
        return found, labels.astype(np.int64)

    return TextData(spec, *part(records), *part(20), provenance={})


@pytest.fixture
def fake_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load_images", images)
    monkeypatch.setattr(data, "load_texts", texts)
