"""A BERT encoder of sentences (Devlin et al. 2019) for published weights, and two ways to tune it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.privacy.errors import DataError


class Shape(NamedTuple):
    """The sizes of an encoder; the defaults are those of MiniLM-L6."""

    vocabulary: int = 30_522
    width: int = 384
    layers: int = 6
    heads: int = 12
    inner: int = 1536
    positions: int = 512

    @classmethod
    def read(cls, file: Path) -> Shape:
        """From the ``config.json`` of a published model."""
        told = json.loads(file.read_text(encoding="utf-8"))
        if told.get("model_type") != "bert" or told.get("hidden_act") != "gelu":
            raise DataError(f"{file}: not a BERT encoder with GELU.")
        return cls(
            vocabulary=told["vocab_size"],
            width=told["hidden_size"],
            layers=told["num_hidden_layers"],
            heads=told["num_attention_heads"],
            inner=told["intermediate_size"],
            positions=told["max_position_embeddings"],
        )


class SentenceEncoder(nn.Module):
    """``[B, length]`` piece numbers, 0 for padding, to ``[B, width]``: the mean of the last states, scaled to length 1.

    Args:
        shape: the sizes.
        prompt: so many learnt vectors stand before each sentence (a soft prompt, Lester et al. 2021).
        adapter: the width of a learnt bottleneck behind each layer (Houlsby et al. 2019), which starts as the identity.
    """

    def __init__(self, shape: Shape, *, prompt: int = 0, adapter: int = 0) -> None:
        super().__init__()
        self.embeddings = Embeddings(shape, prompt)
        self.layers = nn.ModuleList(Layer(shape, adapter) for _ in range(shape.layers))
        self.prompt = prompt

    def forward(self, pieces: Tensor) -> Tensor:
        """The sentences' vectors."""
        present = functional.pad(pieces != 0, (self.prompt, 0), value=True)
        states = self.embeddings(pieces)
        seen = present[:, None, None, :]
        for layer in self.layers:
            states = layer(states, seen)
        weights = present.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        return functional.normalize(mean, dim=1)


class Embeddings(nn.Module):
    """Pieces, positions and the first segment, added and normalised, with the soft prompt in front."""

    def __init__(self, shape: Shape, prompt: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.position_embeddings = nn.Embedding(shape.positions, shape.width)
        self.token_type_embeddings = nn.Embedding(2, shape.width)
        self.layer_norm = nn.LayerNorm(shape.width, eps=1e-12)
        # Of the size of a normalised embedding, whose entries have a deviation of about one.
        self.soft_prompt = nn.Parameter(torch.randn(prompt, shape.width)) if prompt else None

    def forward(self, pieces: Tensor) -> Tensor:
        """``[B, prompt + length, width]``."""
        positions = self.position_embeddings(torch.arange(pieces.shape[1], device=pieces.device))
        segment = self.token_type_embeddings(torch.zeros(1, dtype=torch.int64, device=pieces.device))
        states = self.layer_norm(self.word_embeddings(pieces) + positions + segment)
        if self.soft_prompt is None:
            return states
        return torch.cat([self.soft_prompt.expand(len(pieces), -1, -1), states], dim=1)


class Layer(nn.Module):
    """Attention and two linear layers, each added to its input and normalised afterwards."""

    def __init__(self, shape: Shape, adapter: int) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query = nn.Linear(shape.width, shape.width)
        self.key = nn.Linear(shape.width, shape.width)
        self.value = nn.Linear(shape.width, shape.width)
        self.attended = nn.Linear(shape.width, shape.width)
        self.attended_norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.inner = nn.Linear(shape.width, shape.inner)
        self.outer = nn.Linear(shape.inner, shape.width)
        self.outer_norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.adapter = Adapter(shape.width, adapter) if adapter else nn.Identity()

    def forward(self, states: Tensor, seen: Tensor) -> Tensor:
        """The states after this layer; a state attends to those that are ``seen``."""
        rows, length, width = states.shape

        def split(values: Tensor) -> Tensor:
            return values.reshape(rows, length, self.heads, width // self.heads).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            split(self.query(states)), split(self.key(states)), split(self.value(states)), attn_mask=seen
        )
        mixed = mixed.transpose(1, 2).reshape(rows, length, width)
        states = self.attended_norm(states + self.attended(mixed))
        changed = self.outer(functional.gelu(self.inner(states)))
        return self.outer_norm(states + self.adapter(changed))


class Adapter(nn.Module):
    """``x + up(gelu(down(x)))``; ``up`` starts at zero, so that nothing is changed at first."""

    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, bottleneck)
        self.up = nn.Linear(bottleneck, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: Tensor) -> Tensor:
        """The changed states."""
        return states + self.up(functional.gelu(self.down(states)))


_NAMES = (
    ("encoder.layer.", "layers."),
    ("attention.self.", ""),
    ("attention.output.dense.", "attended."),
    ("attention.output.LayerNorm.", "attended_norm."),
    ("intermediate.dense.", "inner."),
    ("output.dense.", "outer."),
    ("output.LayerNorm.", "outer_norm."),
    ("LayerNorm.", "layer_norm."),
)


def load_weights(model: SentenceEncoder, file: Path) -> None:
    """Copy the published weights of ``file`` into ``model``; prompt and adapters stay as they are, the pooler is left.

    Raises:
        DataError: its names or shapes are not those of the model.
    """
    named: dict[str, Tensor] = {}
    for published, value in load_file(file).items():
        if published.startswith("pooler.") or published.endswith("position_ids"):
            continue
        name = published
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        named[name] = value
    try:
        missing, unknown = model.load_state_dict(named, strict=False)
    except RuntimeError as error:
        raise DataError(f"{file}: not the weights of this encoder ({error}).") from error
    missing = [name for name in missing if "adapter" not in name and "soft_prompt" not in name]
    if missing or unknown:
        raise DataError(f"{file}: not the weights of this encoder; missing {missing}, unknown {unknown}.")
