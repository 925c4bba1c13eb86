"""Templates, classes as words, the setting on a small model, and the real file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf_fakes
import pytest
import settings_fakes
import torch
from gguf_fakes import MERGES, TOKENS
from settings_fakes import VERBAL, fake_data, fake_weights
from torch import nn

import sottovoce as sv
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import data, llama, llama_weights, settings, verbalizer
from sottovoce.tasks.byte_pairs import BytePairs
from sottovoce.tasks.gguf import GgufFile
from sottovoce.tasks.verbalizer import Template, Verbalizer

__all__ = ["fake_data", "fake_weights"]


def shown(rows: torch.Tensor) -> list[str]:
    return ["".join(TOKENS[number] for number in row if number != 2).replace("Ġ", " ") for row in rows.tolist()]


@pytest.mark.parametrize(("read", "expected"), [("start", "Q: abcde!"), ("end", "Q:defghi!")])
def test_a_template_keeps_its_own_words_and_fills_up(read: verbalizer.Read, expected: str):
    template = Template("Q: {text}!", BytePairs(TOKENS, MERGES), length=9, read=read, padding=2)
    rows = template.rows([" abcdefghi ", "x", ""])
    assert rows.shape == (3, 9)
    assert shown(rows) == [expected, "Q: x!", "Q: !"]
    assert rows[1].tolist() == [*rows[1, :5].tolist(), 2, 2, 2, 2]


@pytest.mark.parametrize("read", ["start", "end"])
def test_a_row_depends_on_its_own_text_alone(read: verbalizer.Read):
    template = Template("Q: {text}!", BytePairs(TOKENS, MERGES), length=12, read=read, padding=2)
    assert torch.equal(template.rows(["a b", "cc" * 9])[1], template.rows(["", "cc" * 9])[1])


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize("options", [{}, {"tune": "lora", "rank": 2}])
def test_padding_does_not_change_a_score(options: dict[str, Any]):
    """Nor does the company: a row alone, cut to its text, has the score that it has in the batch."""
    found = settings.load("verbalizer", **{**VERBAL, **options})
    model = found.make_model(0)
    inputs = found.private[0]
    with torch.no_grad():
        scores = model(inputs)
        wide = model(nn.functional.pad(inputs, (0, 7), value=2))
        for row in range(4):
            text = inputs[row][inputs[row] != 2]
            assert len(text) < inputs.shape[1]
            assert torch.allclose(model(text[None])[0], scores[row], atol=1e-5)
    assert scores.shape == (len(inputs), 2)
    assert torch.allclose(wide, scores, atol=1e-5)
    assert float(scores.std(dim=0).min()) > 1e-3


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 8 * 24), ({"prompt": 3}, 3 * 24), ({"tune": "lora", "rank": 2}, 2 * 2 * (24 + 24 + 24 + 8))],
)
def test_only_what_is_tuned_is_trained(options: dict[str, Any], count: int):
    found = settings.load("verbalizer", **{**VERBAL, **options})
    model = found.make_model(0)
    objective = ModuleObjective(model, found.loss, example=found.example)
    assert objective.parameters.numel() == count
    assert all(llama_weights.is_learnt(name) for name in objective.parameters.layout.names)
    assert objective.gradient_engine() == "vmap"
    rows = objective.gradients((found.private[0][:3], found.private[1][:3]))
    assert (rows.norm(dim=1) > 0).all()
    frozen = {name: value.clone() for name, value in model.state_dict().items() if not llama_weights.is_learnt(name)}
    for method in (sv.DPZero(lr=1e-3, smoothing=1e-2), sv.PazoM(lr=0.1, public_batch=4), sv.DPSGD(lr=0.1)):
        sv.fit(
            model,
            found.loss,
            private=found.private,
            public=found.public if hasattr(method, "public_batch") else None,
            example=found.example,
            method=method,
            budget=sv.Budget(epsilon=1, delta=1e-3),
            steps=2,
            batch_size=4,
        )
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in frozen.items())
    assert all(torch.isfinite(value).all() for value in after.values())
    assert not torch.equal(objective.parameters.copy(), nn.utils.parameters_to_vector(_learnt(found.make_model(0))))


def _learnt(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize("private", ["imdb", "rotten-tomatoes"])
def test_the_parts_are_chosen_by_public_permutations_and_share_nothing(private: str, monkeypatch: pytest.MonkeyPatch):
    """Both with a test part in the corpus and, where there is none, with one that is cut off from the training part."""

    def load(name: str) -> Any:
        found = settings_fakes.texts(name)
        found.train_texts[:] = [(f"{name[0]}<br />{number:02}",) for number in range(60)]
        found.test_texts[:] = [(f"test{number:02}",) for number in range(20)] if name == "imdb" else []
        return found

    monkeypatch.setattr(data, "load_texts", load)
    found = settings.load("verbalizer", private=private, **VERBAL)
    again = settings.load("verbalizer", private=private, limit=5, **VERBAL)
    other = settings.load("verbalizer", private=private, seed=1, **VERBAL)
    parts = [shown(part[0]) for part in (found.private, found.public, found.validation, found.test)]
    assert [len(part) for part in parts] == [46 if private == "imdb" else 36, 8, 6, 10]
    texts = [text for part in parts for text in part]
    assert len(set(texts)) == len(texts)
    assert all(text.startswith("Review: a") for text in parts[1])
    assert sorted(parts[3]) != parts[3]
    assert shown(again.private[0]) == parts[0][:5]
    assert shown(again.test[0]) == parts[3]
    assert shown(other.test[0]) != parts[3]
    assert not any("<" in text for text in texts)


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"private": "amazon-snippets"}, "private='amazon-snippets'"),
        ({"tune": "adapter"}, "tune='adapter'"),
        ({"read": "middle"}, "read='middle'"),
        ({"shift": "fulll"}, "did you mean 'full'"),
        ({"prompt": 0}, "prompt=0"),
        ({"rank": 0}, "rank=0"),
        ({"template": "Review:"}, "with {text} in it once"),
        ({"template": "{text}{text}"}, "with {text} in it once"),
        ({"length": 9}, "the template alone has"),
        ({"words": (" negative", "positive")}, "'positive' has 8 tokens"),
        ({"words": (" negative", " negative")}, "they must differ"),
        ({"words": " negative"}, "one word for each class"),
        ({"words": (" negative", " positive", "a")}, "two classes"),
        ({"private_records": 50}, "private_records=50: imdb has 46 left"),
        ({"test_records": 0}, "test_records=0"),
        ({"limit": 47}, "the private part has 46"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        settings.load("verbalizer", **{**VERBAL, **options})


@pytest.mark.usefixtures("fake_data", "fake_weights")
def test_a_file_without_a_padding_token_is_refused(tmp_path: Path):
    metadata = {**gguf_fakes.METADATA, "tokenizer.ggml.padding_token_id": len(TOKENS)}
    (tmp_path / "weights" / "tiny.gguf").write_bytes(gguf_fakes.content(metadata, {}))
    with pytest.raises(sv.DataError, match="padding token is 277"):
        settings.load("verbalizer", **VERBAL)


PINNED = {
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Review: I'd give it 10/10, wouldn't you?\nSentiment:": [
        21465, 42, 339, 6737, 1928, 357, 216, 33, 32, 31, 33, 32, 28, 7336, 982, 346, 47, 198, 35658, 2572, 42,
    ],
    "naïve café 中文 🙂  end \n": [3546, 46494, 37366, 216, 28589, 29184, 47526, 216, 1112, 3717],
    " positive": [2731],
    " negative": [3524],
}  # fmt: skip
"""Computed by the published tokenizer."""


@pytest.mark.slow
def test_the_published_model_speaks():
    """Its tokens and its next words are those of the published implementation, whose logits are noted here."""
    data.get("smollm2")
    file = GgufFile(data.weights("smollm2")["SmolLM2-135M-Instruct.Q4_1.gguf"])
    tokenizer = BytePairs.of(file.metadata)
    assert {text: tokenizer.encode(text) for text in PINNED} == PINNED
    model = llama.Llama(llama.Shape.of(file.metadata)).eval().requires_grad_(False)
    llama_weights.load_weights(model, file)
    text = torch.tensor([tokenizer.encode("The capital of France is")])
    logits = model.scores(model(text)[0, -1], torch.arange(model.shape.vocabulary))
    best = logits.topk(3)
    assert best.indices.tolist() == [7042, 260, 4528]
    assert best.values.tolist() == pytest.approx([17.37127, 14.88860, 13.24499], abs=1e-3)
    assert best.indices[:1].tolist() == tokenizer.encode(" Paris")
    negative, positive = verbalizer.tokens_of((" negative", " positive"), tokenizer)
    rows = Template("Review: {text}\nSentiment:", tokenizer, length=24, read="end", padding=2).rows(
        ["A wonderful film, I loved every minute.", "A boring mess, I hated every minute."]
    )
    assert Verbalizer(model, (negative, positive), 2)(rows).argmax(dim=1).tolist() == [1, 0]
