"""Writing flat tables as TOML; the standard library only reads it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

Value = str | int | float | bool | Sequence["Value"]
"""What a configuration may hold."""

Tables = Mapping[str, Mapping[str, Value]]
"""Values by table and key."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def dumps(tables: Tables) -> str:
    """TOML text from which `tomllib.loads` makes the same tables, to the last bit of every number.

    Raises:
        TypeError: a value is none of text, number, boolean, or a list of these.
        ValueError: text holds a lone surrogate, which no TOML file can.
    """
    blocks: list[str] = []
    for table, values in tables.items():
        lines = [f"{_key(key)} = {_value(value)}\n" for key, value in values.items()]
        blocks.append(f"[{_key(table)}]\n{''.join(lines)}")
    return "\n".join(blocks)


def is_value(value: object) -> bool:
    """Whether `dumps` can write it."""
    if isinstance(value, list | tuple):
        return all(map(is_value, value))
    return isinstance(value, str | int | float)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else str(float(value))
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"{value!r}: TOML holds text, numbers, booleans and lists of them here.")


def _text(text: str) -> str:
    text.encode()  # raises on a lone surrogate
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return f"\\u{ord(character):04x}" if character < " " or character == "\x7f" else character
