"""IMDB reviews: one JSON list of all, or the original folders of one file for each review."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.formats.reading import malformed, text, value
from sottovoce.tasks.data.permutation import halves, shuffled
from sottovoce.tasks.data.records import Record, Texts, collect
from sottovoce.tasks.data.specs import DatasetSpec

_FOLDERS = ("neg", "pos")  # the labels 0 and 1


def read_parts(parts: Iterator[Part], spec: DatasetSpec) -> Texts:
    """The member ``reviews``, a list of ``{"t": text, "s": 0 or 1}``, divided by the fixed permutation."""
    records: list[Record] = []
    for member, stream in parts:
        origin = f"{spec.name}, {member.name}"
        reviews = value(stream.read(), origin)
        if not isinstance(reviews, list):
            raise malformed(origin, "it is no list of reviews")
        for review in reviews:
            match review:
                case {"t": str(words), "s": int(label)} if label in (0, 1):
                    records.append(((words,), int(label)))
                case _:
                    raise malformed(origin, 'a review that is not {"t": text, "s": 0 or 1}')
    return collect(*halves(spec.name, records))


def read_folder(folder: Path, spec: DatasetSpec) -> Texts:
    """The original layout, in ``folder`` or in ``aclImdb`` inside it; each part in the fixed order."""
    inner = folder / "aclImdb"
    top = inner if inner.is_dir() else folder
    return collect(*(shuffled(f"{spec.name} {part}", list(_part(top / part, spec))) for part in ("train", "test")))


def _part(folder: Path, spec: DatasetSpec) -> Iterator[Record]:
    for label, name in enumerate(_FOLDERS):
        place = folder / name
        if not place.is_dir():
            raise DataError(f"{folder}: the folder {name} is not there. {spec.name} needs {spec.folder_note}.")
        for file in sorted(place.glob("*.txt")):
            yield (text(file.read_bytes(), str(file)),), label
