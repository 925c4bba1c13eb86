"""Sentences with their mean sentiment from -4 to 4: lines of number, score and text, separated by tabs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import BinaryIO

from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.formats.reading import lines, malformed
from sottovoce.tasks.data.records import Record, Texts, collect
from sottovoce.tasks.data.specs import DatasetSpec

THRESHOLD = 0.5
"""Sentences whose mean sentiment is nearer to zero are left out: they are neither positive nor negative."""


def read_parts(parts: Iterator[Part], spec: DatasetSpec) -> Texts:
    """The member ``snippets``; label 1 for a positive score."""
    return collect([record for member, stream in parts for record in _read(stream, f"{spec.name}, {member.name}")])


def _read(stream: BinaryIO, origin: str) -> Iterator[Record]:
    for line in lines(stream, origin):
        fields = line.split("\t", 2)
        try:
            score = float(fields[1])
        except (IndexError, ValueError):
            score = math.nan
        if len(fields) != 3 or not -4 <= score <= 4:
            raise malformed(origin, "a line that is not a number, a score from -4 to 4 and a text")
        if abs(score) >= THRESHOLD:
            yield (fields[2],), int(score > 0)
