"""CIFAR-10 as six lossless PNG pictures, one image on each line of pixels, and two JSON lists of labels."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np

from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.arrays import Arrays, Labels, Pixels
from sottovoce.tasks.data.formats.pictures import decode
from sottovoce.tasks.data.formats.reading import malformed, value
from sottovoce.tasks.data.specs import DatasetSpec

_TRAIN_PICTURES = 5


def read_parts(parts: Iterator[Part], spec: DatasetSpec) -> Arrays:
    """The members ``train-1`` to ``train-5`` and ``test-1`` (pictures), ``train-labels`` and ``test-labels``."""
    channels, height, width = spec.shape
    pictures: dict[str, Pixels] = {}
    labels: dict[str, Labels] = {}
    lines = {"train": spec.train_records // _TRAIN_PICTURES, "test": spec.test_records}
    for member, stream in parts:
        origin = f"{spec.name}, {member.name}"
        part, _, which = member.role.partition("-")
        if which == "labels":
            labels[part] = _labels(stream.read(), origin)
            continue
        pixels = decode(io.BytesIO(stream.read()), "PNG", (height * width, lines[part]), origin)
        # A line holds the pixels of an image row by row, each pixel with its three values.
        images = pixels.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
        pictures[member.role] = np.ascontiguousarray(images)

    def images_of(part: str) -> Pixels:
        return np.concatenate([pictures[role] for role in sorted(pictures) if role.startswith(part)])

    return Arrays(images_of("train"), labels["train"], images_of("test"), labels["test"])


def _labels(content: bytes, origin: str) -> Labels:
    labels = value(content, origin)
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise malformed(origin, "it is no list of small whole numbers")
    return np.array(labels, dtype=np.int64)
