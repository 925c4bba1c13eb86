"""The built-in models: sizes, seeds, independence of examples, and errors."""

from typing import Any

import pytest
import torch

import sottovoce as sv
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import models

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
CASES = [
    ("linear", GREY),
    ("mlp", GREY),
    ("small-cnn", GREY),
    ("small-cnn", COLOUR),
    ("resnet", COLOUR),
    ("resnet", GREY),
    ("nf-resnet-18", COLOUR),
]


def size(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_sizes():
    assert 90_000 <= size(models.build("small-cnn", shape=GREY, classes=10)) == 102_314 <= 120_000
    assert size(models.build("linear", shape=GREY, classes=10)) == 7_850
    assert size(models.build("resnet", shape=COLOUR, classes=10)) == 1_085_690 >= 10**6
    small = models.build("resnet", shape=COLOUR, classes=10, width=8, blocks=1)
    assert size(small) < 30_000
    assert size(models.build("nf-resnet-18", shape=COLOUR, classes=10)) == 11_169_162


def test_nf_resnet_18_takes_private_zeroth_order_steps_at_full_size():
    model = models.build("nf-resnet-18", shape=COLOUR, classes=10)
    generator = torch.Generator().manual_seed(0)
    records = torch.randn(8, *COLOUR, generator=generator), torch.arange(8)
    before = torch.nn.utils.parameters_to_vector(model.parameters()).clone()
    session = sv.Session(
        model,
        sv.losses.cross_entropy,
        private=records,
        method=sv.DPZero(lr=1e-6, smoothing=1e-3),
        budget=sv.Budget(epsilon=1, delta=1e-3),
        steps=2,
        batch_size=2,
    )
    assert len(list(session)) == 2
    after = torch.nn.utils.parameters_to_vector(model.parameters())
    assert torch.isfinite(after).all()
    assert float((after != before).float().mean()) > 0.1


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_examples_do_not_meet_and_evaluation_is_not_random(name: str, shape: tuple[int, int, int]):
    """In train mode too: row i of a batch is what the example gives alone, and no other input moves it."""
    options = {"width": 8} if "resnet" in name else {}
    model = models.build(name, shape=shape, classes=7, **options)
    assert model.training
    inputs = torch.randn(3, *shape, generator=torch.Generator().manual_seed(3), requires_grad=True)
    outputs = model(inputs)
    assert outputs.shape == (3, 7)
    for row in range(3):
        assert torch.allclose(model(inputs[row : row + 1])[0], outputs[row], atol=1e-5)
    (gradient,) = torch.autograd.grad(outputs[0].sum(), inputs)
    assert gradient[0].abs().sum() > 0
    assert torch.all(gradient[1:] == 0)


@pytest.mark.parametrize("name", models.names())
def test_the_seed_decides_and_the_global_generator_is_left_alone(name: str):
    def build(seed: int) -> torch.Tensor:
        options = {"width": 8} if "resnet" in name else {}
        model = models.build(name, shape=GREY, classes=10, seed=seed, **options)
        return torch.nn.utils.parameters_to_vector(model.parameters())

    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = build(5)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(build(5), first)
    assert not torch.equal(build(6), first)


def test_the_signal_of_a_deep_resnet_neither_dies_nor_explodes():
    """Without normalisation this is what the scaled branches are for; unscaled, 24 blocks multiply it by about 200."""
    model = models.build("resnet", shape=COLOUR, classes=10, width=8, blocks=8)
    with torch.no_grad():
        outputs = model(torch.randn(16, *COLOUR, generator=torch.Generator().manual_seed(0)))
    assert 0.05 < float(outputs.std()) < 5


@pytest.mark.parametrize(("name", "shape", "rate"), [("small-cnn", GREY, 0.1), ("resnet", COLOUR, 0.02)])
def test_it_learns(name: str, shape: tuple[int, int, int], rate: float):
    options = {"width": 8, "blocks": 1} if name == "resnet" else {}
    model = models.build(name, shape=shape, classes=3, **options)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(24, *shape, generator=generator), torch.arange(24) % 3
    inputs += targets.reshape(-1, 1, 1, 1) - 1.0
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses: list[float] = []
    for _ in range(25):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "small-cn"}, "did you mean 'small-cnn'"),
        ({"widht": 3}, "did you mean 'width'"),
        ({"name": "linear", "width": 3}, "it has no options"),
        ({"classes": 0}, "classes=0"),
        ({"shape": (28, 28)}, "channels, height, width"),
        ({"shape": (1, 0, 28)}, "all positive"),
        ({"shape": (1, 7, 7)}, "at least 8 x 8"),
        ({"width": 0}, "width=0"),
        ({"hidden": 1.5}, "hidden=1.5"),
        ({"activation": "tahn"}, "did you mean 'tanh'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        models.build(**{"name": "small-cnn", "shape": GREY, "classes": 10, **arguments})


def test_small_cnn_takes_the_smallest_image_it_names():
    assert models.build("small-cnn", shape=(1, 8, 8), classes=2)(torch.zeros(1, 1, 8, 8)).shape == (1, 2)
