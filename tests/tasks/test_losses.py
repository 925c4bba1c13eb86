"""Losses of one value for each example, against values worked out by hand."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sottovoce import losses


class Fixed(nn.Module):
    """Gives its inputs back, scaled by a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * inputs


MODEL = Fixed()
LOGITS = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, 5.0]])
CLASSES = torch.tensor([0, 0, 0])
SCORES, SIGNS = torch.tensor([2.0, 0.25, -1.0, 0.0]), torch.tensor([1, 1, 1, 0])


def test_cross_entropy():
    wanted = [math.log(2), math.log(4 / 3), math.log(1 + math.exp(5))]
    assert losses.cross_entropy(MODEL, (LOGITS, CLASSES)).tolist() == pytest.approx(wanted)


def test_squared_error_is_a_mean_over_the_outputs_of_one_example():
    outputs, targets = torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    assert losses.squared_error(MODEL, (outputs, targets)).tolist() == [5.0, 2.0]
    # [B, 1] against [B] would broadcast to [B, B].
    assert losses.squared_error(MODEL, (outputs[:, :1], torch.tensor([0.0, 2.0]))).tolist() == [1.0, 4.0]


@pytest.mark.parametrize("targets", [SIGNS, 2 * SIGNS - 1, SIGNS.float(), SIGNS[:, None]])
@pytest.mark.parametrize("scores", [SCORES, SCORES[:, None]])
def test_losses_for_two_classes_take_both_codes_of_the_classes(scores: Tensor, targets: Tensor):
    batch = (scores, targets)
    assert losses.hinge(MODEL, batch).tolist() == [0.0, 0.75, 2.0, 1.0]
    assert losses.zero_one(MODEL, batch).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert losses.accuracy(MODEL, batch).tolist() == [1.0, 1.0, 0.0, 0.0]
    wanted = [math.log1p(math.exp(-margin)) for margin in (2.0, 0.25, -1.0, 0.0)]
    assert losses.logistic(MODEL, batch).tolist() == pytest.approx(wanted)


def test_zero_one_and_accuracy_of_several_classes():
    batch = (LOGITS, torch.tensor([0, 1, 1]))
    assert losses.zero_one(MODEL, batch)[1:].tolist() == [1.0, 0.0]
    assert losses.accuracy(MODEL, batch)[1:].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", ["cross-entropy", "squared-error", "logistic", "hinge"])
def test_the_gradient_of_one_example_under_vmap_is_that_of_the_loop(name: str):
    loss = losses.LOSSES[name]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(5, 3 if name == "cross-entropy" else 1, generator=generator)
    targets = torch.arange(5) % 2
    targets = targets if name != "squared-error" else targets.double().float()

    def alone(parameters: dict[str, Tensor], example: Tensor, target: Tensor) -> Tensor:
        class Bound(nn.Module):
            def forward(self, batch: Tensor) -> Tensor:
                return functional_call(MODEL, parameters, (batch,))

        return loss(Bound(), (example[None], target[None]))[0]

    parameters = {"scale": MODEL.scale.detach()}
    together = vmap(grad(alone), in_dims=(None, 0, 0))(parameters, inputs, targets)["scale"]
    values = loss(MODEL, (inputs, targets))
    assert values.shape == (5,)
    loop = torch.stack([torch.autograd.grad(value, MODEL.scale, retain_graph=True)[0] for value in values])
    assert torch.allclose(together, loop, atol=1e-6)
    assert loop.abs().sum() > 0


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "message"),
    [
        (losses.cross_entropy, LOGITS, CLASSES[:2], "logits"),
        (losses.cross_entropy, LOGITS, CLASSES.float(), "integer classes"),
        (losses.cross_entropy, SCORES, SIGNS, r"logits \[B, classes\]"),
        (losses.squared_error, LOGITS, SCORES[:3], "as many values"),
        (losses.hinge, LOGITS, CLASSES, "one score for each example"),
        (losses.hinge, SCORES, SIGNS[:2], "one target for each score"),
        (losses.zero_one, LOGITS, CLASSES[:, None], "integer classes"),
    ],
)
def test_shapes_that_do_not_match_are_named(loss: losses.Loss, outputs: Tensor, targets: Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        loss(MODEL, (outputs, targets))


def test_the_names_of_a_configuration():
    assert list(losses.LOSSES) == ["cross-entropy", "squared-error", "logistic", "hinge", "zero-one"]
    assert losses.METRICS["accuracy"] is losses.accuracy
