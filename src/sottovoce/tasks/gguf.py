"""A reader of GGUF (version 3), the file format of quantised language models: its metadata and its tensors."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.quantised import ENCODINGS, Bytes, Encoding, Floats

_MAGIC = b"GGUF"
_VERSION = 3
_ALIGNMENT = "general.alignment"
_MOST_DIMENSIONS = 4

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The codes of ``struct`` by the format's numbers of types."""


class _Stored(NamedTuple):
    """Where a tensor lies; ``shape`` has the innermost dimension last, unlike the file."""

    shape: tuple[int, ...]
    encoding: Encoding
    start: int
    size: int


class GgufFile:
    """A GGUF file, opened and checked: every string, array and tensor lies within it.

    Tensors are read from the disk when they are asked for.

    Attributes:
        metadata: the values by their keys: numbers, truth values, strings, and lists of one of these.

    Raises:
        DataError: the file is not GGUF of version 3, is cut off or contradicts itself, or a tensor has an encoding that
            is not read here.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._tensors: dict[str, _Stored] = {}
        self.metadata: dict[str, Any] = {}
        try:
            self._bytes: Bytes = np.memmap(file, dtype=np.uint8, mode="r")
        except ValueError as error:  # an empty file cannot be mapped
            raise self._refused("it is empty") from error
        self._at = 0
        try:
            self._read()
        except (struct.error, UnicodeDecodeError) as error:
            raise self._refused(f"{error}, at byte {self._at}") from error

    def names(self) -> tuple[str, ...]:
        """The names of the tensors."""
        return tuple(self._tensors)

    def tensor(self, name: str) -> Floats:
        """The tensor called ``name`` as float32, in memory of its own; a matrix is ``[outputs, inputs]``."""
        if name not in self._tensors:
            raise self._refused(f"it has no tensor {name!r}")
        shape, encoding, start, size = self._tensors[name]
        blocks = self._bytes[start : start + size].reshape(-1, encoding.size)
        return encoding.decode(blocks).reshape(shape)

    def _read(self) -> None:
        if self._take(len(_MAGIC)) != _MAGIC:
            raise self._refused("it does not start with GGUF")
        version = self._number("I")
        if version != _VERSION:
            raise self._refused(f"its version is {version}, and {_VERSION} is read")
        tensors, keys = self._number("Q"), self._number("Q")
        for _ in range(keys):
            key = self._string()
            if key in self.metadata:
                raise self._refused(f"the key {key!r} stands there twice")
            self.metadata[key] = self._value(self._number("I"))
        found = [self._tensor_entry() for _ in range(tensors)]
        alignment = self.metadata.get(_ALIGNMENT, 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment % 8:
            raise self._refused(f"{_ALIGNMENT} is {alignment!r}")
        data = -(-self._at // alignment) * alignment
        for name, shape, encoding, offset in found:
            size = math.prod(shape) // encoding.values * encoding.size
            if offset % alignment or data + offset + size > len(self._bytes):
                raise self._refused(f"the tensor {name!r} does not lie within it")
            if name in self._tensors:
                raise self._refused(f"the tensor {name!r} stands there twice")
            self._tensors[name] = _Stored(shape, encoding, data + offset, size)

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], Encoding, int]:
        name = self._string()
        dimensions = self._number("I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise self._refused(f"the tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))
        kind, offset = self._number("I"), self._number("Q")
        if kind not in ENCODINGS:
            known = ", ".join(encoding.name for encoding in ENCODINGS.values())
            raise self._refused(f"the tensor {name!r} has the encoding {kind}; read are {known}")
        encoding = ENCODINGS[kind]
        if min(shape) < 1 or shape[0] % encoding.values:
            raise self._refused(f"the tensor {name!r} has the shape {shape} in blocks of {encoding.values}")
        return name, shape[::-1], encoding, offset

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind != _ARRAY:
            raise self._refused(f"a value has the unknown type {kind}")
        of, count = self._number("I"), self._number("Q")
        if of == _STRING:
            return [self._string() for _ in range(count)]
        if of not in _SCALARS:  # lists of lists are allowed by the format and used by nobody
            raise self._refused(f"a list is of the type {of}")
        code = _SCALARS[of]
        return list(struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize(code))))

    def _string(self) -> str:
        return self._take(self._number("Q")).decode()

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _take(self, size: int) -> bytes:
        """The next bytes; that they are there is checked before anything is copied."""
        if size > len(self._bytes) - self._at:
            raise self._refused(f"it ends within the {size} bytes at {self._at}")
        self._at += size
        return self._bytes[self._at - size : self._at].tobytes()

    def _refused(self, reason: str) -> DataError:
        return DataError(f"{self.file}: not a GGUF file that can be read: {reason}.")
