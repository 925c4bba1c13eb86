"""The one normal form of a data set of images, and the checks that every source has to pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.registry import DatasetSpec

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrays:
    """Images ``[records, channels, height, width]`` as bytes and labels ``[records]``, train and test."""

    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels


def check(arrays: Arrays, spec: DatasetSpec, origin: str) -> Arrays:
    """Return ``arrays`` if numbers of records, shapes, types and the set of labels are those of ``spec``.

    Raises:
        DataError: they are not; the message names ``origin`` and how to mend it.
    """
    parts = (
        ("train", arrays.train_images, arrays.train_labels, spec.train_records),
        ("test", arrays.test_images, arrays.test_labels, spec.test_records),
    )
    for part, images, labels, records in parts:
        wanted = (records, *spec.shape)
        if images.dtype != np.uint8 or labels.dtype != np.int64:
            problem = f"types {images.dtype} and {labels.dtype}, where uint8 and int64 are needed"
        elif images.shape != wanted:
            problem = f"images of shape {images.shape}, where {wanted} is needed"
        elif labels.shape != (records,):
            problem = f"labels of shape {labels.shape}, where {(records,)} is needed"
        elif not np.array_equal(np.unique(labels), np.arange(len(spec.classes))):
            problem = f"labels other than exactly the classes 0 to {len(spec.classes) - 1}"
        else:
            continue
        raise DataError(
            f"{origin}: the {part} part of {spec.name} has {problem}. The files are not the complete original; "
            f"get them again and run `{spec.command}`."
        )
    return arrays
