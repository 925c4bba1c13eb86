"""Small data sets in memory, in place of those in the cache."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf_fakes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sottovoce.tasks import bert, data, efficientnet
from sottovoce.tasks.data import ImageData, TextData

SMALL = {"public_records": 20, "validation_records": 10}
WORDS = [f"{first}{second}" for first, second in itertools.product("bcdfghklm", ("at", "en", "ig", "o", "ul"))]

PAIRS = {"private_records": 20, "public_records": 9, "validation_records": 6, "test_records": 10, "length": 10}
IMAGES = {**SMALL, "size": 32}
VERBAL = {"public_records": 8, "validation_records": 6, "test_records": 10, "length": 48}
SHAPE = bert.Shape(vocabulary=5 + len(WORDS), width=24, layers=2, heads=12, inner=32, positions=32)


def images(name: str, records: int = 120) -> ImageData:
    """Each image is one grey, which tells the record's number."""
    spec = data.spec(name)

    def part(count: int, start: int) -> tuple[Any, Any]:
        greys = (start + np.arange(count)).astype(np.uint8).reshape(-1, 1, 1, 1)
        labels = np.random.default_rng(start).permutation(np.arange(count) % len(spec.classes))
        return np.broadcast_to(greys, (count, *spec.shape)).copy(), labels.astype(np.int64)

    return ImageData(spec, *part(records, 0), *part(20, 200), provenance={})


def texts(name: str, records: int = 60) -> TextData:
    """Texts of made-up words; the first tells the label."""
    spec = data.spec(name)
    generator = np.random.default_rng(len(name))

    def part(count: int) -> tuple[list[tuple[str, ...]], Any]:
        labels = generator.permutation(np.arange(count) % len(spec.classes))
        found = [
            tuple(f"{WORDS[label]} {' '.join(generator.choice(WORDS, 4))}" for _ in spec.fields) for label in labels
        ]
        return found, labels.astype(np.int64)

    return TextData(spec, *part(records), *part(20), provenance={})


@pytest.fixture
def fake_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load_images", images)
    monkeypatch.setattr(data, "load_texts", texts)


def published_lite0(seed: int) -> dict[str, torch.Tensor]:
    """Random weights with the names of the published file."""
    torch.manual_seed(seed)
    model = efficientnet.EfficientNetLite0(32)
    for module in model.modules():  # such that the signal reaches the features
        if isinstance(module, efficientnet.SameConvolution):
            torch.nn.init.kaiming_normal_(module.weight)
        elif isinstance(module, efficientnet.FrozenBatchNorm):
            module.running_var.uniform_(0.5, 1.5)
    found = {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}
    for name, value in model.state_dict().items():
        *path, last = name.split(".")
        found[".".join([*(part if part.isdigit() else f"_{part}" for part in path), last])] = value
        if last == "running_var":
            found[".".join([*(part if part.isdigit() else f"_{part}" for part in path), "num_batches_tracked"])] = (
                torch.tensor(7)
            )
    return found


def published_bert(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    found = {"embeddings.position_ids": torch.arange(32), "pooler.dense.bias": torch.zeros(24)}
    for name, value in bert.SentenceEncoder(SHAPE).state_dict().items():
        published = name.replace("embeddings.layer_norm", "embeddings.LayerNorm")
        for ours, theirs in (
            ("attended_norm", "attention.output.LayerNorm"),
            ("outer_norm", "output.LayerNorm"),
            ("attended", "attention.output.dense"),
            ("inner", "intermediate.dense"),
            ("outer", "output.dense"),
            ("query", "attention.self.query"),
            ("key", "attention.self.key"),
            ("value", "attention.self.value"),
        ):
            head, found_it, tail = published.rpartition(f".{ours}.")
            if found_it:
                published = f"{head}.{theirs}.{tail}"
                break
        found[published.replace("layers.", "encoder.layer.") if name.startswith("layers") else published] = value
    return found


@pytest.fixture
def fake_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """Small weights in place of those in the cache; the function given back writes others."""
    folder = tmp_path / "weights"
    folder.mkdir()
    files = {
        name: folder / name for name in ("lite0.pth", "model.safetensors", "config.json", "vocab.txt", "tiny.gguf")
    }

    def write(seed: int) -> None:
        torch.save(published_lite0(seed), files["lite0.pth"])
        save_file(published_bert(seed), files["model.safetensors"])
        gguf_fakes.write_llama(files["tiny.gguf"], seed)

    files["vocab.txt"].write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "##s", *WORDS]) + "\n")
    told = {"vocab_size": SHAPE.vocabulary, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 12}
    told |= {"intermediate_size": 32, "max_position_embeddings": 32, "model_type": "bert", "hidden_act": "gelu"}
    files["config.json"].write_text(json.dumps(told))
    write(0)
    monkeypatch.setattr(data, "weights", lambda _: dict(files))
    return write
