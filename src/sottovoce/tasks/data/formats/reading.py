"""What the parsers of texts share: decoding, and the error about a file that is another one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from sottovoce.privacy.errors import DataError

_LONGEST_LINE = 1 << 24


def malformed(origin: str, problem: str) -> DataError:
    """The error about a file that is not what its parser is for."""
    return DataError(f"{origin}: {problem}. The file is not the one that this parser is for, or it is damaged.")


def text(content: bytes, origin: str) -> str:
    """``content`` as UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise malformed(origin, f"bytes that are not UTF-8 ({error})") from None


def lines(stream: BinaryIO, origin: str) -> Iterator[str]:
    """The lines of a stream in UTF-8, without their ends; a last one that is empty is none."""
    first = True
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise malformed(origin, "a line without an end")
        try:
            decoded = line.decode("utf-8-sig" if first else "utf-8")
        except UnicodeDecodeError as error:
            raise malformed(origin, f"bytes that are not UTF-8 ({error})") from None
        first = False
        yield decoded.removesuffix("\n").removesuffix("\r")


def value(content: str | bytes, origin: str) -> Any:
    """The value of a JSON document."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise malformed(origin, f"it is no JSON ({error})") from None
