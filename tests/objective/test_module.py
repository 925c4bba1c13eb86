import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from objective_models import (
    KINDS,
    ReadsItsChild,
    assert_untouched,
    cross_entropy,
    example_for,
    snapshot,
)
from torch import nn

from sottovoce.objective.directions import Key, gaussian, rademacher, sphere
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import repeat, stack
from sottovoce.objective.strategies import ObjectiveWarning
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import ConfigurationError, QueryError

STRATEGIES = ("fast", "lean")


def batch_for(example, rows=6):
    made = variants(example)
    return stack([example, made["noise"], made["zeros"], made["ones"]] + [example] * (rows - 4))


def moved_copy(model, u, query, scale):
    """The model at x + scale u, by a route of its own."""
    other = copy.deepcopy(model)
    offset = 0
    vector = u.vector(query)
    for p in other.parameters():
        if p.requires_grad:
            step = vector[offset : offset + p.numel()].view(p.shape) * scale
            p.data.copy_(step + p.data)
            offset += p.numel()
    return other.eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_losses_along_a_direction_are_those_of_a_moved_model(kind, strategy, dtype):
    model, (inputs, target) = example_for(kind)
    model.to(dtype)
    example = (inputs.to(dtype) if inputs.is_floating_point() else inputs, target)
    objective = ModuleObjective(model, cross_entropy, strategy=strategy, example=example)
    records = batch_for(example)
    u = sphere(objective.parameters.layout, count=2, key=Key(7))
    model.train()
    before = snapshot(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ObjectiveWarning)
        for query, scale in [(0, 0.05), (0, -0.05), (1, 0.5), (1, 0.0)]:
            found = objective.losses_along(records, u, query, scale)
            moved = moved_copy(model, u, query, scale)
            with torch.no_grad():
                assert torch.equal(found, cross_entropy(moved, records).double()), (query, scale)
            assert found.dtype == torch.float64
            assert_untouched(model, before)
    assert objective.strategy == strategy
    assert all(part.training for part in model.modules())
    with torch.no_grad():
        assert torch.equal(objective.losses(records), cross_entropy(copy.deepcopy(model).eval(), records).double())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("where", ["forward", "loss", "direction"])
@pytest.mark.parametrize("kind", ["tied", "lstm"])
def test_parameters_survive_exceptions(kind, where, strategy):
    model, example = example_for(kind)
    fail = False

    def loss(model, batch):
        values = cross_entropy(model, batch)
        if fail and where == "loss":
            raise KeyboardInterrupt
        return values

    objective = ModuleObjective(model, loss, strategy=strategy, example=example)
    records = batch_for(example)
    u = gaussian(objective.parameters.layout, count=1, key=Key(7))
    objective.losses_along(records, u, 0, 0.1)
    before = snapshot(model)
    handles = []
    error: type[BaseException] = KeyboardInterrupt if where == "loss" else ZeroDivisionError
    directions = u
    if where == "forward":
        handles.append(model.head.register_forward_pre_hook(lambda *_: 1 / 0))
    elif where == "direction":

        class Broken:
            count, numel = 1, u.numel

            def block(self, query, name, start, stop):
                if name == "head.bias":
                    raise ZeroDivisionError
                return u.block(query, name, start, stop)

            def vector(self, query):
                raise ZeroDivisionError

        directions = Broken()
    fail = True
    for _ in range(3):
        with pytest.raises(error):
            objective.losses_along(records, directions, 0, 0.1)
        assert_untouched(model, before)
    for handle in handles:
        handle.remove()
    fail = False
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    expected = moved_copy(model, u, 0, 0.1)
    with torch.no_grad():
        assert torch.equal(objective.losses_along(records, u, 0, 0.1), cross_entropy(expected, records).double())


def test_a_caught_exception_inside_the_model_leaves_the_right_parameters():
    class Tries(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            try:
                self.layer(x[:, :2])
            except RuntimeError:
                return self.layer(x)
            raise AssertionError

    model, example = Tries(), (torch.randn(6), torch.tensor(1))
    found = []
    for strategy in STRATEGIES:
        objective = ModuleObjective(model, cross_entropy, strategy=strategy, example=example)
        u = gaussian(objective.parameters.layout, count=1, key=Key(7))
        found.append(objective.losses_along(batch_for(example), u, 0, 0.1))
    assert torch.equal(*found)


def test_lean_falls_back_where_a_parameter_is_read_outside_its_module():
    model, example = ReadsItsChild(), (torch.zeros(6), torch.tensor(1))
    model.child.bias.requires_grad_(False)
    objective = ModuleObjective(model, cross_entropy, strategy="lean", example=example)
    u = gaussian(objective.parameters.layout, count=1, key=Key(7))
    before = snapshot(model)
    with pytest.warns(ObjectiveWarning, match=r"child.weight are read outside"):
        found = objective.losses_along(batch_for(example), u, 0, 0.1)
    assert objective.strategy == "fast"
    assert_untouched(model, before)
    with torch.no_grad():
        assert torch.equal(found, cross_entropy(moved_copy(model, u, 0, 0.1), batch_for(example)).double())


def test_lean_falls_back_for_a_loss_that_reads_parameters_itself():
    model, example = nn.Linear(6, 3), (torch.randn(6), torch.tensor(1))

    def penalised(model, batch):
        return cross_entropy(model, batch) + model.weight.square().sum()

    objective = ModuleObjective(model, penalised, strategy="lean", example=example)
    with pytest.warns(ObjectiveWarning, match="weight are read outside"):
        objective.check_lean(example)
    assert objective.strategy == "fast"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loss_may_differentiate_inside(strategy):
    """Its backward pass runs after the forwards, when the lean strategy's layers are gone unless autograd kept them."""
    for kind in ("weight norm", "convolution", "lists"):
        model, example = example_for(kind)

        def penalised(model, batch):
            inputs, targets = batch
            with torch.enable_grad():
                inputs = inputs.clone().requires_grad_()
                values = F.cross_entropy(model(inputs), targets, reduction="none")
                (slope,) = torch.autograd.grad(values.sum(), inputs)
            return values + slope.flatten(1).square().sum(1)

        objective = ModuleObjective(model, penalised, strategy=strategy, example=example)
        u = gaussian(objective.parameters.layout, count=1, key=Key(7))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ObjectiveWarning)
            found = objective.losses_along(batch_for(example), u, 0, 0.1)
        assert torch.equal(found, penalised(moved_copy(model, u, 0, 0.1), batch_for(example)).double())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_compiled_models_are_perturbed(strategy):
    """A compiled graph does not call hooks that came later: lean must notice and fall back."""
    torch.manual_seed(0)
    model, example = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), (torch.randn(6), torch.tensor(1))
    model.eval()
    compiled: Any = torch.compile(model, backend="eager")
    records = batch_for(example)
    with torch.no_grad():
        compiled(records[0])
    objective = ModuleObjective(compiled, cross_entropy, strategy=strategy, example=example)
    u = gaussian(objective.parameters.layout, count=1, key=Key(7))
    before = snapshot(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ObjectiveWarning)
        for scale in (0.1, -0.1, 0.1):
            found = objective.losses_along(records, u, 0, scale)
            with torch.no_grad():
                expected = cross_entropy(moved_copy(model, u, 0, scale), records).double()
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert_untouched(model, before)


def test_the_loss_may_call_submodules():
    model, example = example_for("tied")

    def loss(model, batch):
        return model.head(torch.tanh(model.mix(model.embedding(batch[0]).mean(1)))).square().sum(1)

    found = []
    for strategy in STRATEGIES:
        objective = ModuleObjective(model, loss, strategy=strategy, example=example)
        u = rademacher(objective.parameters.layout, count=1, key=Key(7))
        found.append(objective.losses_along(batch_for(example), u, 0, 0.1))
        assert objective.strategy == strategy
    assert torch.equal(*found)


def test_evaluation_mode_and_precision_are_restored_each_to_its_own():
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))
    model.train()
    model[2].eval()
    seen = {}

    def loss(model, batch):
        seen["training"] = [part.training for part in model.modules()]
        seen["benchmark"] = torch.backends.cudnn.benchmark
        seen["tf32"] = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
        seen["grad"] = torch.is_grad_enabled()
        return cross_entropy(model, batch)

    example = (torch.randn(6), torch.tensor(1))
    objective = ModuleObjective(model, loss, example=example)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        objective.losses(repeat(example, 3))
        assert torch.backends.cudnn.benchmark
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.matmul.allow_tf32 = False
    assert seen == {"training": [False] * 5, "benchmark": False, "tf32": (False, False), "grad": False}
    assert [part.training for part in model] == [True, True, False, True]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda m, b: F.cross_entropy(m(b[0]), b[1]), r"shape \[\] for 4 records.*reduction='none'"),
        (lambda m, b: m(b[0]).mean().reshape(1), r"shape \[1\].*mean or a sum"),
        (lambda m, b: m(b[0])[:, :1], r"squeeze\(1\)"),
        (lambda m, b: m(b[0]), r"shape \[4, 3\].*flatten\(1\)"),
        (lambda m, b: m(b[0])[:2, 0], "first dimension must be the batch's"),
        (lambda m, b: m(b[0]).argmax(1), r"int64.*\.float\(\)"),
        (lambda m, b: 0.0, "returned a float"),
    ],
)
def test_wrong_losses_are_explained(wrong, message):
    objective = ModuleObjective(nn.Linear(6, 3), wrong)
    with pytest.raises(QueryError, match=message):
        objective.losses((torch.randn(4, 6), torch.zeros(4, dtype=torch.int64)))


def test_wrong_arguments_are_explained():
    model = nn.Linear(6, 3)
    with pytest.raises(ConfigurationError, match=r"torch\.nn\.Module is needed"):
        ModuleObjective(lambda x: x, cross_entropy)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="a function loss"):
        ModuleObjective(model, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="not one of"):
        ModuleObjective(model, cross_entropy, strategy="quick")  # pyright: ignore[reportArgumentType]
    objective = ModuleObjective(model, cross_entropy)
    records = (torch.randn(4, 6), torch.zeros(4, dtype=torch.int64))
    u = gaussian(objective.parameters.layout, count=2, key=Key(1))
    with pytest.raises(ConfigurationError, match="there are 2 directions"):
        objective.losses_along(records, u, 2, 0.1)
    with pytest.raises(ConfigurationError, match="finite"):
        objective.losses_along(records, u, 0, float("nan"))
    other = gaussian(ModuleObjective(nn.Linear(2, 2), cross_entropy).parameters.layout, count=1, key=Key(1))
    with pytest.raises(ConfigurationError, match="length 6"):
        objective.losses_along(records, other, 0, 0.1)


@pytest.mark.parametrize("by_length", [True, False])
def test_a_smoothing_that_rounding_swallows_is_refused(by_length):
    torch.manual_seed(0)
    for dtype, too_small, enough in [
        (torch.bfloat16, 1e-4, 1e-2),
        (torch.float16, 1e-5, 1e-3),
        (torch.float32, 1e-10, 1e-4),
    ]:
        model = nn.Linear(300, 100).to(dtype)
        nn.init.normal_(model.weight)
        objective = ModuleObjective(model, cross_entropy)
        u = sphere(objective.parameters.layout, count=1, key=Key(1))
        what = objective.parameters.numel() ** 0.5 if by_length else u
        objective.check_smoothing(what, enough)
        with pytest.raises(ConfigurationError, match=str(dtype).removeprefix("torch.")):
            objective.check_smoothing(what, too_small)
    with pytest.raises(ConfigurationError, match="positive"):
        objective.check_smoothing(1.0, 0.0)


def test_auto_is_lean_only_for_large_models():
    assert ModuleObjective(nn.Linear(6, 3), cross_entropy).strategy == "fast"
    large = nn.Linear(1, 1)
    large.weight = nn.Parameter(torch.empty(1 << 28, dtype=torch.float16))  # never touched, so never in memory
    assert ModuleObjective(large, cross_entropy).strategy == "lean"
