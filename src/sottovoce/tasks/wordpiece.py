"""BERT's tokenizer: text to the numbers of pieces of words, for a lower-case vocabulary of WordPiece."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

PADDING, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_LONGEST = 100
"""A word of more letters is unknown, as in the published tokenizer."""


_CHINESE = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))


class WordPiece:
    """Numbers of word pieces by longest match from the left.

    Args:
        vocabulary: the pieces in the order of their numbers, pieces inside of words with a leading ``##``.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._known: dict[str, list[int]] = {}
        self.padding = self._numbers[PADDING]

    @classmethod
    def read(cls, file: Path) -> WordPiece:
        """From a ``vocab.txt``, one piece a line."""
        return cls(file.read_text(encoding="utf-8").rstrip("\n").split("\n"))

    def pieces(self, text: str) -> list[int]:
        """The numbers of a text's pieces, without start and end."""
        return [number for word in basic_words(text) for number in self._pieces_of(word)]

    def padded(self, texts: Sequence[str], length: int) -> Tensor:
        """``[texts, length]``: start, at most ``length - 2`` pieces, end, and padding."""
        rows = torch.full((len(texts), length), self.padding, dtype=torch.int64)
        for row, text in enumerate(texts):
            numbers = [self._numbers[START], *self.pieces(text)[: length - 2], self._numbers[END]]
            rows[row, : len(numbers)] = torch.tensor(numbers)
        return rows

    def _pieces_of(self, word: str) -> list[int]:
        if word not in self._known:
            self._known[word] = self._matched(word)
        return self._known[word]

    def _matched(self, word: str) -> list[int]:
        found: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST:
            for stop in range(len(word), start, -1):
                piece = word[start:stop] if start == 0 else f"##{word[start:stop]}"
                if piece in self._numbers:
                    found.append(self._numbers[piece])
                    start = stop
                    break
            else:
                return [self._numbers[UNKNOWN]]
        return found or [self._numbers[UNKNOWN]]


def basic_words(text: str) -> list[str]:
    """Lower-case words without accents; every punctuation mark and every Chinese sign is a word of its own."""
    plain = unicodedata.normalize("NFD", text.lower())
    spaced: list[str] = []
    for sign in plain:
        kind = unicodedata.category(sign)
        if kind == "Mn" or sign in "\0\ufffd" or (kind.startswith("C") and sign not in "\t\n\r"):
            continue
        spaced.append(f" {sign} " if _stands_alone(sign, kind) else sign)
    return "".join(spaced).split()


def _stands_alone(sign: str, kind: str) -> bool:
    if kind.startswith("P") or (sign.isascii() and sign.isprintable() and not sign.isalnum() and sign != " "):
        return True
    return any(first <= ord(sign) <= last for first, last in _CHINESE)
