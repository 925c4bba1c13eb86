"""Comma-separated tables of texts, with quotation marks around fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO

from sottovoce.tasks.data.formats.reading import malformed

_LONGEST_FIELD = 1 << 24


def rows(stream: BinaryIO, origin: str) -> Iterator[list[str]]:
    """The rows of a table in UTF-8; quotation marks inside a quoted field are doubled, line ends in it are kept."""
    wrapped = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield from csv.reader(wrapped, strict=True)
    except csv.Error as error:
        raise malformed(origin, f"it is no comma-separated table ({error})") from None
    except UnicodeDecodeError as error:
        raise malformed(origin, f"bytes that are not UTF-8 ({error})") from None
    finally:
        csv.field_size_limit(limit)
        wrapped.detach()
