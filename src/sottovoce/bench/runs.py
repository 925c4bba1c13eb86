"""The CSV file of runs: whole rows only, wherever an earlier process was cut off."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sottovoce.bench.cells import Row
from sottovoce.privacy.errors import ConfigurationError

_KINDS = {field.name: str(field.type) for field in dataclasses.fields(Row)}
_CAST: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}


def read(path: Path) -> list[Row]:
    """The whole rows of a CSV file; none if there is no file, or if its heading was never finished.

    Raises:
        ConfigurationError: the file has other columns, or is damaged elsewhere than at its end.
    """
    return _read(path)[0]


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Row], None]]:
    """A function that writes a row for good. What was cut off at the end of the file is removed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = _read(path)[1]
    with path.open("a", newline="", encoding="utf-8") as file:
        file.truncate(size)
        writer = csv.DictWriter(file, fieldnames=list(_KINDS))
        if size == 0:
            writer.writeheader()
            file.flush()  # the first run may be killed, too

        def write(row: Row) -> None:
            writer.writerow(dataclasses.asdict(row))
            file.flush()

        yield write


def _read(path: Path) -> tuple[list[Row], int]:
    """The rows, and how many bytes of the file are whole lines of its own."""
    content = path.read_bytes() if path.exists() else b""
    *lines, cut = content.split(b"\n")  # no field holds a line break; what follows the last one was cut off
    if not lines and ",".join(_KINDS).encode().startswith(cut.removesuffix(b"\r")):
        return [], 0
    if not lines or _fields(lines[0]) != list(_KINDS):
        raise ConfigurationError(f"{path} has other columns than this release writes: take another --out folder.")
    found: list[Row] = []
    size = len(lines[0]) + 1
    for number, line in enumerate(lines[1:], start=2):
        row = _row(line)
        if row is None and number == len(lines):  # the last line of all
            break
        if row is None:
            raise ConfigurationError(f"{path}, line {number}, is not a whole run: delete that line to run it again.")
        found.append(row)
        size += len(line) + 1
    return found, size


def _row(line: bytes) -> Row | None:
    """The row of a line; None for a damaged one."""
    try:
        fields = _fields(line)
        return Row(**{name: _CAST[kind](field) for (name, kind), field in zip(_KINDS.items(), fields, strict=True)})
    except ValueError:  # too few fields or too many, not a number, or not text
        return None


def _fields(line: bytes) -> list[str]:
    return next(csv.reader(io.StringIO(line.decode(), newline=""), strict=True), [])
