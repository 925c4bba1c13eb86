"""The published weights of a Llama from a GGUF file."""

from __future__ import annotations

import torch

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.gguf import GgufFile
from sottovoce.tasks.llama import Llama

_NAMES = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.query",
    "attn_k": "attention.key",
    "attn_v": "attention.value",
    "attn_output": "attention.output",
    "ffn_norm": "gated_norm",
    "ffn_gate": "gate",
    "ffn_up": "upper",
    "ffn_down": "lower",
    "token_embd": "embeddings.tokens",
    "output_norm": "norm",
}


def load_weights(model: Llama, file: GgufFile) -> None:
    """Copy the published weights of ``file`` into ``model``; the soft prompt and low-rank changes stay as they are.

    Raises:
        DataError: the names or shapes are not those of the model; an output matrix of its own is refused too.
    """
    own = {name: value for name, value in model.state_dict().items() if not is_learnt(name)}
    named = {_own_name(name): name for name in file.names()}
    if named.keys() != own.keys():
        differing = sorted(named.keys() ^ own.keys())
        raise DataError(f"{file.file}: not the weights of this decoder; missing or unknown are {differing[:3]}.")
    for name, published in named.items():
        found = torch.from_numpy(file.tensor(published))
        if found.shape != own[name].shape:
            raise DataError(
                f"{file.file}: {published} is {tuple(found.shape)}, not {tuple(own[name].shape)} as told by the sizes."
            )
        own[name].copy_(found)


def is_learnt(name: str) -> bool:
    """Whether the parameter called ``name`` is one that is added to the published model, to be trained."""
    return "soft_prompt" in name or "_change." in name


def _own_name(published: str) -> str:
    parts = published.split(".")
    layer = [f"layers.{parts[1]}"] if parts[0] == "blk" else []
    return ".".join([*layer, _NAMES.get(parts[-2], parts[-2]), parts[-1]]) if len(parts) > 1 else published
