import pytest
import torch
from objective_models import KINDS, TiedLanguageModel, assert_untouched, example_for, snapshot
from torch import nn

from sottovoce.objective.directions import BLOCK, Key, gaussian, sphere
from sottovoce.objective.parameters import ParameterVector
from sottovoce.objective.replay import Replay
from sottovoce.privacy.errors import ConfigurationError


def test_a_tied_parameter_counts_once_and_a_frozen_one_not_at_all():
    model = TiedLanguageModel()
    model.mix.bias.requires_grad_(False)
    x = ParameterVector(model)
    assert x.layout.names == ("embedding.weight", "mix.weight", "head.bias")
    assert x.numel() == 35 + 25 + 7 == x.copy().numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_copy_comes_back_bit_for_bit(dtype):
    model, _ = example_for("convolution")
    model.to(dtype)
    with torch.no_grad():
        model[1].weight[0] = -0.0
        model[1].weight[1] = torch.inf
    x = ParameterVector(model)
    before, copy = snapshot(model), x.copy()
    assert copy.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    x.copy_(torch.zeros_like(copy))
    assert not x.copy().any()
    x.copy_(copy)
    assert_untouched(model, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_updates_of_zero_keep_every_bit(dtype):
    """Negative zeros, infinities and NaN payloads included."""
    model = nn.Linear(4, 3).to(dtype)
    with torch.no_grad():
        payload = torch.tensor([0x7FC5, -0x8000], dtype=torch.int16).view(torch.bfloat16)
        model.bias[:2] = payload.to(dtype)
        model.bias[2] = -torch.inf
    before = snapshot(model)
    x = ParameterVector(model)
    u = gaussian(x.layout, count=3, key=Key(1))
    for _ in range(5):
        x.add_(u, torch.zeros(3, dtype=torch.float64))
        x.add_(u, [0.0, -0.0, 0])
        x.add_vector_(torch.randn(x.numel()), 0.0)
    assert_untouched(model, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", ["tied", "convolution"])
def test_updates_are_rounded_once(kind, dtype):
    model, _ = example_for(kind)
    model.to(dtype)
    x = ParameterVector(model)
    u = sphere(x.layout, count=3, key=Key(2))
    coefficients = [0.25, 0.0, -1.5]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    step = u.vector(0).to(wide) * 0.25 + u.vector(2).to(wide) * -1.5
    expected = (x.copy() + step).to(dtype)
    x.add_(u, coefficients)
    assert torch.equal(x.copy().to(dtype), expected)
    dense = torch.randn(x.numel())
    expected = (x.copy() + dense.to(wide) * 0.1).to(dtype)
    x.add_vector_(dense, 0.1)
    assert torch.equal(x.copy().to(dtype), expected)


def test_sums_of_updates_are_not_rounded_in_between():
    """In bfloat16 eight steps of 2^-9 are lost one by one, and are 2^-6 together."""
    model = nn.Linear(1, 1, bias=False).bfloat16()
    nn.init.ones_(model.weight)
    x = ParameterVector(model)

    class Ones:
        count, numel = 8, 1

        def block(self, query, name, start, stop):
            return torch.ones(stop - start)

        def vector(self, query):
            return torch.ones(1)

    x.add_(Ones(), [2.0**-9] * 8)
    assert model.weight.item() == 1 + 2.0**-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replayed_updates_equal_kept_ones_and_never_hold_a_vector(dtype):
    size = 2 * BLOCK + 1237
    kept, lean = nn.Linear(size, 1).to(dtype), nn.Linear(size, 1).to(dtype)
    lean.load_state_dict(kept.state_dict())
    x = ParameterVector(kept)
    y = ParameterVector(lean, Replay(x.layout, kept_bytes=0))
    u = sphere(x.layout, count=2, key=Key(3))
    largest = 0
    block = u.block

    class Watched:
        count, numel = u.count, u.numel

        def block(self, query, name, start, stop):
            nonlocal largest
            largest = max(largest, stop - start)
            return block(query, name, start, stop)

        def vector(self, query):
            raise AssertionError("a whole direction was drawn")

    x.add_(u, [0.1, -0.7])
    y.add_(Watched(), [0.1, -0.7])
    assert torch.equal(x.copy(), y.copy())
    assert largest == BLOCK


def test_kept_directions_are_bounded_and_forgotten_with_their_owner():
    model = nn.Linear(99, 1)
    x = ParameterVector(model)
    x.replay = Replay(x.layout, kept_bytes=2 * 400)
    u = gaussian(x.layout, count=3, key=Key(1))
    draws: list[int] = []
    vector = u.vector
    u.vector = lambda query: (draws.append(query), vector(query))[1]  # pyright: ignore[reportAttributeAccessIssue]

    def part(directions, query, name):
        ((_, piece),) = x.replay.pieces(directions, query, name, torch.device("cpu"))
        return piece

    for query in (0, 1, 0, 1, 2, 2, 0):
        assert torch.equal(part(u, query, "weight"), vector(query)[:99])
    assert draws == [0, 1, 2, 0]
    v = gaussian(x.layout, count=3, key=Key(2))
    assert torch.equal(part(v, 0, "bias"), v.vector(0)[99:])
    assert len(x.replay._kept) == 1
    del v
    assert not x.replay._kept


def test_wrong_arguments_are_refused_before_anything_changes():
    model = nn.Linear(3, 2)
    x = ParameterVector(model)
    u = gaussian(x.layout, count=2, key=Key(1))
    before = snapshot(model)
    with pytest.raises(ConfigurationError, match="one for each direction"):
        x.add_(u, [1.0])
    with pytest.raises(ConfigurationError, match="not finite"):
        x.add_(u, [1.0, float("nan")])
    with pytest.raises(ConfigurationError, match=r"shape \(8,\)"):
        x.add_vector_(torch.zeros(7))
    with pytest.raises(ConfigurationError, match="floating-point"):
        x.copy_(torch.zeros(8, dtype=torch.int64))
    with pytest.raises(ConfigurationError, match="finite"):
        x.add_vector_(torch.zeros(8), float("inf"))
    other = gaussian(ParameterVector(nn.Linear(4, 2)).layout, count=2, key=Key(1))
    with pytest.raises(ConfigurationError, match="length 10"):
        x.add_(other, [1.0, 1.0])
    assert_untouched(model, before)


def test_models_without_usable_parameters_are_refused():
    with pytest.raises(ConfigurationError, match="no trainable parameter"):
        ParameterVector(nn.ReLU())
    integers = nn.Module()
    integers.codes = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(ConfigurationError, match=r"codes \(torch.int64\)"):
        ParameterVector(integers)
    wave = nn.Module()
    wave.phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(ConfigurationError, match="complex64"):
        ParameterVector(wave)
    with pytest.raises(ConfigurationError, match="no values yet"):
        ParameterVector(nn.LazyLinear(3))
    with pytest.raises(ConfigurationError, match="no values yet"):
        ParameterVector(nn.Linear(3, 2, device="meta"))
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    two.weight.data = one.weight.data
    with pytest.raises(ConfigurationError, match="the same memory"):
        ParameterVector(nn.Sequential(one, two))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_one_vector(kind):
    model, _ = example_for(kind)
    x = ParameterVector(model)
    assert x.numel() == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert x.layout.numel == x.numel()
