"""The one normal form of a data set of texts, its checks, and its form on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.arrays import Labels, incomplete, label_problem
from sottovoce.tasks.data.specs import Counts, DatasetSpec

Record = tuple[tuple[str, ...], int]
"""The strings of a record, and its label."""

_PARTS: tuple[Literal["train", "test"], ...] = ("train", "test")


@dataclass(frozen=True)
class Texts:
    """Records of one or more strings, and labels ``[records]``; a test part that does not exist is empty."""

    train_texts: list[tuple[str, ...]]
    train_labels: Labels
    test_texts: list[tuple[str, ...]]
    test_labels: Labels


def collect(train: Iterable[Record], test: Iterable[Record] = ()) -> Texts:
    """The normal form of two series of records."""

    def part(records: Iterable[Record]) -> tuple[list[tuple[str, ...]], Labels]:
        texts: list[tuple[str, ...]] = []
        labels: list[int] = []
        for strings, label in records:
            texts.append(strings)
            labels.append(label)
        return texts, np.array(labels, dtype=np.int64)

    return Texts(*part(train), *part(test))


def check(texts: Texts, spec: DatasetSpec, counts: Counts, origin: str) -> Texts:
    """Return ``texts`` if the strings of each record and the number of records of each class are the expected ones.

    Raises:
        DataError: they are not; the message names ``origin`` and how to mend it.
    """
    for part, records, labels, wanted in (
        ("train", texts.train_texts, texts.train_labels, counts.train),
        ("test", texts.test_texts, texts.test_labels, counts.test),
    ):
        if len(records) != sum(wanted):
            problem = f"{len(records)} records, where {sum(wanted)} are needed"
        elif any(len(record) != len(spec.fields) for record in records):
            problem = f"a record that is not {len(spec.fields)} strings ({', '.join(spec.fields)})"
        else:
            problem = label_problem(labels, wanted, len(spec.classes))
        if problem:
            raise incomplete(spec, part, problem, origin)
    return texts


def pack(texts: Texts, spec: DatasetSpec) -> dict[str, npt.NDArray[Any]]:
    """``texts`` as arrays: all strings of a part end to end in UTF-8, their lengths in bytes, and the labels."""
    packed: dict[str, npt.NDArray[Any]] = {}
    for part in _PARTS:
        records: list[tuple[str, ...]] = getattr(texts, f"{part}_texts")
        try:
            encoded = [string.encode("utf-8") for record in records for string in record]
        except UnicodeEncodeError as error:
            raise DataError(f"{spec.name}: a text is not Unicode ({error}); the file is damaged.") from None
        lengths = np.array([len(string) for string in encoded], dtype=np.int64)
        packed[f"{part}_bytes"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        packed[f"{part}_lengths"] = lengths.reshape(len(records), len(spec.fields))
        packed[f"{part}_labels"] = getattr(texts, f"{part}_labels")
    return packed


def unpack(packed: Mapping[str, npt.NDArray[Any]]) -> Texts:
    """The inverse of :func:`pack`.

    Raises:
        ValueError: lengths and bytes do not belong together, or the bytes are not UTF-8.
    """

    def part(name: str) -> list[tuple[str, ...]]:
        content, lengths = packed[f"{name}_bytes"].tobytes(), packed[f"{name}_lengths"]
        if lengths.ndim != 2 or (lengths < 0).any() or int(lengths.sum()) != len(content):
            raise ValueError(f"the lengths of the {name} texts do not add up")
        stops = [0, *np.cumsum(lengths.ravel()).tolist()]
        strings = [content[start:stop].decode("utf-8") for start, stop in pairwise(stops)]
        fields = lengths.shape[1]
        return [tuple(strings[first : first + fields]) for first in range(0, len(strings), fields)]

    return Texts(part("train"), packed["train_labels"], part("test"), packed["test_labels"])
