"""Images as comma-separated text: a header line, then one line for each image, its label before its pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.arrays import Arrays, Labels, Pixels
from sottovoce.tasks.data.specs import DatasetSpec

_CHUNK = 8 << 20
_LONGEST_HEADER = 1 << 20
_COMMA, _NEWLINE, _ZERO = ord(","), ord("\n"), ord("0")


def read_parts(parts: Iterator[Part], spec: DatasetSpec) -> Arrays:
    """The members ``train`` and ``test``."""
    records = {"train": spec.train_records, "test": spec.test_records}
    channels, height, width = spec.shape
    read_by_role = {
        member.role: read(
            stream, shape=(channels, height, width), records=records[member.role], origin=f"{spec.name}, {member.name}"
        )
        for member, stream in parts
    }
    return Arrays(*read_by_role["train"], *read_by_role["test"])


def read(stream: BinaryIO, *, shape: tuple[int, int, int], records: int, origin: str) -> tuple[Pixels, Labels]:
    """Parse at most ``records`` lines of ``1 + pixels`` integers in 0..255; anything else is refused.

    Separators are found for megabytes at once and the digits before them are combined by array arithmetic,
    so a hundred megabytes take a second or two, in bounded memory, with no text-to-number library involved.
    """
    columns = 1 + int(np.prod(shape))
    table = np.empty((records, columns), dtype=np.uint8)
    header = stream.readline(_LONGEST_HEADER)
    if header.count(b",") + 1 != columns or not header.endswith(b"\n"):
        raise _malformed(origin, f"a header line of {header.count(b',') + 1} columns, where {columns} are needed")
    filled, rest = 0, b""
    while True:
        block = stream.read(_CHUNK)
        if not block and rest:
            block = b"\n"  # the last line may lack its end
        if not block:
            break
        text = (rest + block).replace(b"\r\n", b"\n")
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        if not end:
            if len(rest) > _LONGEST_HEADER:
                raise _malformed(origin, "a line without an end")
            continue
        values = _numbers(text[:end], columns, origin)
        if filled + len(values) > records:
            raise _malformed(origin, f"more than the {records} lines expected")
        table[filled : filled + len(values)] = values
        filled += len(values)
    if filled != records:
        raise _malformed(origin, f"{filled} lines, where {records} are needed")
    return np.ascontiguousarray(table[:, 1:]).reshape(records, *shape), table[:, 0].astype(np.int64)


def _numbers(lines: bytes, columns: int, origin: str) -> npt.NDArray[np.uint8]:
    """The integers of whole ``lines``, as rows of ``columns``."""
    digits = np.frombuffer(b"000" + lines, dtype=np.uint8)  # so that three places before the first separator exist
    stops = np.flatnonzero(digits < _ZERO)
    widths = np.diff(stops, prepend=2) - 1
    separators = digits[stops]
    if len(stops) % columns or int(digits.max()) > _ZERO + 9:
        raise _malformed(origin, f"a line that is not {columns} whole numbers")
    separators = separators.reshape(-1, columns)
    if np.any(separators[:, :-1] != _COMMA) or np.any(separators[:, -1] != _NEWLINE):
        raise _malformed(origin, f"a line that is not {columns} whole numbers separated by commas")
    if int(widths.min()) < 1 or int(widths.max()) > 3:
        raise _malformed(origin, "an empty field, or a number of more than three digits")
    places = (digits - _ZERO).astype(np.int16)
    value = places[stops - 1]
    value += 10 * np.where(widths >= 2, places[stops - 2], 0)
    value += 100 * np.where(widths == 3, places[stops - 3], 0)
    if int(value.max()) > 255:
        raise _malformed(origin, "a number above 255")
    return value.astype(np.uint8).reshape(-1, columns)


def _malformed(origin: str, problem: str) -> DataError:
    return DataError(f"{origin}: {problem}. The file is not the one that this parser is for, or it is damaged.")
