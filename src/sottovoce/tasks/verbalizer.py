"""Classes as words: a text stands in a template, and the next word's logits are its scores (Schick, Schütze 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks.byte_pairs import BytePairs
from sottovoce.tasks.llama import Llama

Read = Literal["start", "end"]
"""Which part of a text that is too long is read."""

PLACE = "{text}"
"""Where the text stands in a template."""


class Template:
    """Texts as rows of tokens: what stands before, the text, what stands behind, and padding.

    Args:
        written: the template, with ``{text}`` in it once.
        tokenizer: of the model.
        length: of a row.
        read: the part that is kept of a text with more tokens than a row has room for.
        padding: a token that is in no text.
    """

    def __init__(self, written: str, tokenizer: BytePairs, *, length: int, read: Read, padding: int) -> None:
        before, after = split(written)
        text = before.rstrip(" ")
        self._space = before[len(text) :]  # a space belongs to the word behind it
        self._before, self._after = tokenizer.encode(text), tokenizer.encode(after)
        self._tokenizer, self._length, self._read, self._padding = tokenizer, length, read, padding
        self._room = length - len(self._before) - len(self._after)
        if self._room < 1:
            raise ConfigurationError(f"length={length}: the template alone has {length - self._room} tokens.")

    def rows(self, texts: Sequence[str]) -> Tensor:
        """``[texts, length]``; a row depends on its own text alone."""
        rows = torch.full((len(texts), self._length), self._padding, dtype=torch.int64)
        for row, text in enumerate(texts):
            tokens = self._tokenizer.encode(self._space + text.strip())
            kept = tokens[-self._room :] if self._read == "end" else tokens[: self._room]
            whole = [*self._before, *kept, *self._after]
            rows[row, : len(whole)] = torch.tensor(whole)
        return rows


class Verbalizer(nn.Module):
    """``[B, length]`` tokens to ``[B, classes]``: the logits of each class's word behind the last token of a row.

    Padding stands behind the texts, where no token before it looks, so it does not change a score.

    Args:
        decoder: the language model.
        words: the token of each class.
        padding: the token that fills rows up.
    """

    words: Tensor

    def __init__(self, decoder: Llama, words: Sequence[int], padding: int) -> None:
        super().__init__()
        self.decoder = decoder
        self.padding = padding
        self.register_buffer("words", torch.tensor(words))

    def forward(self, tokens: Tensor) -> Tensor:
        """The classes' scores."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        last = ((tokens != self.padding) * places).amax(dim=1) + self.decoder.prompt
        states = torch.take_along_dim(self.decoder(tokens), last[:, None, None], dim=1)[:, 0]
        return self.decoder.scores(states, self.words)


def split(written: str) -> tuple[str, str]:
    """What stands before and behind the text in a template."""
    if not isinstance(written, str) or written.count(PLACE) != 1:
        raise ConfigurationError(f"template={written!r}: a text with {PLACE} in it once is needed.")
    before, _, after = written.partition(PLACE)
    return before, after


def tokens_of(words: Sequence[str], tokenizer: BytePairs) -> list[int]:
    """The one token of each word.

    Raises:
        ConfigurationError: there are fewer than two words, two are the same, or one has several tokens.
    """
    if isinstance(words, str) or len(words) < 2 or any(not isinstance(word, str) for word in words):
        raise ConfigurationError(f"words={words!r}: one word for each class is needed.")
    found = [tokenizer.encode(word) for word in words]
    for word, tokens in zip(words, found, strict=True):
        if len(tokens) != 1:
            raise ConfigurationError(
                f"words={words!r}: {word!r} has {len(tokens)} tokens, and one is needed. Most words are one token with "
                "the space before them."
            )
    if len({token for (token,) in found}) < len(found):
        raise ConfigurationError(f"words={words!r}: they must differ.")
    return [token for (token,) in found]
