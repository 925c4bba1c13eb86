"""The IDX files in which MNIST and Fashion-MNIST are published, plain or compressed with gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.arrays import Arrays
from sottovoce.tasks.data.specs import DatasetSpec

_UNSIGNED_BYTE = 0x08


def read_folder(folder: Path, spec: DatasetSpec) -> Arrays:
    """Read the four files of ``spec`` from ``folder``; the sizes in their headers must be the expected ones."""
    channels, height, width = spec.shape
    if channels != 1:
        raise DataError(f"{spec.name} has {channels} channels; IDX files hold images of one channel.")

    def images(part: str, records: int) -> npt.NDArray[np.uint8]:
        array = read(_find(folder, f"{part}-images", 3, spec), (records, height, width))
        return array.reshape(records, *spec.shape)

    def labels(part: str, records: int) -> npt.NDArray[np.int64]:
        return read(_find(folder, f"{part}-labels", 1, spec), (records,)).astype(np.int64)

    return Arrays(
        train_images=images("train", spec.train_records),
        train_labels=labels("train", spec.train_records),
        test_images=images("t10k", spec.test_records),
        test_labels=labels("t10k", spec.test_records),
    )


def read_parts(parts: Iterator[Part], spec: DatasetSpec) -> Arrays:
    """The members ``train-images``, ``train-labels``, ``test-images`` and ``test-labels``, compressed with gzip."""
    _, height, width = spec.shape
    shapes: dict[str, tuple[int, ...]] = {}
    for part, records in (("train", spec.train_records), ("test", spec.test_records)):
        shapes |= {f"{part}-images": (records, height, width), f"{part}-labels": (records,)}
    read_by_role: dict[str, npt.NDArray[np.uint8]] = {}
    for member, stream in parts:
        with gzip.open(stream) as unpacked:
            read_by_role[member.role] = _read(unpacked, shapes[member.role], f"{spec.name}, {member.name}")
    return Arrays(
        train_images=read_by_role["train-images"].reshape(-1, *spec.shape),
        train_labels=read_by_role["train-labels"].astype(np.int64),
        test_images=read_by_role["test-images"].reshape(-1, *spec.shape),
        test_labels=read_by_role["test-labels"].astype(np.int64),
    )


def read(file: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """The bytes of an IDX ``file`` whose header must announce exactly ``shape``."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            return _read(stream, shape, str(file))
    except OSError as error:
        raise DataError(f"{file}: it cannot be read ({error}). Get the file again.") from error


def _read(stream: BinaryIO | gzip.GzipFile, shape: tuple[int, ...], file: str) -> npt.NDArray[np.uint8]:
    header = struct.pack(f">HBB{len(shape)}I", 0, _UNSIGNED_BYTE, len(shape), *shape)
    body = math.prod(shape)
    try:
        # One byte more than needed shows trailing data; nothing larger is ever unpacked.
        content = stream.read(len(header) + body + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: it cannot be read ({error}). Get the file again.") from error
    if content[: len(header)] != header:
        raise DataError(
            f"{file}: its first bytes are {content[: len(header)].hex()}, where {header.hex()} (unsigned bytes of "
            f"shape {shape}) is needed. It is not the original file, or it is cut short; get it again."
        )
    if len(content) != len(header) + body:
        amount = "more" if len(content) > len(header) + body else f"only {len(content) - len(header)}"
        raise DataError(f"{file}: {amount} bytes after the header, where {body} are needed. Get the file again.")
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape).copy()


def _find(folder: Path, stem: str, dimensions: int, spec: DatasetSpec) -> Path:
    candidates = [folder / f"{stem}{joint}idx{dimensions}-ubyte{ending}" for joint in "-." for ending in ("", ".gz")]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise DataError(
        f"{folder}: {candidates[0].name} (or with .gz) is not there. `{spec.name}` needs {spec.folder_note}."
    )
