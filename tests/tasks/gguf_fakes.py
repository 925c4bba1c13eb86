"""Small GGUF files, and a small Llama with its tokenizer in one."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sottovoce.tasks import byte_pairs, llama

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [f"Ġ{word[:end]} {word[end]}" for word in ("negative", "positive") for end in range(8)] + ["e n", "a t"]
TOKENS = [*SPECIAL, *byte_pairs.BYTES, *(merge.replace(" ", "") for merge in MERGES)]
SHAPE = llama.Shape(vocabulary=len(TOKENS), width=24, layers=2, heads=3, groups=1, inner=32, base=100.0, epsilon=1e-5)
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.embedding_length": SHAPE.width,
    "llama.block_count": SHAPE.layers,
    "llama.attention.head_count": SHAPE.heads,
    "llama.attention.head_count_kv": SHAPE.groups,
    "llama.feed_forward_length": SHAPE.inner,
    "llama.rope.freq_base": SHAPE.base,
    "llama.attention.layer_norm_rms_epsilon": SHAPE.epsilon,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.padding_token_id": 2,
}
_PUBLISHED = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.output": "attn_output",
    "gated_norm": "ffn_norm",
    "gate": "ffn_gate",
    "upper": "ffn_up",
    "lower": "ffn_down",
}


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(given: Any) -> bytes:
    """The type and the value."""
    if isinstance(given, bool):
        return struct.pack("<I?", 7, given)
    if isinstance(given, int):
        return struct.pack("<II", 4, given)
    if isinstance(given, float):
        return struct.pack("<Id", 12, given)
    if isinstance(given, str):
        return struct.pack("<I", 8) + string(given)
    kind = value(given[0])[:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(given)) + b"".join(value(part)[4:] for part in given)


def content(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[tuple[int, ...], int, bytes]],
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A file of these values and tensors, each of a shape (the innermost dimension last), an encoding and bytes."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(string(key) + value(given) for key, given in metadata.items())
    data = b""
    for name, (shape, kind, stored) in tensors.items():
        head += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack("<IQ", kind, len(data))
        data += stored + bytes(-len(stored) % alignment)
    return head + bytes(-len(head) % alignment) + data


def plain(tensor: torch.Tensor) -> tuple[tuple[int, ...], int, bytes]:
    """A tensor in float32."""
    return tuple(tensor.shape), 0, tensor.numpy().astype("<f4").tobytes()


def published_llama(seed: int) -> dict[str, torch.Tensor]:
    """Random weights with the names of the published file."""
    torch.manual_seed(seed)
    model = llama.Llama(SHAPE)
    found = {
        "token_embd.weight": model.embeddings.tokens.weight.detach(),
        "output_norm.weight": torch.rand(SHAPE.width) + 0.5,
    }
    for number, layer in enumerate(model.layers):
        for ours, theirs in _PUBLISHED.items():
            weight = layer.get_parameter(f"{ours}.weight").detach()
            found[f"blk.{number}.{theirs}.weight"] = weight + torch.rand(len(weight)) if weight.ndim == 1 else weight
    return found


def write_llama(file: Path, seed: int) -> None:
    file.write_bytes(content(METADATA, {name: plain(tensor) for name, tensor in published_llama(seed).items()}))


def blocks(kind: int, rows: int, generator: np.random.Generator) -> tuple[bytes, list[float]]:
    """Random quantised blocks of 32 values, and the values by the format's words, one after the other."""
    stored, values = b"", list[float]()
    for _ in range(rows):
        scale, least = (float(np.float16(generator.normal())) for _ in range(2))
        numbers = [int(number) for number in generator.integers(0, 16, 32)]
        nibbles = bytes(numbers[i] | numbers[i + 16] << 4 for i in range(16))
        if kind == 2:
            stored += struct.pack("<e", scale) + nibbles
            values += [scale * (number - 8) for number in numbers]
        elif kind == 3:
            stored += struct.pack("<ee", scale, least) + nibbles
            values += [scale * number + least for number in numbers]
        else:
            numbers = [number * 16 - 120 for number in numbers]
            stored += struct.pack("<e32b", scale, *numbers)
            values += [scale * number for number in numbers]
    return stored, values
