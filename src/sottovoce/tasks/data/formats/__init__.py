"""The formats in which data sets are published: from the members of an archive, and from folders of original files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.arrays import Arrays
from sottovoce.tasks.data.formats import (
    cifar,
    cifar_png,
    csv_images,
    idx,
    imdb,
    inference,
    polarity,
    rotten_tomatoes,
    snippets,
    tiny_imagenet,
    vitaminc,
)
from sottovoce.tasks.data.records import Texts
from sottovoce.tasks.data.specs import DatasetSpec

ArchiveReader = Callable[[Iterator[Part], DatasetSpec], Arrays | Texts]
"""Reads the parts of an archive to the end; whether the numbers are right is checked afterwards."""

FolderReader = Callable[[Path, DatasetSpec], Arrays | Texts]

ARCHIVES: dict[str, ArchiveReader] = {
    "csv-images": csv_images.read_parts,
    "cifar-png": cifar_png.read_parts,
    "idx": idx.read_parts,
    "imdb-json": imdb.read_parts,
    "snippets": snippets.read_parts,
    "rotten-tomatoes": rotten_tomatoes.read_parts,
    "nli-jsonl": inference.read_parts,
    "vitaminc": vitaminc.read_parts,
}

FOLDERS: dict[str, FolderReader] = {
    "idx": idx.read_folder,
    "cifar-10": cifar.read_folder,
    "tiny-imagenet": tiny_imagenet.read_folder,
    "imdb": imdb.read_folder,
    "snli": inference.read_folder,
    "mnli": inference.read_folder,
    "polarity": polarity.read_folder,
}
