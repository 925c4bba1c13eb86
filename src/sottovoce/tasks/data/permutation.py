"""A fixed, public order of records, for files that are sorted or lack the official split.

It is defined by SHA-256 alone, so it depends on no library's random numbers, and anyone can compute it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sottovoce.tasks.data.records import Record


def order(name: str, records: int) -> list[int]:
    """The numbers 0 to ``records - 1``, sorted by the SHA-256 of ``"NAME:NUMBER"``."""
    return sorted(range(records), key=lambda number: hashlib.sha256(f"{name}:{number}".encode()).digest())


def shuffled(name: str, records: Sequence[Record]) -> list[Record]:
    """``records`` in the order that belongs to ``name`` and their number."""
    return [records[number] for number in order(name, len(records))]


def halves(name: str, records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Two parts in the order that belongs to ``name``: of each class the first half, and the rest."""
    total: dict[int, int] = {}
    for _, label in records:
        total[label] = total.get(label, 0) + 1
    taken = dict.fromkeys(total, 0)
    parts: tuple[list[Record], list[Record]] = ([], [])
    for record in shuffled(name, records):
        label = record[1]
        parts[taken[label] >= total[label] // 2].append(record)
        taken[label] += 1
    return parts
