"""The one normal form of a data set of images, and the checks that every source has to pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.specs import Counts, DatasetSpec

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrays:
    """Images ``[records, channels, height, width]`` as bytes and labels ``[records]``, train and test."""

    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels


def check(arrays: Arrays, spec: DatasetSpec, counts: Counts, origin: str) -> Arrays:
    """Return ``arrays`` if shapes, types and the number of records of each class are the expected ones.

    Raises:
        DataError: they are not; the message names ``origin`` and how to mend it.
    """
    parts: tuple[tuple[Literal["train", "test"], Pixels, Labels, tuple[int, ...]], ...] = (
        ("train", arrays.train_images, arrays.train_labels, counts.train),
        ("test", arrays.test_images, arrays.test_labels, counts.test),
    )
    for part, images, labels, wanted in parts:
        shape = (sum(wanted), *spec.shape)
        if images.dtype != np.uint8:
            problem = f"images of type {images.dtype}, where uint8 is needed"
        elif images.shape != shape:
            problem = f"images of shape {images.shape}, where {shape} is needed"
        else:
            problem = label_problem(labels, wanted, len(spec.classes))
        if problem:
            raise incomplete(spec, part, problem, origin)
    return arrays


def label_problem(labels: npt.NDArray[np.generic], wanted: tuple[int, ...], classes: int) -> str:
    """What is wrong with ``labels``, of which class k must occur ``wanted[k]`` times; nothing if all is well."""
    records = sum(wanted)
    if labels.dtype != np.int64:
        return f"labels of type {labels.dtype}, where int64 is needed"
    if labels.shape != (records,):
        return f"labels of shape {labels.shape}, where {(records,)} is needed"
    if not records:
        return ""
    if not np.array_equal(np.unique(labels), np.arange(classes)):
        return f"labels other than exactly the classes 0 to {classes - 1}"
    found = np.bincount(labels, minlength=classes).tolist()
    if found != list(wanted):
        return f"{_shown(found)} records of its classes, where {_shown(list(wanted))} are needed"
    return ""


def incomplete(spec: DatasetSpec, part: str, problem: str, origin: str) -> DataError:
    """The error about a part that is not what was published."""
    return DataError(
        f"{origin}: the {part} part of {spec.name} has {problem}. The files are not the complete original; get them "
        f"again and run `{spec.command}`."
    )


def _shown(counts: list[int]) -> str:
    return ", ".join(map(str, counts[:10])) + (", ..." if len(counts) > 10 else "")
