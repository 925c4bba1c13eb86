"""Data sets of texts in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sottovoce.tasks.data.arrays import Labels
from sottovoce.tasks.data.specs import DatasetSpec


@dataclass(frozen=True)
class TextData:
    """A data set in memory: for each record its strings (named by ``spec.fields``) and its label.

    A set without a test part has empty ``test_texts`` and ``test_labels``.
    """

    spec: DatasetSpec
    train_texts: list[tuple[str, ...]] = field(repr=False)
    train_labels: Labels = field(repr=False)
    test_texts: list[tuple[str, ...]] = field(repr=False)
    test_labels: Labels = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    @property
    def classes(self) -> int:
        """The number of classes; their names are in ``spec.classes``."""
        return len(self.spec.classes)
