"""The Llama decoder against a slow reference, padding and order, weights by their published names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf_fakes
import numpy as np
import pytest
import torch
from gguf_fakes import METADATA, SHAPE, content, plain, published_llama
from numpy.typing import NDArray

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import llama, llama_weights
from sottovoce.tasks.gguf import GgufFile

TOKENS = torch.tensor([[5, 9, 260, 33, 7, 7, 90], [4, 4, 8, 200, 31, 2, 2]])


def loaded(folder: Path, *, prompt: int = 0, rank: int = 0) -> llama.Llama:
    gguf_fakes.write_llama(folder / "tiny.gguf", 0)
    file = GgufFile(folder / "tiny.gguf")
    torch.manual_seed(1)
    model = llama.Llama(llama.Shape.of(file.metadata), prompt=prompt, rank=rank).eval()
    llama_weights.load_weights(model, file)
    return model.requires_grad_(False)


def reference(tokens: list[int]) -> NDArray[Any]:
    """The states of one text, place by place and head by head, with the halves of a head turned as published."""
    weights = {name: tensor.double().numpy() for name, tensor in published_llama(0).items()}
    size = SHAPE.width // SHAPE.heads

    def normal(states: NDArray[Any], name: str) -> NDArray[Any]:
        return states / np.sqrt((states**2).mean(-1, keepdims=True) + SHAPE.epsilon) * weights[f"{name}.weight"]

    def halves(rows: NDArray[Any]) -> NDArray[Any]:
        """GGUF's rows of one head in the order of the published model: first all evens, then all odds."""
        return np.concatenate([rows[0::2], rows[1::2]])

    def turn(vector: NDArray[Any], place: int) -> NDArray[Any]:
        angles = place / SHAPE.base ** (np.arange(size // 2) * 2 / size)
        first, second = vector[: size // 2], vector[size // 2 :]
        return np.concatenate(
            [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)]
        )

    states = weights["token_embd.weight"][tokens]
    for layer in (f"blk.{number}" for number in range(SHAPE.layers)):
        normed = normal(states, f"{layer}.attn_norm")
        mixed = np.zeros_like(states)
        for head in range(SHAPE.heads):
            group = head // (SHAPE.heads // SHAPE.groups)
            own, shared = slice(head * size, (head + 1) * size), slice(group * size, (group + 1) * size)
            query = halves(weights[f"{layer}.attn_q.weight"][own])
            key = halves(weights[f"{layer}.attn_k.weight"][shared])
            queries = [turn(query @ state, place) for place, state in enumerate(normed)]
            keys = [turn(key @ state, place) for place, state in enumerate(normed)]
            values = normed @ weights[f"{layer}.attn_v.weight"][shared].T
            for place in range(len(tokens)):
                scores = np.exp([queries[place] @ keys[seen] / np.sqrt(size) for seen in range(place + 1)])
                mixed[place, own] = (scores / scores.sum()) @ values[: place + 1]
        states = states + mixed @ weights[f"{layer}.attn_output.weight"].T
        normed = normal(states, f"{layer}.ffn_norm")
        gate = normed @ weights[f"{layer}.ffn_gate.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (normed @ weights[f"{layer}.ffn_up.weight"].T)
        states = states + inner @ weights[f"{layer}.ffn_down.weight"].T
    return normal(states, "output_norm")


def test_the_states_are_those_of_a_slow_reference(tmp_path: Path):
    model = loaded(tmp_path)
    found = model(TOKENS)
    for row, tokens in zip(found, TOKENS.tolist(), strict=True):
        np.testing.assert_allclose(row.numpy(), reference(tokens), rtol=1e-4, atol=1e-4)
    some = torch.tensor([0, 5, 270])
    expected = found @ model.embeddings.tokens.weight.T
    assert torch.allclose(model.scores(found, some), expected[..., some], atol=1e-5)


def test_a_state_depends_on_what_stands_before_it_alone(tmp_path: Path):
    model = loaded(tmp_path, prompt=3)
    one, other = model(TOKENS), model(torch.cat([TOKENS[:, :4], TOKENS[:, 4:] + 1], dim=1))
    assert torch.allclose(one[:, :7], other[:, :7], atol=1e-6)
    assert not torch.allclose(one[:, 7:], other[:, 7:], atol=1e-2)


def test_a_soft_prompt_of_words_is_those_words(tmp_path: Path):
    model = loaded(tmp_path, prompt=5)
    model.embeddings.begin(torch.tensor([9, 8, 7]), 0.0)
    spelt = torch.cat([torch.tensor([[9, 8, 7, 9, 8]]).expand(2, -1), TOKENS], dim=1)
    assert torch.allclose(model(TOKENS), loaded(tmp_path)(spelt), atol=1e-5)


def test_low_rank_changes_start_as_nothing_and_reach_every_layer(tmp_path: Path):
    model = loaded(tmp_path, rank=2)
    assert torch.allclose(model(TOKENS), loaded(tmp_path)(TOKENS), atol=1e-6)
    learnt = {name: value for name, value in model.named_parameters() if llama_weights.is_learnt(name)}
    assert len(learnt) == 4 * SHAPE.layers
    for value in learnt.values():
        value.requires_grad_(True)
    torch.nn.init.normal_(learnt["layers.1.attention.query_change.up.weight"])
    model(TOKENS).square().sum().backward()
    for name, value in learnt.items():
        assert value.grad is not None
        assert bool(value.grad.any()) == (
            name.endswith("up.weight") or name == "layers.1.attention.query_change.down.weight"
        )


@pytest.mark.parametrize(
    ("name", "tensor"),
    [("output.weight", torch.zeros(3)), ("rope_freqs.weight", torch.zeros(4)), ("output_norm.weight", torch.zeros(5))],
)
def test_other_weights_are_refused(tmp_path: Path, name: str, tensor: torch.Tensor):
    tensors = {**published_llama(0), name: tensor}
    file = tmp_path / "other.gguf"
    file.write_bytes(content(METADATA, {name: plain(tensor) for name, tensor in tensors.items()}))
    with pytest.raises(DataError, match=name.removesuffix(".weight")):
        llama_weights.load_weights(llama.Llama(SHAPE), GgufFile(file))


def test_other_models_are_refused():
    with pytest.raises(DataError, match="does not hold a Llama"):
        llama.Shape.of({**METADATA, "general.architecture": "qwen2"})
    with pytest.raises(DataError, match="plain rotary"):
        llama.Shape.of({**METADATA, "llama.rope.scaling.type": "yarn"})
    with pytest.raises(DataError, match=r"does not tell 'llama\.rope\.freq_base'"):
        llama.Shape.of({key: value for key, value in METADATA.items() if key != "llama.rope.freq_base"})
    with pytest.raises(DataError, match="heads do not divide"):
        llama.Shape.of({**METADATA, "llama.attention.head_count": 5})
