"""How pairs of sentences of one or two corpora become private, public, validation and test parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import data
from sottovoce.tasks.data import TextData
from sottovoce.tasks.data.arrays import Labels
from sottovoce.tasks.naming import require_choice
from sottovoce.tasks.settings.slices import Slices, cut, require_size
from sottovoce.tasks.settings.tensors import labels

Shift = Literal["none", "half", "full"]
"""Where public records come from: the private corpus, both in halves, or another corpus (the paper's Table 7)."""


@dataclass(frozen=True)
class Sizes:
    """Records of each part."""

    private: int
    public: int
    validation: int
    test: int


@dataclass(frozen=True)
class Pairs:
    """Pairs of sentences and their labels."""

    sentences: list[tuple[str, ...]]
    targets: Tensor

    @classmethod
    def of(cls, sentences: list[tuple[str, ...]], targets: Labels, numbers: list[int]) -> Pairs:
        """Those of ``numbers``."""
        return cls([sentences[number] for number in numbers], labels(targets[np.asarray(numbers, dtype=int)]))

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs([*self.sentences, *other.sentences], torch.cat([self.targets, other.targets]))


@dataclass(frozen=True)
class Corpora:
    """A private and another corpus, and how they are cut."""

    private: str
    other: str
    shift: Shift
    seed: int

    def __post_init__(self) -> None:
        require_choice("shift", self.shift, get_args(Shift))

    @property
    def shown_public(self) -> str:
        """The public side, for people."""
        return {"none": f"a slice of it, {self.private},", "half": f"{self.private} and {self.other}"}.get(
            self.shift, self.other
        )

    def cut(self, sizes: Sizes) -> dict[str, Pairs]:
        """The parts by name. Without a test part in the corpus, it is cut from the training part, never overlapping.

        Whatever the shift, the same records are private: a public slice of the private corpus is always cut off.
        """
        for name, size in vars(sizes).items():
            require_size(f"{name}_records", size)
        own = data.load_texts(self.private)
        lacks_test = not own.test_texts
        kept = sizes.validation + (sizes.test if lacks_test else 0)
        slices = self._cut(own, public=sizes.public, validation=kept)
        if sizes.private > len(slices.private):
            raise ConfigurationError(
                f"private_records={sizes.private}: {self.private} has {len(slices.private)} left, with the public, "
                "validation and test parts cut off."
            )
        texts, targets = own.train_texts, own.train_labels
        found = {
            "private": Pairs.of(texts, targets, slices.private[: sizes.private]),
            "validation": Pairs.of(texts, targets, slices.validation[: sizes.validation]),
            "public": Pairs.of(texts, targets, slices.public),
        }
        if lacks_test:
            found["test"] = Pairs.of(texts, targets, slices.validation[sizes.validation :])
        else:
            found["test"] = Pairs.of(own.test_texts, own.test_labels, list(range(min(sizes.test, len(own.test_texts)))))
        if self.shift != "none":
            other = data.load_texts(self.other)
            shifted = sizes.public if self.shift == "full" else sizes.public // 2
            more = Pairs.of(
                other.train_texts, other.train_labels, self._cut(other, public=shifted, validation=1).public
            )
            same = sizes.public - shifted
            found["public"] = Pairs(found["public"].sentences[:same], found["public"].targets[:same]) + more
        return found

    def _cut(self, corpus: TextData, *, public: int, validation: int) -> Slices:
        name = f"{corpus.spec.name}-slices-{self.seed}"
        return cut(
            corpus.train_labels,
            name=name,
            classes=corpus.classes,
            public=public,
            validation=validation,
            imbalance="none",
        )
