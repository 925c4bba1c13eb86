import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from objective_models import KINDS, ReadsItsChild, assert_untouched, cross_entropy, example_for, snapshot
from torch import nn

import sottovoce
from sottovoce import losses
from sottovoce.objective.directions import Key, rademacher
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.probe import probe
from sottovoce.objective.strategies import ObjectiveWarning
from sottovoce.privacy.errors import ConfigurationError, QueryError

EXAMPLE = (torch.zeros(6), torch.tensor(0))


@pytest.mark.parametrize("strategy", ["fast", "lean"])
@pytest.mark.parametrize("kind", KINDS)
def test_sound_models_pass_and_nothing_is_left_behind(kind, strategy):
    model, example = example_for(kind)
    model.train()
    before, state = snapshot(model), torch.get_rng_state()
    objective = ModuleObjective(model, cross_entropy, strategy=strategy, example=example)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = probe(objective, example, 16, gradients=True)
    assert_untouched(model, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in model.modules())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert report.strategy == strategy
    assert report.batch_size == 16
    assert not report.random
    assert report.seconds_per_evaluation > 0
    assert report.gradient_engine == "vmap"
    assert {"zeros", "ones", "noise"} <= set(report.companies)
    assert ("NaN" in report.companies) == (kind != "tied")


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_a_mean_is_refused_at_every_batch_size(batch_size):
    def mean(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1]).reshape(1)

    with pytest.raises(QueryError, match="reduction='none'"):
        probe(ModuleObjective(nn.Linear(6, 3), mean), EXAMPLE, batch_size)


def test_an_error_in_the_loss_shows_with_its_own_traceback():
    def broken(model, batch):
        return model(batch[0][:, :5]).sum(1)

    with pytest.raises(
        QueryError, match=r"RuntimeError on the public example.*float32\[16, 6\], int64\[16\]: mat1"
    ) as caught:
        probe(ModuleObjective(nn.Linear(6, 3), broken), EXAMPLE, 16)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert any(entry.name == "broken" for entry in caught.traceback) or caught.value.__cause__.__traceback__


class Normalises(nn.Module):
    """Subtracts the batch's mean, in a module that no list of types knows."""

    def forward(self, x):
        return x - x.mean(0)


class Network(nn.Module):
    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.body = nn.Sequential(nn.ReLU(), middle, nn.Tanh())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(self.first(x)))


def test_a_module_that_mixes_records_is_named():
    torch.manual_seed(0)
    objective = ModuleObjective(Network(Normalises()), cross_entropy)
    with pytest.raises(QueryError, match=r"first module whose output changed is 'body\.1' \(Normalises\)"):
        probe(objective, EXAMPLE, 16)


def test_mixing_that_only_nan_reveals_is_found():
    """Company of finite values leaves the rows alone; one NaN reaches all."""

    class Fragile(nn.Module):
        def forward(self, x):
            return x + 0 * x.sum()

    objective = ModuleObjective(Network(Fragile()), cross_entropy)
    with pytest.raises(QueryError, match="when the other rows held NaN"):
        probe(objective, EXAMPLE, 16)


def test_a_loss_that_mixes_records_is_named_as_such():
    def contrastive(model, batch):
        outputs = model(batch[0])
        return F.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)), reduction="none")

    with pytest.raises(QueryError, match="in the loss function itself"):
        probe(ModuleObjective(Network(nn.Identity()), contrastive), (torch.randn(6), EXAMPLE[1]), 16)


def trained(layer):
    layer(torch.randn(32, 4))
    return layer


def test_batch_normalisation_that_has_seen_nothing_is_told():
    with pytest.warns(ObjectiveWarning, match=r"running statistics of 'body\.1'.*nothing here updates them"):
        probe(ModuleObjective(Network(nn.BatchNorm1d(4)), cross_entropy), EXAMPLE, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe(ModuleObjective(Network(trained(nn.BatchNorm1d(4))), cross_entropy), EXAMPLE, 16)


@pytest.mark.parametrize("how", ["no running statistics", "kept in training mode"])
def test_batch_normalisation_with_batch_statistics_is_refused_by_type(how):
    if how == "no running statistics":
        middle = nn.BatchNorm1d(4, track_running_stats=False)
    else:

        class Stubborn(nn.BatchNorm1d):
            def train(self, mode=True):
                return super().train(True)

        middle = Stubborn(4)
    with pytest.raises(QueryError, match=r"'body\.1'.*statistics of the batch.*GroupNorm"):
        probe(ModuleObjective(Network(middle), cross_entropy), EXAMPLE, 16)


@pytest.mark.parametrize("middle", [trained(nn.BatchNorm1d(4)), nn.GroupNorm(2, 4), nn.Dropout(0.5), nn.LayerNorm(4)])
def test_layers_that_are_harmless_in_evaluation_mode_pass(middle):
    report = probe(ModuleObjective(Network(middle), cross_entropy), EXAMPLE, 16)
    assert not report.random


def test_a_buffer_that_collects_records_is_refused():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(4))

        def forward(self, x):
            self.last = x[0].detach().clone()
            return x

    with pytest.raises(QueryError, match=r"changed 'body\.1\.last'"):
        probe(ModuleObjective(Network(Remembers()), cross_entropy), EXAMPLE, 16)


def test_a_loss_that_trains_the_model_is_refused():
    def trains(model, batch):
        with torch.no_grad():
            model.weight.add_(0.0)
        return cross_entropy(model, batch)

    with pytest.raises(QueryError, match="changed 'weight'"):
        probe(ModuleObjective(nn.Linear(6, 3), trains), EXAMPLE, 16)


def test_a_random_loss_is_reported_not_refused():
    class Always(nn.Dropout):
        def train(self, mode=True):
            return super().train(True)

    with pytest.warns(ObjectiveWarning, match=r"random.*dropout is active in body\.1"):
        report = probe(ModuleObjective(Network(Always()), cross_entropy), EXAMPLE, 64)
    assert report.random
    assert "noise" in report.companies


def test_randomness_that_an_example_of_zeros_hides_is_reported():
    def drops_inputs(model, batch):
        return cross_entropy(model, (F.dropout(batch[0], 0.5, training=True), batch[1]))

    with pytest.warns(ObjectiveWarning, match="the loss is random"):
        assert probe(ModuleObjective(nn.Linear(6, 3), drops_inputs), EXAMPLE, 16).random


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("target", [0, 1])
def test_a_loss_of_steps_does_change_with_the_parameters(classes, target):
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, classes))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            probe(ModuleObjective(model, losses.zero_one), (torch.zeros(6), torch.tensor(target)), 16)


def test_warnings_point_at_the_user_s_line():
    def drops_inputs(model, batch):
        return cross_entropy(model, (F.dropout(batch[0], 0.5, training=True), batch[1]))

    made: dict[str, Any] = {
        "private": (torch.randn(40, 6), torch.zeros(40, dtype=torch.long)), "batch_size": 10, "steps": 1,
        "method": sottovoce.DPZero(lr=0.1), "budget": sottovoce.Budget(epsilon=1.0, delta=1e-5),
    }  # fmt: skip
    for use in (sottovoce.Session, sottovoce.fit):
        with pytest.warns(ObjectiveWarning, match="the loss is random") as caught:
            use(nn.Linear(6, 3), drops_inputs, **made)
        assert caught[0].filename == __file__
    made["budget"] = sottovoce.Budget(epsilon=1.0, delta=0.1)
    with pytest.warns(sottovoce.PrivacyWarning) as caught:
        sottovoce.fit(nn.Linear(6, 3), cross_entropy, **made)
    assert caught[0].filename == __file__


def test_a_loss_that_ignores_the_model_is_noticed():
    other = nn.Linear(6, 3)

    def forgets(model, batch):
        return cross_entropy(other, batch)

    with pytest.warns(ObjectiveWarning, match="does it use the model"):
        probe(ModuleObjective(nn.Linear(6, 3), forgets), EXAMPLE, 16)


def test_lean_falls_back_with_a_warning():
    objective = ModuleObjective(ReadsItsChild(), cross_entropy, strategy="lean", example=EXAMPLE)
    with pytest.warns(ObjectiveWarning, match=r"child\.weight"):
        report = probe(objective, EXAMPLE, 16)
    assert report.strategy == objective.strategy == "fast"


def test_row_position_rounding_is_measured_not_assumed():
    def by_position(model, batch):
        return cross_entropy(model, batch) + 1e-9 * torch.arange(len(batch[1]), dtype=torch.float64)

    assert probe(ModuleObjective(nn.Linear(6, 3), by_position), EXAMPLE, 16).row_position_rounding
    assert not probe(ModuleObjective(nn.Linear(6, 3), cross_entropy), EXAMPLE, 1).row_position_rounding


def test_dictionaries_and_many_leaves_pass():
    def loss(model, batch):
        return model(batch["x"]["left"] + batch["x"]["right"]).square().sum(1) * batch["weight"]

    example = {"x": {"left": torch.randn(6), "right": torch.randn(6)}, "weight": torch.tensor(2.0)}
    assert probe(ModuleObjective(nn.Linear(6, 3), loss), example, 16).companies


def test_an_impossible_batch_size_is_refused():
    with pytest.raises(ConfigurationError, match="at least 1"):
        probe(ModuleObjective(nn.Linear(6, 3), cross_entropy), EXAMPLE, 0)


def refusal(loss=cross_entropy, *, model=None, example=EXAMPLE, **how):
    with warnings.catch_warnings(), pytest.raises(QueryError) as caught:
        warnings.simplefilter("error")  # the error is all that is said
        probe(ModuleObjective(model or nn.Linear(6, 3), loss), example, 16, **how)
    return str(caught.value)


@pytest.mark.parametrize(("factor", "word"), [(torch.inf, "inf"), (-torch.inf, "-inf"), (torch.nan, "NaN")])
def test_a_loss_that_is_not_finite_on_the_example_is_refused(factor, word):
    def spoilt(model, batch):
        return cross_entropy(model, batch) * factor

    assert f"the loss of the public example is {word}: such records count as zero" in refusal(spoilt)
    assert f"a record of zeros is {word}, and no made-up one's is finite" in refusal(spoilt, stands_in=True)


def test_weights_that_are_not_finite_are_not_taken_for_a_loss_without_a_model():
    model = nn.Linear(6, 3)
    with torch.no_grad():
        model.weight.fill_(torch.nan)
    assert "check the model's values" in refusal(model=model, stands_in=True)
    assert "check the model's values" in refusal(model=model)


def test_a_half_precision_model_that_overflows_is_refused():
    def steep(model, batch):
        return losses.cross_entropy(model, batch) * 60_000 * 100

    assert "float16?" in refusal(steep, model=nn.Linear(6, 3).half(), example=(torch.zeros(6).half(), EXAMPLE[1]))


def test_a_loss_that_only_zeros_spoil_asks_for_an_example():
    def normalised(model, batch):
        return cross_entropy(model, (batch[0] / batch[0].norm(dim=1, keepdim=True), batch[1]))

    assert "the public example is NaN" in refusal(normalised)
    with pytest.warns(ObjectiveWarning, match="record of zeros is NaN.*typical public record as example=") as caught:
        probe(ModuleObjective(nn.Linear(6, 3), normalised), EXAMPLE, 16, stands_in=True)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe(ModuleObjective(nn.Linear(6, 3), normalised), (torch.ones(6), EXAMPLE[1]), 16)


@pytest.mark.parametrize(
    ("records", "model", "mend"),
    [
        (torch.float64, torch.float32, "`.float()` or `.astype('float32')`, or the model with `.double()`"),
        (torch.uint8, torch.float32, "convert the records with `.float()` or `.astype('float32')`]"),
        (torch.float32, torch.bfloat16, "convert the records with `.bfloat16()`, or the model with `.float()`]"),
    ],
)
def test_types_that_do_not_agree_are_named_with_the_mend(records, model, mend):
    text = refusal(model=nn.Linear(6, 3).to(model), example=(torch.zeros(6, dtype=records), EXAMPLE[1]))
    given, wanted = (str(dtype).removeprefix("torch.") for dtype in (records, model))
    assert f"in a batch of {given}[16, 6], int64[16]:" in text
    assert f"[part 1 of the records is {given}, the model {wanted}: " in text
    assert mend in text


def test_types_are_not_blamed_for_what_they_did_not_do():
    assert "convert" not in refusal(example=(torch.zeros(5, dtype=torch.float64), EXAMPLE[1]))

    def broken(model, batch):
        raise ValueError("a bug")

    assert refusal(broken, example=(torch.zeros(6, dtype=torch.uint8), EXAMPLE[1])).endswith("a bug")


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="none"), F.cross_entropy])
def test_a_loss_of_torch_itself_is_told_how_it_is_called(loss):
    assert "a loss is called as loss(model, batch): use sv.losses.cross_entropy" in refusal(loss)


class WidestSoFar(nn.Module):
    """Scales by the widest input that it has seen, once one exceeds a limit; counts its calls and keeps the last."""

    widest: torch.Tensor

    def __init__(self, limit: float):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("widest", torch.full((), limit))
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        self.last = inputs
        if float(inputs.abs().max()) > self.widest:
            self.widest.copy_(torch.fmax(self.widest, inputs.abs().max()))
        return self.layer(inputs / self.widest)


@pytest.mark.parametrize("limit", [10.0, 1e4])
def test_a_loss_whose_state_changes_at_unusual_values_is_refused_or_its_state_put_back(limit):
    model = WidestSoFar(limit)
    objective = ModuleObjective(model, cross_entropy, example=EXAMPLE)
    if limit < 100:  # what made-up records reach
        with pytest.raises(QueryError, match="widest"):
            probe(objective, EXAMPLE, 16)
    before = objective.losses(stacked(EXAMPLE, 16))
    wide = torch.full((16, 6), 1e6), torch.zeros(16, dtype=torch.int64)
    objective.losses(wide)
    objective.mean_gradient(wide)
    assert float(model.widest) == limit and model.calls == 0 and not hasattr(model, "last")
    assert torch.equal(objective.losses(stacked(EXAMPLE, 16)), before)


def test_replaced_buffers_frozen_parameters_and_new_attributes_are_put_back_too():
    class Restless(nn.Module):
        seen: torch.Tensor

        def __init__(self):
            super().__init__()
            self.layer, self.frozen = nn.Linear(6, 3), nn.Parameter(torch.ones(1), requires_grad=False)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, inputs):
            self.seen = self.seen + inputs.sum()
            self.frozen.data.add_(1)
            self.register_buffer("more", inputs.clone())
            vars(self.layer)["note"] = inputs
            return self.layer(inputs)

    model = Restless()
    before, attributes = snapshot(model), {name: set(vars(part)) for name, part in model.named_modules()}
    ModuleObjective(model, cross_entropy, example=EXAMPLE).losses(stacked(EXAMPLE, 4))
    assert_untouched(model, before)
    assert {name: set(vars(part)) for name, part in model.named_modules()} == attributes
    assert set(model.state_dict()) == {"layer.weight", "layer.bias", "frozen", "seen"}


def stacked(example, rows):
    return tuple(leaf.expand(rows, *leaf.shape).clone() for leaf in example)


# --- what only other subjects than the example, or other generators than torch's, reveal -------------------------


def refused(loss: Any, model: nn.Module | None = None, example: Any = EXAMPLE) -> str:
    with pytest.raises(QueryError) as caught:
        probe(ModuleObjective(model or nn.Linear(6, 3), loss, example=example), example, 16)
    return str(caught.value)


def test_a_scale_taken_from_the_batch_is_found_though_the_example_is_zeros():
    """Dynamically quantised layers take the range of their inputs over the whole batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends another package for it
        body: Any = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(6, 16), nn.ReLU()), {nn.Linear})
    said = refused(cross_entropy, nn.Sequential(body, nn.Linear(16, 3)))
    assert "that of a made-up one was another" in said and "dynamic quantisation" in said


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
@pytest.mark.parametrize("value", [0, 200])
def test_integers_scaled_by_the_largest_of_their_batch_are_found(dtype, value):
    def by_largest(model, batch):
        return cross_entropy(model, (batch[0].float() / batch[0].max().clamp(min=1), batch[1]))

    example = (torch.tensor([value, 3, 1, 0, 2, 1]).to(dtype), EXAMPLE[1])
    assert "depends on the other records" in refused(by_largest, example=example)


class RunningMean:
    """A loss that remembers; called, or by its method."""

    def __init__(self) -> None:
        self.mean = torch.tensor(1.0)
        self.seen: list[torch.Tensor] = []

    def __call__(self, model, batch):
        found = cross_entropy(model, batch)
        self.mean = 0.9 * self.mean + 0.1 * found.detach().mean()
        return found / self.mean

    def listed(self, model, batch):
        self.seen.append(cross_entropy(model, batch).detach().mean())
        return cross_entropy(model, batch) / sum(self.seen)


def test_what_a_loss_remembers_is_forgotten_or_refused():
    loss = RunningMean()
    assert "depends on the other records" in refused(loss)  # within one batch; nothing stays for the next
    assert float(loss.mean) == 1.0
    assert "remembers earlier calls" in refused(loss.listed)


def test_the_buffers_of_a_loss_that_is_a_module_are_put_back():
    class Weighted(nn.Module):
        total: torch.Tensor

        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(()))

        def forward(self, model, batch):
            found = cross_entropy(model, batch)
            self.total += found.detach().sum()
            return found

    loss = Weighted()
    ModuleObjective(nn.Linear(6, 3), loss, example=EXAMPLE).losses(stacked(EXAMPLE, 4))
    assert float(loss.total) == 0


def test_draws_of_numpy_and_python_do_not_hide_a_loss_that_mixes():
    def mixing(model, batch):
        found = cross_entropy(model, batch)
        return found + found.mean() + np.random.rand() + random.random()

    with pytest.warns(ObjectiveWarning, match="random"):
        assert "depends on the other records" in refused(mixing)


def test_a_generator_of_the_loss_s_own_is_refused():
    draws = np.random.default_rng(0)
    assert "a generator of its own" in refused(lambda model, batch: cross_entropy(model, batch) + draws.random())


def test_a_parameter_that_is_written_behind_autograd_s_back_is_refused():
    class Keeps(nn.Linear):
        def forward(self, input):
            self.bias.data[0] = input.detach().abs().max()
            return super().forward(input)

    assert "changed 'bias'" in refused(cross_entropy, Keeps(6, 3))


def test_what_a_private_record_makes_a_loss_write_into_the_model_is_undone():
    """At values that no made-up record has, so that the probe cannot know."""

    def meddling(model, batch):
        if bool((batch[0] > 1e6).any()):
            with torch.no_grad():
                model.weight.add_(1)
            model.weight.data.mul_(2)
            if not torch.is_grad_enabled():  # or the next row's gradient could not be taken
                model.bias.requires_grad_(False)
            model.weight.grad = torch.ones(3, 6)
            model.register_forward_hook(lambda *_: None)
        return cross_entropy(model, batch)

    model = nn.Linear(6, 3)
    objective = ModuleObjective(model, meddling, strategy="fast", example=EXAMPLE)
    probe(objective, EXAMPLE, 4)
    before = snapshot(model)
    wide = torch.full((4, 6), 1e7), torch.zeros(4, dtype=torch.int64)
    objective._engine = "loop"
    directions = rademacher(objective.parameters.layout, count=1, key=Key(0))

    def ahead(rows):
        return objective.losses_along(rows, directions, 0, 0.1)

    for evaluate in (objective.losses, objective.gradients, ahead):
        evaluate(wide)
        assert_untouched(model, before)
        assert model.bias.requires_grad and model.weight.grad is None and not model._forward_hooks


def test_memory_that_may_not_be_written_is_left_alone_and_rebound_memory_comes_back(tmp_path):
    class Odd(nn.Linear):
        spread: torch.Tensor
        table: torch.Tensor

        def __init__(self):
            super().__init__(6, 3)
            self.register_buffer("spread", torch.ones(1).expand(3))
            np.save(tmp_path / "table.npy", np.ones(3, dtype=np.float32))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says that it cannot be written
                self.register_buffer("table", torch.from_numpy(np.load(tmp_path / "table.npy", mmap_mode="r")))

        def forward(self, input):
            return super().forward(input) * self.spread * self.table

    model = Odd()
    before = snapshot(model)

    def rebinding(model, batch):
        found = cross_entropy(model, batch)
        if bool((batch[0] > 1e6).any()):
            model.weight.data = model.weight.data[:1].double()
        return found

    objective = ModuleObjective(model, rebinding, example=EXAMPLE)
    probe(objective, EXAMPLE, 4)
    objective.losses((torch.full((4, 6), 1e7), torch.zeros(4, dtype=torch.int64)))
    assert_untouched(model, before)


@pytest.mark.parametrize("example", [[3, 5, 7, 1, 2, 4], [0, 0, 0, 0, 0, 0], [3, 5, 1, 0, 0, 0]])
def test_cropping_to_the_longest_text_of_the_batch_is_found(example):
    class Cropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(8, 4), nn.Linear(4, 3)

        def forward(self, words):
            longest = max(1, int((words != 0).sum(1).max()))
            return self.head(self.embedding(words[:, :longest]).mean(1))

    said = refused(cross_entropy, Cropping(), (torch.tensor(example), EXAMPLE[1]))
    assert "depends on the other records" in said
