"""Texts as rows of word numbers of one fixed length.

The numbers of words must not come from private text: a vocabulary counted on it would be a release. Two ways remain:
a vocabulary counted on public text, or the remainder of a hash, which knows no text at all.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

PADDING = 0
UNKNOWN = 1
_WORD = re.compile(r"[a-z']+|[!?]")

Numbering = Callable[[str], int]
"""From a word to its number, at least 1."""


def words(text: str) -> list[str]:
    """The words of a text in lower case, and its exclamation and question marks."""
    return _WORD.findall(text.lower())


def counted(public_texts: Iterable[str], size: int) -> Numbering:
    """The ``size - 2`` most frequent words of PUBLIC texts by number; every other word is ``UNKNOWN``.

    Words of equal frequency are in alphabetical order, so the numbers depend on the texts alone.
    """
    counts = Counter(word for text in public_texts for word in words(text))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: size - 2]
    numbers = {word: number for number, word in enumerate(ranked, start=2)}
    return lambda word: numbers.get(word, UNKNOWN)


def hashed(size: int) -> Numbering:
    """The SHA-256 of a word, reduced to 1 ... ``size - 1``: no text is counted, and words may share a number."""

    @functools.cache
    def number(word: str) -> int:
        return 1 + int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") % (size - 1)

    return number


def padded(texts: Sequence[str], numbering: Numbering, length: int) -> Tensor:
    """``[texts, length]``: the first ``length`` words of each text, filled up with ``PADDING``."""
    rows = torch.full((len(texts), length), PADDING, dtype=torch.int64)
    for row, text in enumerate(texts):
        numbers = [numbering(word) for word in words(text)[:length]]
        rows[row, : len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
    return rows
