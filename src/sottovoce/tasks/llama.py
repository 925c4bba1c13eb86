"""A Llama decoder (Touvron et al. 2023) for published weights, and two ways to tune it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.privacy.errors import DataError


class Shape(NamedTuple):
    """The sizes of a decoder.

    Attributes:
        vocabulary: the number of tokens.
        width: the length of a state.
        layers: the number of layers.
        heads: the heads of attention.
        groups: the heads of keys and values, each shared by ``heads / groups`` heads.
        inner: the width inside the gated layer.
        base: of the wave lengths of positions.
        epsilon: what is added to the mean square before its root.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    groups: int
    inner: int
    base: float
    epsilon: float

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Shape:
        """From the metadata of a GGUF file.

        Raises:
            DataError: it is not a Llama, or one with features that are not computed here.
        """
        if metadata.get("general.architecture") != "llama" or "llama.rope.scaling.type" in metadata:
            raise DataError("the GGUF file does not hold a Llama with plain rotary positions.")
        try:
            shape = cls(
                vocabulary=len(metadata["tokenizer.ggml.tokens"]),
                width=metadata["llama.embedding_length"],
                layers=metadata["llama.block_count"],
                heads=metadata["llama.attention.head_count"],
                groups=metadata["llama.attention.head_count_kv"],
                inner=metadata["llama.feed_forward_length"],
                base=metadata["llama.rope.freq_base"],
                epsilon=metadata["llama.attention.layer_norm_rms_epsilon"],
            )
        except KeyError as error:
            raise DataError(f"the GGUF file does not tell {error}.") from error
        if shape.width % (2 * shape.heads) or shape.heads % shape.groups:
            raise DataError(f"the GGUF file tells of {shape}, whose heads do not divide.")
        return shape


class Llama(nn.Module):
    """``[B, length]`` tokens to the normalised last states ``[B, prompt + length, width]``.

    A state depends on the tokens up to its own place alone, so what stands behind a text changes nothing.

    Args:
        shape: the sizes.
        prompt: so many learnt vectors stand before each text (a soft prompt, Lester et al. 2021).
        rank: of learnt changes of the queries' and values' matrices (LoRA, Hu et al. 2022), which start at zero.
    """

    def __init__(self, shape: Shape, *, prompt: int = 0, rank: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.prompt = prompt
        self.embeddings = Embeddings(shape, prompt)
        self.layers = nn.ModuleList(Layer(shape, rank) for _ in range(shape.layers))
        self.norm = RootMeanSquare(shape)

    def forward(self, tokens: Tensor) -> Tensor:
        """The states."""
        states = self.embeddings(tokens)
        places = torch.arange(states.shape[1], device=tokens.device)
        turns = rotations(places, self.shape)
        seen = places[:, None] >= places[None, :]
        for layer in self.layers:
            states = layer(states, turns, seen)
        return self.norm(states)

    def scores(self, states: Tensor, tokens: Tensor) -> Tensor:
        """The logits of ``tokens`` (``[n]``) as the next ones, ``[..., n]``; the output matrix is the embeddings'."""
        return states @ self.embeddings.tokens.weight[tokens].mT


class Embeddings(nn.Module):
    """The vectors of the tokens, with the soft prompt in front."""

    def __init__(self, shape: Shape, prompt: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.soft_prompt = nn.Parameter(torch.randn(prompt, shape.width)) if prompt else None

    def begin(self, tokens: Tensor, jitter: float) -> None:
        """The soft prompt becomes the vectors of ``tokens``, over and over, off by what it was drawn as.

        ``jitter`` is the size of that in deviations of the vectors' entries. Without a soft prompt nothing is done.
        """
        if self.soft_prompt is None:
            return
        count = len(self.soft_prompt)
        with torch.no_grad():
            vectors = self.tokens.weight[tokens.repeat(-(-count // len(tokens)))[:count]]
            self.soft_prompt.mul_(jitter * vectors.std()).add_(vectors)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[B, prompt + length, width]``."""
        states = self.tokens(tokens)
        if self.soft_prompt is None:
            return states
        return torch.cat([self.soft_prompt.expand(len(tokens), -1, -1), states], dim=1)


class Layer(nn.Module):
    """Attention and a gated layer, each on the normalised states and added to them."""

    def __init__(self, shape: Shape, rank: int) -> None:
        super().__init__()
        self.attention_norm = RootMeanSquare(shape)
        self.attention = Attention(shape, rank)
        self.gated_norm = RootMeanSquare(shape)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.upper = nn.Linear(shape.width, shape.inner, bias=False)
        self.lower = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, states: Tensor, turns: tuple[Tensor, Tensor], seen: Tensor) -> Tensor:
        """The states after this layer."""
        states = states + self.attention(self.attention_norm(states), turns, seen)
        inner = self.gated_norm(states)
        return states + self.lower(functional.silu(self.gate(inner)) * self.upper(inner))


class Attention(nn.Module):
    """Attention whose heads share keys and values in groups (Ainslie et al. 2023), with rotary positions."""

    def __init__(self, shape: Shape, rank: int) -> None:
        super().__init__()
        self.heads, self.groups = shape.heads, shape.groups
        self.size = shape.width // shape.heads
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.groups * self.size, bias=False)
        self.value = nn.Linear(shape.width, shape.groups * self.size, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)
        self.query_change = LowRank(self.query, rank) if rank else None
        self.value_change = LowRank(self.value, rank) if rank else None

    def forward(self, states: Tensor, turns: tuple[Tensor, Tensor], seen: Tensor) -> Tensor:
        """What each state takes from those that it has ``seen``."""
        queries, keys, values = self.query(states), self.key(states), self.value(states)
        if self.query_change is not None and self.value_change is not None:
            queries, values = queries + self.query_change(states), values + self.value_change(states)
        mixed = functional.scaled_dot_product_attention(
            turned(self._split(queries, self.heads), turns),
            self._shared(turned(self._split(keys, self.groups), turns)),
            self._shared(self._split(values, self.groups)),
            attn_mask=seen,
        )
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _split(self, values: Tensor, heads: int) -> Tensor:
        return values.unflatten(-1, (heads, self.size)).transpose(1, 2)

    def _shared(self, values: Tensor) -> Tensor:
        """Each group's keys or values once for every head that uses them, ``[B, heads, length, size]``."""
        each = self.heads // self.groups
        return values.unsqueeze(2).expand(-1, -1, each, -1, -1).flatten(1, 2)


class LowRank(nn.Module):
    """``up(down(x))``, a change of a linear layer; ``up`` starts at zero, so that nothing is changed at first."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, states: Tensor) -> Tensor:
        """What is added to the layer's output."""
        return self.up(self.down(states))


class RootMeanSquare(nn.Module):
    """States divided by the root of their mean square, and weighted (Zhang and Sennrich 2019)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.epsilon

    def forward(self, states: Tensor) -> Tensor:
        """The normalised states."""
        return states * torch.rsqrt(states.square().mean(dim=-1, keepdim=True) + self.epsilon) * self.weight


def rotations(places: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """The cosines and sines by which pairs of coordinates are turned, each ``[length, size / 2]`` (Su et al. 2021)."""
    size = shape.width // shape.heads
    speeds = shape.base ** (-torch.arange(0, size, 2, dtype=torch.float64, device=places.device) / size)
    angles = places[:, None] * speeds
    return angles.cos().float(), angles.sin().float()


def turned(values: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Neighbouring coordinates turned as a pair: GGUF keeps the rows of Llama's matrices in that order."""
    cosines, sines = turns
    first, second = values.unflatten(-1, (-1, 2)).unbind(dim=-1)
    return torch.stack([first * cosines - second * sines, first * sines + second * cosines], dim=-1).flatten(-2)
