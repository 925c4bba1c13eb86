"""Settings: parts that share no record, public slices, models from seeds, grids that methods accept, and errors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import settings_fakes
import torch
from settings_fakes import IMAGES, PAIRS, SMALL, VERBAL, fake_data, fake_weights

import sottovoce as sv
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import data, settings
from sottovoce.tasks.settings.slices import class_sizes, cut

__all__ = ["fake_data", "fake_weights"]

FROM_SCRATCH = ["mnist", "fashion-mnist", "cifar-10"]
BUDGET = sv.Budget(epsilon=1, delta=1e-3)


def numbers_of(part: Any, name: str) -> list[int]:
    """The records that the greys of images tell."""
    spec = data.spec(name)
    return [round(float(grey * spec.std[0] + spec.mean[0]) * 255) for grey in part[0][:, 0, 0, 0]]


@pytest.mark.usefixtures("fake_data")
@pytest.mark.parametrize("name", FROM_SCRATCH)
def test_the_parts_of_images_share_no_record_and_are_all_of_them(name: str):
    found = settings.load(name, **SMALL)
    parts = [numbers_of(part, name) for part in (found.private, found.public, found.validation)]
    assert [len(part) for part in parts] == [90, 20, 10]
    assert sorted(number for part in parts for number in part) == list(range(120))
    given = settings_fakes.images(name).train_labels
    for part, numbers in zip((found.private, found.public, found.validation), parts, strict=True):
        assert part[1].tolist() == given[numbers].tolist()
    assert sorted(numbers_of(found.test, name)) == list(range(200, 220))
    assert found.example is not None
    assert torch.equal(found.example[0], found.public[0][0])


@pytest.mark.usefixtures("fake_data")
def test_the_seed_cuts_the_parts_and_the_limit_only_the_private_one():
    first, again, other = (settings.load("mnist", seed=seed, **SMALL) for seed in (0, 0, 1))
    assert torch.equal(first.public[0], again.public[0])
    assert not torch.equal(first.public[0], other.public[0])
    short = settings.load("mnist", limit=7, **SMALL)
    assert torch.equal(short.private[0], first.private[0][:7])
    assert torch.equal(short.public[0], first.public[0])
    assert torch.equal(short.validation[0], first.validation[0])


def test_the_public_classes_have_the_sizes_of_the_imbalance():
    """Table 7: from 1 to 0.85, from 1.0 to 0.1, and equal parts of both."""
    assert class_sizes(2000, 10, "none") == [200] * 10
    slight, half, big = (class_sizes(2000, 10, shift) for shift in ("slight", "half", "big"))
    assert all(sum(sizes) == 2000 for sizes in (slight, half, big))
    assert slight[-1] / slight[0] == pytest.approx(0.85, abs=0.01)
    assert big == [
        pytest.approx(2000 * share / 5.5, abs=1) for share in (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
    ]
    assert all(abs(one - (a + b) / 2) <= 2 for one, a, b in zip(half, slight, big, strict=True))
    labels = [number % 10 for number in range(1000)]
    chosen = cut(labels, name="x", classes=10, public=100, validation=50, imbalance="big").public
    counts = Counter(labels[number] for number in chosen)
    assert [counts[label] for label in range(10)] == class_sizes(100, 10, "big")


@pytest.mark.usefixtures("fake_data")
@pytest.mark.parametrize("public", ["amazon-snippets", "rotten-tomatoes", "both"])
def test_reviews_are_padded_rows_of_one_length(public: str):
    found = settings.load("imdb", public=public, length=8, validation_records=10)
    assert [len(part[0]) for part in (found.private, found.public, found.validation, found.test)] == [
        50,
        120 if public == "both" else 60,
        10,
        20,
    ]
    for inputs, targets in (found.private, found.public, found.validation, found.test):
        assert inputs.shape == (len(targets), 8)
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.all(inputs[:, :5] > 0)
        assert torch.all(inputs[:, 5:] == 0)


def test_the_numbers_of_words_do_not_depend_on_private_text(monkeypatch: pytest.MonkeyPatch):
    """Another private review, with words of its own, leaves every number of a public word as it was."""

    def load(name: str) -> Any:
        found = settings_fakes.texts(name)
        if name == "imdb":
            found.train_texts[:] = [(f"zzz{number} zzz {text}",) for number, (text,) in enumerate(found.train_texts)]
        return found

    monkeypatch.setattr(data, "load_texts", settings_fakes.texts)
    before = settings.load("imdb", length=12, validation_records=10)
    monkeypatch.setattr(data, "load_texts", load)
    after = settings.load("imdb", length=12, validation_records=10)
    assert torch.equal(before.public[0], after.public[0])
    assert torch.equal(before.private[0][:, :5], after.private[0][:, 2:7])
    assert torch.all(after.private[0][:, :2] == 1)


@pytest.mark.usefixtures("fake_data")
def test_amazon_polarity_is_imdb_with_another_public_side():
    found = settings.load("amazon-polarity", length=16, validation_records=10, public_records=30)
    plain = settings.load("imdb", length=16, validation_records=10)
    assert len(found.public[0]) == 30
    assert torch.equal(found.private[1], plain.private[1])
    assert int((found.public[0][0] > 0).sum()) == 10  # the title and the text


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize("name", settings.names())
def test_every_point_of_a_grid_makes_its_method(name: str):
    found = settings.load(name, **small_options(name))
    assert set(found.grids) == {"SGD", "MeZO", "DPSGD", "DPZero", "DPMD", "DopeSGD", "GEP", "PazoM", "PazoP", "PazoS"}
    for method, points in found.grids.items():
        assert 1 <= len(points) <= 6
        assert len({repr(getattr(sv, method)(**point)) for point in points}) == len(points)


@pytest.mark.usefixtures("fake_data", "fake_weights")
@pytest.mark.parametrize("name", settings.names())
def test_a_model_is_made_by_its_seed_and_takes_private_steps(name: str):
    found = settings.load(name, **small_options(name))
    one, same, other = (torch.nn.utils.parameters_to_vector(found.make_model(seed).parameters()) for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    for method in (sv.DPZero(lr=1e-3, smoothing=1e-2), sv.PazoM(lr=0.1, public_batch=4), sv.DPSGD(lr=0.1)):
        model = found.make_model(3)
        sv.fit(
            model,
            found.loss,
            private=found.private,
            public=found.public if hasattr(method, "public_batch") else None,
            example=found.example,
            method=method,
            budget=BUDGET,
            steps=2,
            batch_size=8,
        )
        moved = torch.nn.utils.parameters_to_vector(model.parameters())
        assert torch.isfinite(moved).all()
        assert not torch.equal(moved, one)


def small_options(name: str) -> dict[str, Any]:
    if name in ("imdb", "amazon-polarity"):
        return {"length": 8, "vocabulary": 50, "validation_records": 10}
    if name in ("nli", "mnli"):
        return dict(PAIRS)
    if name == "verbalizer":
        return dict(VERBAL)
    return dict(IMAGES if name in ("cifar-10-pretrained", "tiny-imagenet") else SMALL)


@pytest.mark.usefixtures("fake_data")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cifar10", {}, "did you mean 'cifar-10'"),
        ("mnist", {"widht": 3}, "unknown option 'widht' of the setting 'mnist'"),
        ("mnist", {"seed": 0.5}, "seed=0.5"),
        ("mnist", {"limit": 0}, "limit=0: the private part has 90"),
        ("mnist", {"limit": 91}, "limit=91"),
        ("mnist", {"imbalance": "bigg"}, "did you mean 'big'"),
        ("mnist", {"public_records": 120}, "do not suffice"),
        ("mnist", {"public_records": 0}, "public_records=0"),
        ("mnist", {"validation_records": -1}, "validation_records=-1"),
        ("cifar-10", {"width": 0}, "width=0"),
        ("cifar-10", {"model": "nf-resnet-18", "blocks": 3}, "two blocks"),
        ("cifar-10", {"model": "resnet18"}, "model='resnet18'"),
        ("imdb", {"public": "amazon"}, "public='amazon'"),
        ("imdb", {"numbering": "hash"}, "did you mean 'hashed'"),
        ("imdb", {"vocabulary": 2}, "at least 3"),
        ("imdb", {"validation_records": 60}, "some must be private"),
        ("imdb", {"public_records": 61, "validation_records": 10}, "has 60 records"),
        ("imdb", {"dropout": 1.0}, "dropout=1.0"),
        ("imdb", {"dropout": 0.0, "always_dropout": True}, "give a rate"),
    ],
)
def test_wrong_arguments_are_named(name: str, options: dict[str, Any], message: str):
    given = {**(SMALL if name != "imdb" else {}), **options}
    with pytest.raises(ConfigurationError, match=message):
        settings.load(name, **given)


@pytest.mark.parametrize("name", settings.names())
def test_missing_data_names_the_one_command(name: str):
    with pytest.raises(data.DatasetMissing, match="sottovoce data get"):
        settings.load(name)
