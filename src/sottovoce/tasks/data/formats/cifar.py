"""The two forms in which CIFAR-10 is published: binary batches, and pickled batches for Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.arrays import Arrays, Labels, Pixels
from sottovoce.tasks.data.formats.pickled import PickledArray, load_plain
from sottovoce.tasks.data.specs import DatasetSpec

_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = ("test_batch",)
_SUBFOLDERS = (".", "cifar-10-batches-bin", "cifar-10-batches-py")
_OVERHEAD = 4 << 20  # labels, file names and framing of a pickled batch of 10,000


def read_folder(folder: Path, spec: DatasetSpec) -> Arrays:
    """Read CIFAR-10 from ``folder`` (or the folder of the original's name inside it), in either form."""
    for ending in (".bin", ""):
        for place in _SUBFOLDERS:
            batches = [folder / place / f"{name}{ending}" for name in (*_TRAIN, *_TEST)]
            present = [batch.is_file() for batch in batches]
            if all(present):
                return _read(batches, spec, binary=ending == ".bin")
            if any(present):
                absent = batches[present.index(False)]
                raise DataError(f"{absent.parent}: {absent.name} is missing. {spec.name} needs {spec.folder_note}.")
    raise DataError(f"{folder}: no batch of CIFAR-10 is there. {spec.name} needs {spec.folder_note}.")


def _read(batches: list[Path], spec: DatasetSpec, *, binary: bool) -> Arrays:
    pixels = int(np.prod(spec.shape))
    largest = max(spec.train_records, spec.test_records) * (pixels + 1) + _OVERHEAD
    parts: list[tuple[Pixels, Labels]] = []
    for batch in batches:
        with batch.open("rb") as stream:
            content = stream.read(largest + 1)
        if len(content) > largest:
            raise DataError(f"{batch}: more than {largest} bytes, so it is no batch of CIFAR-10.")
        images, labels = (_binary if binary else _python)(content, pixels, batch)
        parts.append((images.reshape(-1, *spec.shape), labels))
    train, test = parts[: len(_TRAIN)], parts[len(_TRAIN) :]
    return Arrays(
        train_images=np.concatenate([images for images, _ in train]),
        train_labels=np.concatenate([labels for _, labels in train]),
        test_images=np.concatenate([images for images, _ in test]),
        test_labels=np.concatenate([labels for _, labels in test]),
    )


def _binary(content: bytes, pixels: int, batch: Path) -> tuple[npt.NDArray[np.uint8], Labels]:
    """Records of one label byte and then the red, the green and the blue plane, row by row."""
    if not content or len(content) % (pixels + 1):
        raise DataError(
            f"{batch}: {len(content)} bytes are no whole number of records of {pixels + 1} bytes; the file is cut "
            "short or is another one. Get it again."
        )
    table = np.frombuffer(content, dtype=np.uint8).reshape(-1, pixels + 1)
    return table[:, 1:], table[:, 0].astype(np.int64)


def _python(content: bytes, pixels: int, batch: Path) -> tuple[npt.NDArray[np.uint8], Labels]:
    """A pickled dictionary with ``data`` (records x pixels bytes) and ``labels`` (a list)."""
    plain: Any = load_plain(content, batch)
    if not isinstance(plain, dict):
        raise DataError(f"{batch}: a pickled {type(plain).__name__}, where a dictionary is needed.")
    # The original was written by Python 2, so its keys arrive as bytes; copies written by Python 3 have text.
    fields = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in plain.items()}
    data, labels = fields.get("data"), fields.get("labels")
    if not isinstance(data, PickledArray) or not isinstance(labels, list):
        raise DataError(f"{batch}: the dictionary lacks an array `data` or a list `labels`.")
    images = data.as_bytes(batch)
    if images.ndim != 2 or images.shape[1] != pixels or len(labels) != len(images):
        raise DataError(
            f"{batch}: images of shape {images.shape} with {len(labels)} labels, where (n, {pixels}) with n labels "
            "is needed."
        )
    if not all(type(label) is int and 0 <= label <= 255 for label in labels):
        raise DataError(f"{batch}: a label that is no small whole number.")
    return images, np.array(labels, dtype=np.int64)
