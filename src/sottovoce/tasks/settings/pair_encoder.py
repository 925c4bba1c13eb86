"""MiniLM for pairs of sentences, as a frozen source of features or as a network that is tuned in small parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from sottovoce.tasks.bert import SentenceEncoder, Shape, load_weights
from sottovoce.tasks.drawing import drawn
from sottovoce.tasks.features import cached
from sottovoce.tasks.heads import pair_features
from sottovoce.tasks.settings.corpora import Pairs
from sottovoce.tasks.wordpiece import WordPiece

Tune = Literal["head", "adapter", "prompt"]
"""What is trained with the whole encoder in the model: the head, with adapters behind each layer, or a soft prompt."""

_AT_ONCE = 64


class PairEncoder(nn.Module):
    """``[B, 2, length]`` pieces of two sentences to the features of the pair."""

    def __init__(self, sentences: SentenceEncoder) -> None:
        super().__init__()
        self.sentences = sentences

    def forward(self, pieces: Tensor) -> Tensor:
        """``[B, 4 width]``."""
        vectors = self.sentences(pieces.flatten(0, 1)).unflatten(0, (len(pieces), 2))
        return pair_features(vectors[:, 0], vectors[:, 1])


@dataclass(frozen=True)
class Encoder:
    """MiniLM from its files, for sentences of at most ``length`` pieces."""

    files: dict[str, Path]
    length: int
    tokenizer: WordPiece

    def pieces(self, pairs: Pairs) -> Tensor:
        """``[pairs, 2, length]``."""
        flat = [sentence for pair in pairs.sentences for sentence in pair]
        return self.tokenizer.padded(flat, self.length).unflatten(0, (len(pairs.sentences), 2))

    def network(self, tune: Tune, seed: int) -> nn.Module:
        """A fresh copy of the pretrained encoder, of which only what ``tune`` adds is trained."""
        shape = Shape.read(self.files["config.json"])
        prompt, adapter = {"head": (0, 0), "adapter": (0, 16), "prompt": (8, 0)}[tune]
        sentences = drawn(seed, lambda: SentenceEncoder(shape, prompt=prompt, adapter=adapter))
        assert isinstance(sentences, SentenceEncoder)
        load_weights(sentences, self.files["model.safetensors"])
        for name, parameter in sentences.named_parameters():
            parameter.requires_grad_("adapter" in name or "soft_prompt" in name)
        return PairEncoder(sentences).eval()

    def features(self, name: str, pairs: Pairs) -> Tensor:
        """``[pairs, 4 width]``, from the cache or by the encoder."""

        def compute() -> Tensor:
            network = self.network("head", 0)
            assert isinstance(network, PairEncoder)
            unique = sorted({sentence for pair in pairs.sentences for sentence in pair})
            numbers = {sentence: number for number, sentence in enumerate(unique)}
            vectors = self._vectors(network.sentences, self.tokenizer.padded(unique, self.length))
            return torch.stack([vectors[[numbers[pair[side]] for pair in pairs.sentences]] for side in (0, 1)], dim=1)

        ingredients = [
            self.files["model.safetensors"].read_bytes(),
            self.files["vocab.txt"].read_bytes(),
            str(self.length).encode(),
            *("\0".join(pair).encode() for pair in pairs.sentences),
        ]
        both = cached(f"{name}-minilm-{self.length}", ingredients, compute)
        return pair_features(both[:, 0], both[:, 1])

    @staticmethod
    def _vectors(network: SentenceEncoder, pieces: Tensor) -> Tensor:
        """Short sentences together, so that little padding is computed."""
        lengths = (pieces != 0).sum(dim=1)
        order = lengths.argsort(stable=True)
        found = [network(pieces[chosen, : int(lengths[chosen].max())]) for chosen in order.split(_AT_ONCE)]
        return torch.cat(found)[order.argsort()]
