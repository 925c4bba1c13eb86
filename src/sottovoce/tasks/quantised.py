"""Numbers as a GGUF file stores them, in blocks of few bits, back to float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_BLOCK = 32
"""The values of a quantised block."""


class Encoding(NamedTuple):
    """How values are stored.

    Attributes:
        name: as in the format's description.
        values: the values of one block.
        size: the bytes of one block.
        decode: from bytes ``[blocks, size]`` to float32 ``[blocks, values]``.
    """

    name: str
    values: int
    size: int
    decode: Callable[[Bytes], Floats]


def _plain(kind: str) -> Callable[[Bytes], Floats]:
    def decode(blocks: Bytes) -> Floats:
        return _numbers(blocks, kind)

    return decode


def _q4_0(blocks: Bytes) -> Floats:
    """A scale, and 4 bits that count from -8."""
    return _numbers(blocks[:, :2], "<f2") * np.subtract(_nibbles(blocks[:, 2:]), 8, dtype=np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    """A scale, a least value, and 4 bits that count upwards from it."""
    return _numbers(blocks[:, :2], "<f2") * _nibbles(blocks[:, 4:]) + _numbers(blocks[:, 2:4], "<f2")


def _q8_0(blocks: Bytes) -> Floats:
    """A scale, and 8 bits with a sign."""
    return _numbers(blocks[:, :2], "<f2") * _numbers(blocks[:, 2:], "i1")


def _numbers(blocks: Bytes, kind: str) -> Floats:
    found: NDArray[Any] = np.ascontiguousarray(blocks).view(kind)
    return found.astype(np.float32)


def _nibbles(blocks: Bytes) -> Floats:
    """The lower halves of all bytes, then the upper ones."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=1).astype(np.float32)


ENCODINGS = {
    0: Encoding("F32", 1, 4, _plain("<f4")),
    1: Encoding("F16", 1, 2, _plain("<f2")),
    2: Encoding("Q4_0", _BLOCK, 18, _q4_0),
    3: Encoding("Q4_1", _BLOCK, 20, _q4_1),
    8: Encoding("Q8_0", _BLOCK, 34, _q8_0),
}
"""The encodings that are read, by their numbers in the format."""
