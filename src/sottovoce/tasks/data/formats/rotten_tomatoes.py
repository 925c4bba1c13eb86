"""Film reviews of two sources in one table of text, label and source; only the Rotten Tomatoes rows are taken."""

from __future__ import annotations

from collections.abc import Iterator

from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.formats.reading import malformed
from sottovoce.tasks.data.formats.tables import rows
from sottovoce.tasks.data.permutation import shuffled
from sottovoce.tasks.data.records import Record, Texts, collect
from sottovoce.tasks.data.specs import DatasetSpec

_HEADER = ["text", "label", "source"]
_SOURCES = ("imdb", "rotten_tomatoes")


def read_parts(parts: Iterator[Part], spec: DatasetSpec) -> Texts:
    """The member ``reviews``, in the order of the fixed permutation, as the file is sorted by class."""
    records: list[Record] = []
    for member, stream in parts:
        origin = f"{spec.name}, {member.name}"
        table = rows(stream, origin)
        if next(table, None) != _HEADER:
            raise malformed(origin, f"a header other than {','.join(_HEADER)}")
        for row in table:
            if len(row) != 3 or row[1] not in ("0", "1") or row[2] not in _SOURCES:
                raise malformed(origin, "a row that is not a text, a label 0 or 1 and a known source")
            if row[2] == "rotten_tomatoes":
                records.append(((row[0],), int(row[1])))
    return collect(shuffled(spec.name, records))
