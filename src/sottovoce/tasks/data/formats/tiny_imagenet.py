"""Tiny-ImageNet as it is unpacked: a folder of JPEG pictures for each class, and a list for the validation part."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.arrays import Arrays, Labels, Pixels
from sottovoce.tasks.data.formats.pictures import decode
from sottovoce.tasks.data.formats.reading import lines, malformed
from sottovoce.tasks.data.specs import DatasetSpec

_INNER = "tiny-imagenet-200"


def read_folder(folder: Path, spec: DatasetSpec) -> Arrays:
    """Read ``train`` and ``val`` in ``folder``, or in the folder of the original's name inside it.

    Class k is the k-th of the identifiers that name the folders of ``train``, in alphabetical order, and the training
    pictures come class by class.
    """
    top = folder / _INNER if (folder / _INNER).is_dir() else folder
    train, annotations = top / "train", top / "val" / "val_annotations.txt"
    if not train.is_dir() or not annotations.is_file():
        raise DataError(f"{top}: train or val/val_annotations.txt is missing. {spec.name} needs {spec.folder_note}.")
    identifiers = sorted(place.name for place in train.iterdir() if place.is_dir())
    if len(identifiers) != len(spec.classes):
        raise DataError(f"{train}: {len(identifiers)} classes, where {len(spec.classes)} are needed.")
    numbers = {identifier: number for number, identifier in enumerate(identifiers)}
    listed = [
        (file, number)
        for identifier, number in numbers.items()
        for file in sorted((train / identifier / "images").glob("*.JPEG"))
    ]
    return Arrays(*_pictures(listed, spec), *_pictures(_annotated(annotations, numbers), spec))


def _annotated(annotations: Path, numbers: dict[str, int]) -> list[tuple[Path, int]]:
    listed: list[tuple[Path, int]] = []
    pictures = {file.name: file for file in (annotations.parent / "images").iterdir()}
    with annotations.open("rb") as stream:
        for line in lines(stream, str(annotations)):
            name, *others = line.split("\t")
            if name not in pictures or not others or others[0] not in numbers:
                raise malformed(str(annotations), f"a line {line[:80]!r} whose picture or class is not there")
            listed.append((pictures[name], numbers[others[0]]))
    return listed


def _pictures(listed: list[tuple[Path, int]], spec: DatasetSpec) -> tuple[Pixels, Labels]:
    _, height, width = spec.shape
    images = np.empty((len(listed), *spec.shape), dtype=np.uint8)
    for number, (file, _) in enumerate(listed):
        with file.open("rb") as stream:
            images[number] = decode(stream, "JPEG", (width, height), str(file)).transpose(2, 0, 1)
    return images, np.array([label for _, label in listed], dtype=np.int64)
