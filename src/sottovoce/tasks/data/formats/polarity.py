"""Reviews in comma-separated tables without a header: label 1 (negative) or 2 (positive), title, text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.formats.reading import malformed
from sottovoce.tasks.data.formats.tables import rows
from sottovoce.tasks.data.records import Record, Texts, collect
from sottovoce.tasks.data.specs import DatasetSpec

_SUBFOLDERS = (".", "amazon_review_polarity_csv")


def read_folder(folder: Path, spec: DatasetSpec) -> Texts:
    """``train.csv`` and ``test.csv`` in ``folder``, or in the folder of the original's name inside it."""
    for place in _SUBFOLDERS:
        files = [folder / place / name for name in ("train.csv", "test.csv")]
        if all(file.is_file() for file in files):
            return collect(*map(_read, files))
    raise DataError(f"{folder}: the files are not there. {spec.name} needs {spec.folder_note}.")


def _read(file: Path) -> Iterator[Record]:
    with file.open("rb") as stream:
        for row in rows(stream, str(file)):
            if len(row) != 3 or row[0] not in ("1", "2"):
                raise malformed(str(file), "a row that is not a label 1 or 2, a title and a text")
            yield (row[1], row[2]), int(row[0]) - 1
