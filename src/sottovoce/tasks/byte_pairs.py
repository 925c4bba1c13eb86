"""The tokenizer of GPT-2's family: text to the numbers of byte pairs, merged in the order of their learning."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from sottovoce.privacy.errors import DataError

_LETTER, _NUMBER, _SPACE, _OTHER = "L", "N", "_", "O"


class BytePairs:
    """Numbers of the byte pairs of a text, as SmolLM counts them: each digit alone, then the words of GPT-2.

    A special token, such as ``<|im_end|>``, is never read out of a text: its signs are encoded like any others, so no
    text can end itself. A byte without a token (SmolLM2 lacks 21, which are control signs or in no valid text) is left
    out before pairs are merged.

    Args:
        tokens: the tokens in the order of their numbers, each byte written as GPT-2's sign for it.
        merges: pairs of tokens with a space between, the first learnt first.
    """

    def __init__(self, tokens: Sequence[str], merges: Sequence[str]) -> None:
        self._numbers = {token: number for number, token in enumerate(tokens)}
        self._ranks: dict[tuple[str, ...], int] = {tuple(pair.split(" ")): rank for rank, pair in enumerate(merges)}
        self._known: dict[str, list[int]] = {}
        for one, *others in self._ranks:
            if len(others) != 1 or one + others[0] not in self._numbers:
                raise DataError(f"{' '.join([one, *others])!r} is not a pair of tokens that make a third.")

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> BytePairs:
        """From the metadata of a GGUF file.

        Raises:
            DataError: the tokenizer is another one.
        """
        kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
        if kind != ("gpt2", "smollm"):
            raise DataError(f"the tokenizer is {kind}; ('gpt2', 'smollm') is known.")
        try:
            return cls(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"])
        except KeyError as error:
            raise DataError(f"the metadata lacks {error}.") from error

    def encode(self, text: str) -> list[int]:
        """The numbers of the text's tokens."""
        found: list[int] = []
        for word in words(text):
            if word not in self._known:
                self._known[word] = self._merged(word)
            found += self._known[word]
        return found

    def _merged(self, word: str) -> list[int]:
        """Every place of the pair learnt first is merged, then of the next, until no known pair is left."""
        parts = [BYTES[byte] for byte in word.encode("utf-8", errors="replace") if BYTES[byte] in self._numbers]
        while len(parts) > 1:
            pairs = set(itertools.pairwise(parts)) & self._ranks.keys()
            if not pairs:
                break
            best = min(pairs, key=self._ranks.__getitem__)
            merged: list[str] = []
            for part in parts:
                if merged and (merged[-1], part) == best:
                    merged[-1] += part
                else:
                    merged.append(part)
            parts = merged
        return [self._numbers[part] for part in parts]


def words(text: str) -> list[str]:
    """What is never merged with its neighbours: digits, contractions, and runs of letters, of signs and of spaces.

    A run of letters or signs takes one space before it along. Letters and numbers are those of Unicode's categories L
    and N. The words together are the text.
    """
    return _pattern().findall(text)


@functools.cache
def _pattern() -> re.Pattern[str]:
    """GPT-2's expression, in which a digit is not a neighbour; Python has no classes for Unicode's categories."""
    kinds = "".join(map(_kind, map(chr, range(sys.maxunicode + 1))))
    letter, number, space = (
        "".join(f"{chr(run.start())}-{chr(run.end() - 1)}" for run in re.finditer(f"{kind}+", kinds))
        for kind in (_LETTER, _NUMBER, _SPACE)
    )
    return re.compile(
        f"'(?:s|t|re|ve|m|ll|d)|[{number}]| ?[{letter}]+| ?[^{space}{letter}{number}]+"
        f"|[{space}]+(?![^{space}{number}])|[{space}]+"
    )


def _kind(sign: str) -> str:
    category = unicodedata.category(sign)[0]
    if category in (_LETTER, _NUMBER):
        return category
    # Python counts the four separators of files and records among the spaces, Unicode does not.
    return _SPACE if sign.isspace() and not "\x1c" <= sign <= "\x1f" else _OTHER


def _signs_of_bytes() -> tuple[str, ...]:
    """Printable bytes stand for themselves; the others are the signs from U+0100 on, in their order."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTES = _signs_of_bytes()
"""GPT-2's sign for each byte."""
