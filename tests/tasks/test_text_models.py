"""The LSTM against torch's own, per-example gradients, padding, and dropout in and out of queries."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import nn

from sottovoce.losses import cross_entropy
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import text_models, words
from sottovoce.tasks.text_models import LSTM


def some_words(rows: int = 4, length: int = 9) -> torch.Tensor:
    return torch.randint(1, 30, (rows, length), generator=torch.Generator().manual_seed(0))


def test_the_states_and_gradients_are_those_of_torch():
    torch.manual_seed(0)
    ours, theirs = LSTM(5, 7), nn.LSTM(5, 7, batch_first=True)
    pairs = [
        (ours.weight_inputs, cast(torch.Tensor, theirs.weight_ih_l0)),
        (ours.weight_states, cast(torch.Tensor, theirs.weight_hh_l0)),
        (ours.bias, cast(torch.Tensor, theirs.bias_ih_l0)),
    ]
    with torch.no_grad():
        for own, other in pairs:
            other.copy_(own)
        cast(torch.Tensor, theirs.bias_hh_l0).zero_()
    inputs = torch.randn(3, 6, 5)
    weights = torch.randn(3, 6, 7)
    expected = theirs(inputs)[0]
    written_out = ours(inputs)
    with torch.no_grad():
        fused = ours(inputs)
    assert torch.allclose(written_out, expected, atol=1e-6)
    assert torch.allclose(fused, expected, atol=1e-6)
    (expected * weights).sum().backward()
    (written_out * weights).sum().backward()
    for own, other in pairs:
        assert torch.allclose(own.grad, other.grad, atol=1e-5)  # pyright: ignore[reportArgumentType]


def test_examples_are_differentiated_together_and_right():
    """torch.func maps over the examples (no loop), and each row is the gradient of that example alone."""
    model = text_models.lstm(vocabulary=30, classes=3, embedding=5, hidden=6)
    inputs, targets = some_words(), torch.tensor([0, 1, 2, 0])
    inputs[0, 4:] = 0
    objective = ModuleObjective(model, cross_entropy, example=(inputs[0], targets[0]))
    assert objective.gradient_engine() == "vmap"
    rows = objective.gradients((inputs, targets))
    for row in range(4):
        alone = objective.mean_gradient((inputs[row : row + 1], targets[row : row + 1]))
        assert torch.allclose(rows[row], alone, atol=1e-6)
    assert (rows.norm(dim=1) > 1e-3).all()


def test_padding_does_not_count():
    model = text_models.lstm(vocabulary=30, classes=3).eval()
    short = some_words(2, 5)
    padded = torch.cat([short, torch.zeros(2, 4, dtype=torch.int64)], dim=1)
    assert torch.allclose(model(short), model(padded), atol=1e-6)
    assert torch.isfinite(model(torch.zeros(1, 5, dtype=torch.int64))).all()


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one, same, other = (
        nn.utils.parameters_to_vector(text_models.lstm(vocabulary=30, classes=2, seed=seed).parameters())
        for seed in (5, 5, 6)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_dropout_is_off_in_queries_unless_it_is_always_on():
    batch = some_words(), torch.tensor([0, 1, 0, 1])

    def two_answers(*, always: bool) -> tuple[torch.Tensor, torch.Tensor]:
        model = text_models.lstm(vocabulary=30, classes=2, dropout=0.5, always_dropout=always)
        objective = ModuleObjective(model, cross_entropy)
        return objective.losses(batch), objective.losses(batch)

    assert torch.equal(*two_answers(always=False))
    assert not torch.equal(*two_answers(always=True))


@pytest.mark.parametrize("rate", [-0.1, 1.0, True, "0.2"])
def test_a_rate_of_dropout_is_checked(rate: float):
    with pytest.raises(ConfigurationError, match="dropout="):
        text_models.lstm(vocabulary=30, classes=2, dropout=rate)


def test_words_are_numbered_by_public_counts():
    number = words.counted(["b a a!", "A b c"], 5)
    assert [number(word) for word in ("a", "b", "!", "c", "never")] == [2, 3, 4, 1, 1]
    assert words.padded(["A b never", "", "a a a a a"], number, 4).tolist() == [
        [2, 3, 1, 0],
        [0, 0, 0, 0],
        [2, 2, 2, 2],
    ]


def test_hashed_words_know_no_text():
    number = words.hashed(10)
    found = [number(f"word{index}") for index in range(200)]
    assert set(found) == set(range(1, 10))
    assert number("film") == words.hashed(10)("film")
