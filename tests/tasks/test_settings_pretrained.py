"""Pretrained settings on small fakes: weights by their published names, cached features, and what is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import settings_fakes
import torch
from safetensors.torch import save_file
from settings_fakes import IMAGES, PAIRS, SHAPE, fake_data, fake_weights
from torch import nn

import sottovoce as sv
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.errors import ConfigurationError, DataError
from sottovoce.tasks import bert, data, efficientnet, features, settings, wordpiece
from sottovoce.tasks.settings import Setting

__all__ = ["fake_data", "fake_weights"]


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize(
    ("name", "options"), [("cifar-10-pretrained", IMAGES), ("tiny-imagenet", IMAGES), ("nli", PAIRS), ("mnli", PAIRS)]
)
def test_a_head_on_features_is_the_whole_network_with_a_frozen_body(name: str, options: dict[str, Any]):
    """The same logits, up to the half precision of cached features, so both are one task."""
    cheap, whole = settings.load(name, **options), settings.load(name, features=False, **options)
    head, network = cheap.make_model(4).eval(), whole.make_model(4).eval()
    with torch.no_grad():
        for one, other in ((cheap.private, whole.private), (cheap.test, whole.test)):
            assert torch.equal(one[1], other[1])
            expected = network(other[0])
            assert torch.allclose(head(one[0]), expected, atol=0.05 * float(expected.std()) + 1e-3)
    assert torch.allclose(cheap.public[0].mean(dim=0), torch.zeros(()), atol=1e-3)
    deviation = cheap.public[0].std(dim=0, correction=0)
    assert float(deviation.max()) < 1.001
    assert float(deviation.median()) > 0.99


@pytest.mark.usefixtures("fake_data")
def test_features_are_computed_once_for_each_content(
    fake_weights: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, cache_folder: Path
):
    calls = 0
    forward = efficientnet.EfficientNetLite0.forward

    def counted(self: Any, images: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return forward(self, images)

    monkeypatch.setattr(efficientnet.EfficientNetLite0, "forward", counted)

    def run() -> tuple[int, Setting]:
        before = calls
        found = settings.load("cifar-10-pretrained", **IMAGES)
        return calls - before, found

    first, one = run()
    again, same = run()
    assert first > 0 == again
    assert torch.equal(one.private[0], same.private[0])
    folder = cache_folder / "features"
    names = sorted(file.name for file in folder.iterdir())
    assert [name.rsplit("-", 1)[0] for name in names] == [
        "cifar-10-test-efficientnet-lite0-32px",
        "cifar-10-train-efficientnet-lite0-32px",
    ]
    fake_weights(1)
    other, changed = run()
    assert other == first
    assert not torch.equal(one.private[0], changed.private[0])
    fake_weights(0)
    assert run()[0] == 0
    broken = folder / names[1]
    broken.write_bytes(broken.read_bytes()[:-100])
    mended, whole = run()
    assert mended > 0
    assert torch.equal(one.private[0], whole.private[0])


def test_cached_features_say_where_they_cannot_be_written(cache_folder: Path):
    cache_folder.mkdir()
    (cache_folder / "features").write_text("in the way")
    with pytest.raises(DataError, match="SOTTOVOCE_DATA"):
        features.cached("x", [b""], lambda: torch.zeros(1))


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize(("tune", "trained"), [("head", "head"), ("adapter", "adapter"), ("prompt", "soft_prompt")])
def test_only_what_is_tuned_has_gradients(tune: str, trained: str):
    found = settings.load("nli", features=False, tune=tune, **PAIRS)
    model = found.make_model(0)
    free = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert all(name.startswith("head.") or trained in name for name in free)
    assert any(trained in name for name in free)
    objective = ModuleObjective(model, found.loss, example=found.example)
    assert objective.gradient_engine() == "vmap"
    batch = found.private[0][:3], found.private[1][:3]
    assert (objective.gradients(batch).norm(dim=1) > 0).all()
    other = found.make_model(1)
    assert not torch.equal(nn.utils.parameters_to_vector(other.parameters()), objective.parameters.copy())


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cifar-10-pretrained", {**IMAGES, "features": False}),
        ("nli", {**PAIRS, "features": False, "tune": "prompt"}),
        ("nli", {**PAIRS, "dropout": 0.1, "always_dropout": True}),
        ("mnli", PAIRS),
    ],
)
def test_whole_networks_take_private_steps(name: str, options: dict[str, Any]):
    found = settings.load(name, **options)
    for method in (sv.DPZero(lr=1e-4, smoothing=1e-2), sv.PazoM(lr=1e-3, public_batch=4), sv.DPSGD(lr=0.01)):
        run = sv.fit(
            found.make_model(0),
            found.loss,
            private=found.private,
            public=found.public if hasattr(method, "public_batch") else None,
            example=found.example,
            method=method,
            budget=sv.Budget(epsilon=1, delta=1e-3),
            steps=2,
            batch_size=4,
        )
        assert all(torch.isfinite(parameter).all() for parameter in run.model.parameters())


def test_frozen_batch_normalisation_keeps_examples_apart():
    model = efficientnet.EfficientNetLite0(32).train()
    inputs = torch.rand(3, 3, 32, 32, requires_grad=True)
    outputs = model(inputs)
    assert torch.allclose(model(inputs[1:2])[0], outputs[1], atol=1e-5)
    (gradient,) = torch.autograd.grad(outputs[0].sum(), inputs)
    assert torch.all(gradient[1:] == 0)
    reference = nn.BatchNorm2d(4, eps=1e-3).eval()
    frozen = efficientnet.FrozenBatchNorm(4)
    for module in (reference, frozen):
        torch.manual_seed(0)
        with torch.no_grad():
            module.weight.copy_(torch.rand(4))
            module.bias.copy_(torch.rand(4))
            module.running_mean.copy_(torch.rand(4))  # pyright: ignore[reportOptionalMemberAccess]
            module.running_var.copy_(torch.rand(4))  # pyright: ignore[reportOptionalMemberAccess]
    signal = torch.randn(2, 4, 3, 3)
    assert torch.allclose(frozen(signal), reference(signal), atol=1e-5)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "before"), [(8, 3, 2, 0), (8, 5, 2, 1), (7, 3, 2, 1), (8, 5, 1, 2)]
)
def test_padding_is_tensorflows(size: int, kernel: int, stride: int, before: int):
    convolution = efficientnet.SameConvolution(1, 1, kernel, stride=stride)
    nn.init.ones_(convolution.weight)
    image = torch.zeros(1, 1, size, size)
    image[..., 0] = 1  # the first column is in the first window once for each padded column that is missing
    with torch.no_grad():
        found = convolution(image)
    assert found.shape[-1] == -(-size // stride)
    assert float(found[0, 0, 2, 0]) == kernel
    starts = [window * stride - before for window in range(found.shape[-1])]
    windows = sum(start <= 0 < start + kernel for start in starts)
    assert int((found[0, 0, 2] > 0).sum()) == windows


def test_weights_of_something_else_are_refused(tmp_path: Path):
    torch.save({"_conv_stem.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(DataError, match="not the weights of EfficientNet-Lite0"):
        efficientnet.pretrained(tmp_path / "other.pth")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="not the weights of this encoder"):
        bert.load_weights(bert.SentenceEncoder(SHAPE), tmp_path / "other.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    with pytest.raises(DataError, match="not a BERT encoder"):
        bert.Shape.read(tmp_path / "config.json")


def test_a_layer_is_torchs():
    torch.manual_seed(0)
    shape = bert.Shape(vocabulary=9, width=24, layers=1, heads=4, inner=32, positions=16)
    ours = bert.Layer(shape, adapter=3)
    theirs = nn.TransformerEncoderLayer(
        24, 4, 32, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    )
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
    for own, other in (
        (ours.attended, theirs.self_attn.out_proj),
        (ours.attended_norm, theirs.norm1),
        (ours.inner, theirs.linear1),
        (ours.outer, theirs.linear2),
        (ours.outer_norm, theirs.norm2),
    ):
        other.load_state_dict(own.state_dict())
    states = torch.randn(2, 5, 24)
    seen = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    expected = theirs(states, src_key_padding_mask=~seen)
    assert torch.allclose(ours(states, seen[:, None, None])[seen], expected[seen], atol=1e-5)


@pytest.mark.parametrize("prompt", [0, 3])
def test_padding_does_not_change_a_sentence(prompt: int):
    model = bert.SentenceEncoder(SHAPE, prompt=prompt).eval()
    pieces = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
    wide = torch.nn.functional.pad(pieces, (0, 4))
    assert torch.allclose(model(pieces), model(wide), atol=1e-5)
    assert torch.allclose(model(pieces[1:, :3]), model(pieces[1:]), atol=1e-5)
    assert torch.allclose(model(pieces).norm(dim=1), torch.ones(2))


def test_pieces_are_the_longest_matches():
    """The example of BERT's own repository, and what its basic tokenizer does to signs and accents."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a", "cafe", ",", "中", "$", "5"]
    tokenizer = wordpiece.WordPiece(vocabulary)
    assert [vocabulary[number] for number in tokenizer.pieces("UNaffable,Café中$5")] == [
        "un", "##aff", "##able", ",", "cafe", "中", "$", "5",
    ]  # fmt: skip
    assert tokenizer.pieces("unaffablex") == tokenizer.pieces("a" * 101) == [1]
    assert tokenizer.pieces("cafe\u200b\ufffd \n") == [8]
    assert tokenizer.padded(["unaffable", ""], 4).tolist() == [[2, 4, 5, 3], [2, 3, 0, 0]]


@pytest.mark.usefixtures("fake_data", "fake_weights")
def test_the_shift_changes_the_public_side_alone():
    found = {shift: settings.load("nli", shift=shift, features=False, **PAIRS) for shift in ("none", "half", "full")}
    for other in ("half", "full"):
        assert torch.equal(found["none"].private[0], found[other].private[0])
        assert len(found[other].public[1]) == 9
    assert torch.equal(found["half"].public[0][:5], found["none"].public[0][:5])
    assert not torch.equal(found["half"].public[0][5:], found["none"].public[0][5:])
    assert found["full"].public[1].bincount().tolist() == [3, 3, 3]
    turned = settings.load("nli", private="vitaminc", features=False, **PAIRS)
    assert len(turned.private[1]) == 20


@pytest.mark.usefixtures("fake_weights")
def test_a_test_part_that_is_cut_off_overlaps_nothing(monkeypatch: pytest.MonkeyPatch):
    def without_test(name: str) -> Any:
        found = settings_fakes.texts(name)
        found.test_texts.clear()
        return found

    monkeypatch.setattr(data, "load_texts", without_test)
    found = settings.load("nli", private="vitaminc", shift="none", features=False, **PAIRS)
    parts = (found.private, found.public, found.validation, found.test)
    rows = [tuple(row.flatten().tolist()) for part in parts for row in part[0]]
    assert len(rows) == 45
    assert len(set(rows)) == 45


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nli", {"tune": "adapter"}, "give features=False"),
        ("nli", {"tune": "lora"}, "tune='lora'"),
        ("nli", {"shift": "fulll"}, "did you mean 'full'"),
        ("nli", {"private": "mnli"}, "private='mnli'"),
        ("nli", {"length": 2}, "at least 3"),
        ("nli", {"private_records": 50}, "private_records=50: snli has 45 left"),
        ("nli", {"test_records": 0}, "test_records=0"),
        ("nli", {"limit": 21}, "the private part has 20"),
        ("nli", {"hidden": -1}, "hidden=-1"),
        ("cifar-10-pretrained", {"size": 0}, "size=0"),
        ("cifar-10-pretrained", {"hidden": 1.5}, "hidden=1.5"),
    ],
)
def test_wrong_arguments_are_named(name: str, options: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        settings.load(name, **{**(PAIRS if name == "nli" else IMAGES), **options})
