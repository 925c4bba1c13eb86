"""Sessions and fit: the loop, what it lets out, and what is refused before any budget is spent."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import sottovoce as sv
from sottovoce.objective.strategies import ObjectiveWarning
from sottovoce.privacy.ledger import Ledger

BUDGET = sv.Budget(epsilon=2.0, delta=1e-4)
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(300, 4, generator=GENERATOR)
TARGETS = (INPUTS[:, 0] > 0).long()
DATA = (INPUTS, TARGETS)
COPY = (INPUTS.clone(), TARGETS.clone())


class Items(Dataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return INPUTS[index], int(TARGETS[index])


def linear(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(4, 2)


def weight_of(model: nn.Module) -> Tensor:
    return next(model.parameters()).detach().clone()


def session(**changes: Any) -> sv.Session:
    arguments: dict[str, Any] = {
        "private": DATA, "method": sv.DPSGD(lr=0.5), "budget": BUDGET, "batch_size": 30, "steps": 10, **changes,
    }  # fmt: skip
    model = arguments.pop("model", None) or linear()
    loss = arguments.pop("loss", sv.losses.cross_entropy)
    return sv.Session(model, loss, **arguments)


def test_ten_lines_train_a_model_privately():
    run = sv.fit(
        model := linear(), sv.losses.cross_entropy, private=DATA, method=sv.DPSGD(lr=1.0), budget=BUDGET, epochs=5,
        batch_size=60, validate=COPY, metrics={"accuracy": sv.losses.accuracy},
    )  # fmt: skip
    assert run.final["accuracy"] > 0.85
    assert run.model is model and run.statement.private
    assert run.statement.epsilon_spent <= BUDGET.epsilon
    assert run.statement.steps_run == math.ceil(5 * 300 / 60)


def test_a_session_is_a_loop_and_a_broken_loop_goes_on():
    loop = session()
    numbers = []
    for step in loop:
        numbers.append(step.number)
        assert step.released.shape == (10,)
        if step.number == 4:
            break
    numbers += [step.number for step in loop]
    assert numbers == list(range(1, 11))
    assert loop.epsilon() == pytest.approx(BUDGET.epsilon, rel=2e-3)


def test_epsilon_grows_with_the_steps_and_never_passes_the_budget():
    loop = session()
    spent = [loop.epsilon(), *(loop.epsilon() for _ in loop)]
    assert spent[0] == 0.0
    assert all(a < b for a, b in pairwise(spent))
    assert spent[-1] <= BUDGET.epsilon


def test_a_named_data_set_is_charged_and_closed(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    with session(dataset="clinic", ledger=ledger) as loop:
        for step in loop:
            if step.number == 3:
                break
    record = ledger.runs("clinic")[0]
    assert (record.state, record.steps_charged) == ("settled", 3)
    with pytest.raises(sv.BudgetExhausted):
        next(iter(session(dataset="clinic", ledger=ledger)))


@pytest.mark.parametrize("method", [sv.DPSGD(lr=0.1, clip=1e-305), sv.DPZero(lr=0.1, clip=1e-305)])
def test_a_clip_that_has_no_grid_is_refused_before_anything_is_paid_for(method: Any, tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(sv.ConfigurationError, match="at least 1e-300"):
        for _ in session(dataset="clinic", ledger=ledger, method=method):
            pass
    assert ledger.runs() == []


def test_a_run_that_diverged_says_so():
    with pytest.warns(ObjectiveWarning, match="the run has diverged"):
        sv.fit(
            linear(), sv.losses.cross_entropy, private=DATA, method=sv.DPSGD(lr=3e38), budget=BUDGET, batch_size=30,
            steps=30, validate=COPY,
        )  # fmt: skip


def test_nothing_is_reserved_until_the_first_step(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    loop = session(dataset="clinic", ledger=ledger)
    assert ledger.runs() == []
    loop.close()
    assert ledger.runs() == []


def test_a_session_that_is_dropped_is_settled(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    loop = session(dataset="clinic", ledger=ledger)
    next(iter(loop))
    del loop
    gc.collect()
    assert ledger.runs()[0].steps_charged == 1


def test_an_exception_in_the_user_s_loop_leaves_the_run_settled(tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(RuntimeError), session(dataset="clinic", ledger=ledger) as loop:
        for step in loop:
            if step.number == 2:
                raise RuntimeError("the user's own")
    assert ledger.runs()[0].steps_charged == 2


class Faulty:
    """DP-SGD whose third step fails, before or after its release."""

    private = True
    lr = 0.1

    def __init__(self, error: BaseException, *, after: bool) -> None:
        self.error, self.after, self.inner = error, after, sv.DPSGD(lr=0.1)

    def plan(self, sampler: Any) -> Any:
        return self.inner.plan(sampler)

    def check(self, objective: Any) -> None:
        self.inner.check(objective)

    def step(self, batch: Any, at: Any) -> Any:
        if at.number == 2 and not self.after:
            raise self.error
        estimate = self.inner.step(batch, at)
        if at.number == 2:
            raise self.error
        return estimate


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("the method's own")])
def test_a_session_that_ended_inside_a_step_never_looks_finished(error: BaseException, after: bool, tmp_path: Path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    loop = session(method=Faulty(error, after=after), dataset="clinic", ledger=ledger)
    with pytest.raises(type(error)):
        list(loop)
    name = type(error).__name__
    for _ in range(2):
        with pytest.raises(sv.PlanViolation, match=f"ended at step 2 of 10 by {name} inside the next step"):
            next(iter(loop))
    assert (loop.steps_run, loop.statement.steps_run) == (2, 3)
    assert f"step 3 is paid for and was not applied to the model: the run ended inside it, by {name}" in str(
        loop.statement
    ).replace("\n    ", " ")
    assert (ledger.runs()[0].state, ledger.runs()[0].steps_charged) == ("settled", 3)


def test_a_closed_session_says_so_and_a_complete_one_yields_nothing():
    loop = session()
    next(iter(loop))
    loop.close()
    with pytest.raises(sv.PlanViolation, match=r"ended at step 1 of 10 by close\(\)"):
        list(loop)
    assert loop.statement.steps_run == loop.steps_run == 1 and not loop.statement.warnings
    whole = session()
    assert len(list(whole)) == 10
    whole.close()
    assert list(whole) == []


@pytest.mark.parametrize("by", ["close", "an exception"])
def test_a_run_that_ended_early_leaves_the_average_in_the_model(by: str):
    model = linear()
    loop = session(model=model, update=sv.Update(averaging=0.5), method=sv.SGD(lr=0.5), budget=None, steps=5)
    iterates: list[Tensor] = []
    with pytest.raises(ZeroDivisionError) if by == "an exception" else contextlib.nullcontext(), loop:
        for step in loop:
            iterates.append(weight_of(model))
            if step.number == 2:
                if by == "close":
                    break
                raise ZeroDivisionError
    expected = (0.5 * iterates[0] + iterates[1]) / 1.5
    assert torch.allclose(weight_of(model), expected, atol=1e-6)
    with torch.no_grad():
        next(model.parameters()).fill_(3.0)
    loop.close()
    assert bool((weight_of(model) == 3.0).all()), "what the user makes of the model afterwards stays"


def test_an_item_that_cannot_be_read_is_told_where_nothing_is_private():
    class Gaps(Items):
        def __getitem__(self, index: int) -> Any:
            if index == 7:
                raise OSError
            return super().__getitem__(index)

    loop = session(
        private=Gaps(300), example=(torch.zeros(4), 0), method=sv.SGD(lr=0.1), budget=None, batch_size=300, steps=1
    )
    with pytest.raises(sv.DataError, match=r"item 7 of private= cannot be read"):
        list(loop)


@pytest.mark.parametrize("sampling", ["single-pass", "full-batch"])
def test_other_samplings_run(sampling: str):
    options = {"batch_size": None, "steps": 4} if sampling == "full-batch" else {"batch_size": 60, "steps": 5}
    loop = session(sampling=sampling, **options)
    assert len(list(loop)) == options["steps"]
    assert "closed form" in loop.statement.accountant.lower() or "exact" in loop.statement.accountant.lower()


def test_a_single_pass_costs_the_same_whatever_its_number_of_steps():
    one, many = session(sampling="single-pass", steps=1), session(sampling="single-pass", steps=10)
    assert one.noise_multiplier == many.noise_multiplier


@pytest.mark.parametrize(
    "private",
    [
        {"x": INPUTS, "y": TARGETS},
        [INPUTS.numpy(), TARGETS.numpy()],
        TensorDataset(INPUTS, TARGETS),
    ],
    ids=["dict", "arrays", "TensorDataset"],
)
def test_records_come_in_many_forms(private: Any):
    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = (batch["x"], batch["y"]) if isinstance(batch, dict) else batch
        return sv.losses.cross_entropy(model, (inputs, targets))

    plain, other = session(), session(private=private, loss=loss)
    assert plain.noise_multiplier == other.noise_multiplier
    assert len(list(other)) == 10


def test_momentum_decay_schedule_and_averaging_work_with_every_method():
    for method in (sv.DPSGD(lr=0.1), sv.DPZero(lr=0.01), sv.SGD(lr=0.1), sv.MeZO(lr=0.01)):
        update = sv.Update(momentum=0.9, weight_decay=1e-3, schedule="cosine", averaging=0.9)
        loop = session(method=method, budget=BUDGET if method.private else None, update=update)
        for _ in loop:
            with loop.averaged():
                pass
        assert loop.steps_run == 10


def test_momentum_is_torch_s_momentum():
    """Against torch.optim.SGD with momentum, decay and a schedule, on exact full-batch gradients."""
    model, other = linear(), linear()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 10)
    loop = session(
        model=model, method=sv.SGD(lr=0.5), budget=None, batch_size=300, steps=10,
        update=sv.Update(momentum=0.9, schedule="linear"),
    )  # fmt: skip
    for _ in loop:
        optimizer.zero_grad()
        nn.functional.cross_entropy(other(INPUTS), TARGETS).backward()
        optimizer.step()
        scheduler.step()
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_average_is_what_is_left_in_the_model():
    model = linear()
    loop = session(model=model, update=sv.Update(averaging=0.5), method=sv.SGD(lr=0.5), budget=None, steps=3)
    iterates: list[Tensor] = []
    steps = iter(loop)
    for _ in range(2):
        next(steps)
        iterates.append(weight_of(model))
    with loop.averaged():
        expected = (0.5 * iterates[0] + iterates[1]) / 1.5
        assert torch.allclose(weight_of(model), expected, atol=1e-6)
    assert torch.equal(weight_of(model), iterates[1])


def mean_loss(model: nn.Module, batch: Any) -> Tensor:
    return sv.losses.cross_entropy(model, batch).mean()


def mixing_loss(model: nn.Module, batch: Any) -> Tensor:
    inputs, targets = batch
    return sv.losses.cross_entropy(model, (inputs - inputs.mean(dim=0), targets))


NOTHING: Any = lambda fraction: None  # noqa: E731

REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a mean loss": ({"loss": mean_loss}, sv.QueryError, "reduction"),
    "a loss that mixes": ({"loss": mixing_loss}, sv.QueryError, "depend|mix"),
    "empty data": ({"private": (INPUTS[:0], TARGETS[:0])}, sv.DataError, "empty"),
    "an empty data set": ({"private": Items(0)}, sv.DataError, "empty"),
    "unequal lengths": ({"private": (INPUTS, TARGETS[:5])}, sv.DataError, "different lengths"),
    "an iterator": ({"private": iter([1])}, sv.DataError, "cannot be sampled"),
    "a path": ({"private": "data.csv"}, sv.DataError, "private= is 'data.csv', which is text.*read the file"),
    "a list of pairs": (
        {"private": list(zip(INPUTS.numpy(), TARGETS.tolist(), strict=True))}, sv.DataError, "give columns, as in",
    ),
    "a list of numbers": ({"private": [1.0, 2.0]}, sv.DataError, "give columns, as in"),
    "an example of another type": (
        {"example": (INPUTS[0].double(), 0)}, sv.DataError, "example= is .*float64",
    ),
    "text": ({"private": (INPUTS, np.array(["a"] * 300))}, sv.DataError, "not numeric"),
    "another example": ({"example": (COPY[0][0, :3], 0)}, sv.DataError, "example= is .*float32.3"),
    "a private example": ({"example": (INPUTS[0], 0)}, sv.DataError, "example= and private= share memory.*a copy of"),
    "a private item for an example": (
        {"private": TensorDataset(*DATA), "example": TensorDataset(*DATA)[3]}, sv.DataError, "a public record: give",
    ),
    "a data set of items alone": (
        {"private": Items(300)}, sv.DataError, r"private= is a Items.*example=\(torch.zeros\(3\)",
    ),
    "a batch above the data": ({"batch_size": 301}, sv.ConfigurationError, "from 1 to the number of records, 300"),
    "an empty batch": ({"batch_size": 0}, sv.ConfigurationError, "batch_size=0"),
    "no batch size": ({"batch_size": None}, sv.ConfigurationError, "batch_size is needed"),
    "steps and epochs": ({"epochs": 3}, sv.ConfigurationError, "exactly one of the two"),
    "neither": ({"steps": None}, sv.ConfigurationError, "exactly one of the two"),
    "no steps": ({"steps": 0}, sv.ConfigurationError, "steps=0"),
    "negative epochs": ({"steps": None, "epochs": -1}, sv.ConfigurationError, "epochs=-1"),
    "no budget": ({"budget": None}, sv.ConfigurationError, "needs budget="),
    "a number for a budget": ({"budget": 1.0}, sv.ConfigurationError, "give Budget"),
    "another sampling": ({"sampling": "shuffle"}, sv.ConfigurationError, "choose one of 'poisson'"),
    "another method": ({"method": "adam"}, sv.ConfigurationError, "not a method"),
    "too many blocks": ({"sampling": "single-pass", "steps": 11}, sv.ConfigurationError, "needs 330 records"),
    "records that differ": ({"records": 299}, sv.ConfigurationError, "records=299"),
    "add-remove without records": (
        {"budget": sv.Budget(epsilon=1, delta=1e-5, neighbours="add-remove")}, sv.ConfigurationError, "needs records=",
    ),
    "a ledger without a name": ({"ledger": Ledger.in_memory()}, sv.ConfigurationError, "dataset="),
    "a frozen model": ({"model": linear().requires_grad_(False)}, sv.ConfigurationError, "requires_grad|trainable"),
    "not a model": ({"model": lambda x: x}, sv.ConfigurationError, "Module"),
    "epochs in text": ({"steps": None, "epochs": "3"}, sv.ConfigurationError, "epochs='3': it must be a positive"),
    "steps that are no number": ({"steps": math.nan}, sv.ConfigurationError, "steps=nan"),
    "endless steps": ({"steps": math.inf}, sv.ConfigurationError, "steps=inf"),
    "an endless batch": ({"batch_size": math.inf}, sv.ConfigurationError, "batch_size=inf"),
    "a batch in text": ({"batch_size": "50"}, sv.ConfigurationError, "batch_size='50'"),
    "an update in text": ({"update": "x"}, sv.ConfigurationError, "update='x': give Update"),
    "the path of a ledger": ({"ledger": "x.db", "dataset": "a"}, sv.ConfigurationError, "Ledger.open"),
    "a number for a name": ({"dataset": 3}, sv.ConfigurationError, "dataset=3"),
    "the class of a method": ({"method": sv.DPSGD}, sv.ConfigurationError, "the class DPSGD is not a method"),
    "half a method": ({"method": type("Half", (), {"private": True})()}, sv.ConfigurationError, "not a method"),
    "a seed in text": ({"seed": "a"}, sv.ConfigurationError, "seed='a': a whole number is needed"),
    "records in text": (
        {"budget": sv.Budget(epsilon=1, delta=1e-5, neighbours="add-remove"), "records": "a"},
        sv.ConfigurationError, "records='a'",
    ),
    **{
        f"max_physical_batch={bad!r}": (
            {"max_physical_batch": bad}, sv.ConfigurationError, f"max_physical_batch={bad!r}: it must be a whole number"
        )
        for bad in ("a", 1.5, 0)
    },
    "a schedule that gives nothing": (
        {"update": sv.Update(schedule=NOTHING)}, sv.ConfigurationError, "rate None at step 1 of 10",
    ),
    "a schedule that fails late": (
        {"update": sv.Update(schedule=lambda fraction: 1 / (fraction - 0.5))}, sv.ConfigurationError,
        "schedule= raised ZeroDivisionError for step 6 of 10",
    ),
    "a scheduler that gives nothing": (
        {"update": sv.Update(scheduler=lambda optimizer: None)}, sv.ConfigurationError, "scheduler= raised",
    ),
    "a scheduler without end": (
        {"update": sv.Update(scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: math.inf))},
        sv.ConfigurationError, "scheduler= gives the rate inf at step 1",
    ),
    "a scheduler that needs a metric": (
        {"update": sv.Update(scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau)}, sv.ConfigurationError, "a metric",
    ),
    "a name without privacy": (
        {"method": sv.SGD(lr=0.1), "budget": None}, sv.ConfigurationError, "cannot be entered in the ledger",
    ),
    "no gradient": (
        {"method": sv.SGD(lr=0.1), "budget": None, "dataset": None, "loss": sv.losses.zero_one},
        sv.QueryError, "cannot be differentiated",
    ),
    "a smoothing that rounding swallows": (
        {"method": sv.MeZO(lr=0.1, smoothing=1e-30), "budget": None, "dataset": None},
        sv.ConfigurationError, "rounding",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_before_any_budget_is_spent(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changes, error, words = REFUSED[case]
    monkeypatch.setenv("SOTTOVOCE_LEDGER", str(tmp_path / "ledger.db"))
    if "ledger" not in changes:
        changes = {"dataset": "clinic", **changes}
    with pytest.raises(error, match=words):
        session(**changes)
    assert not (tmp_path / "ledger.db").exists() or Ledger.open(tmp_path / "ledger.db").runs() == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schedule": 0.5}, "schedule=0.5: choose one of constant"),
        ({"schedule": "cosin"}, "schedule='cosin'"),
        ({"scheduler": "step"}, "scheduler='step': give a function"),
        ({"momentum": "a"}, "momentum='a'"),
        ({"momentum": True}, "momentum=True"),
        ({"averaging": "a"}, "averaging='a'"),
        ({"averaging": math.nan}, "averaging=nan"),
        ({"weight_decay": None}, "weight_decay=None"),
        ({"weight_decay": math.inf}, "weight_decay=inf"),
    ],
)
def test_an_update_that_cannot_be_is_refused_when_it_is_made(settings: dict[str, Any], words: str):
    with pytest.raises(sv.ConfigurationError, match=words):
        sv.Update(**settings)


def test_numbers_of_numpy_are_numbers():
    third: Any = np.float32(1 / 3)
    count: Any = np.int64(2)
    loop = session(
        method=sv.DPZero(lr=third, clip=third, queries=count), steps=np.int64(2),
        batch_size=np.float64(30), update=sv.Update(momentum=third), max_physical_batch=np.int32(64),
    )  # fmt: skip
    assert len(list(loop)) == 2
    assert [type(value) for value in vars(loop.method).values()][:4] == [float, float, float, int]


def test_a_bug_in_the_user_s_loss_shows_with_its_own_traceback():
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0] @ torch.ones(3, 3))

    with pytest.raises(Exception) as caught:
        session(loss=loss)
    assert any(entry.name == "loss" for entry in caught.traceback) or caught.value.__cause__ is not None


def test_delta_above_one_over_records_is_a_warning_in_the_statement():
    with pytest.warns(sv.PrivacyWarning, match=r"above 1/records"):
        loop = session(budget=sv.Budget(epsilon=1.0, delta=0.01))
    assert "above 1/records" in loop.statement.warnings[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session()


def test_the_statement_says_what_it_must():
    loop = session(dataset=None)
    for _ in loop:
        pass
    text = str(loop.statement)
    for words in ("(2, 0.0001)", "zero-out", "poisson", "multiplier", "grid", "PLD", "not tracked across runs",
                  "Not covered", "number of records, 300"):  # fmt: skip
        assert words in text, words
    saved = json.loads(loop.statement.to_json())
    assert saved["schema"] == 1 and saved["private"] is True and saved["grids"] == [{"bound": 1.0, "grid": 2.0**-24}]


def test_the_statement_says_what_else_is_taken_for_public():
    run = fit(validate=DATA, example=(torch.zeros(4), 0), evaluate_every=1)
    assert "the 300 records given as validate= are public; exact metrics on them are" in str(run.statement)
    assert "the record given as example= is public" in run.statement.assumed
    assert run.statement.assumed == (*session(example=(torch.zeros(4), 0)).statement.assumed, run.statement.assumed[-1])
    assert not any("example=" in text or "validate=" in text for text in fit().statement.assumed)
    plain = fit(validate=COPY, method=sv.SGD(lr=1.0), budget=None)
    assert not plain.statement.private and not plain.statement.assumed


def test_what_the_steps_of_an_unfinished_run_cost_is_not_called_a_guarantee():
    loop = session()
    next(loop)
    assert "after 1 of 10 steps, had just these been planned" in str(loop.statement)
    for _ in loop:
        pass
    assert "after 10 of 10 steps\n" in str(loop.statement)


@pytest.mark.parametrize("method", [sv.DPSGD(lr=0.1), sv.DPZero(lr=0.1)])
def test_under_add_remove_row_position_rounding_is_always_assumed(method: Any):
    budget = sv.Budget(epsilon=1.0, delta=1e-5, neighbours="add-remove")
    assert "row-position rounding" in str(session(method=method, budget=budget, records=250, batch_size=25).statement)
    assert "row-position rounding" not in str(session(method=method).statement)


def test_under_add_remove_the_length_of_the_data_is_nowhere():
    budget = sv.Budget(epsilon=1.0, delta=1e-5, neighbours="add-remove")
    texts: list[str] = []
    for count in (300, 299):
        loop = session(private=(INPUTS[:count], TARGETS[:count]), budget=budget, records=250, batch_size=25)
        for _ in loop:
            pass
        texts.append(str(loop.statement) + loop.statement.to_json())
    assert texts[0] == texts[1]
    assert "300" not in texts[0]


def test_a_testing_switch_marks_everything():
    with sv.testing.no_noise():
        loop = session()
    for _ in loop:
        pass
    assert loop.epsilon() == math.inf
    assert str(loop.statement).startswith("NOT PRIVATE") and "no_noise" in str(loop.statement)
    assert json.loads(loop.statement.to_json())["epsilon"] is None


def test_a_run_is_saved(tmp_path: Path):
    run = sv.fit(
        linear(), sv.losses.cross_entropy, private=DATA, method=sv.DPZero(lr=0.01), budget=BUDGET, steps=4,
        batch_size=30, validate=COPY,
    )  # fmt: skip
    folder = run.save(tmp_path / "run")
    assert sorted(path.name for path in folder.iterdir()) == [
        "history.csv", "model.safetensors", "statement.json", "statement.txt",
    ]  # fmt: skip
    from safetensors.torch import load_model

    other = linear(1)
    load_model(other, str(folder / "model.safetensors"))
    for ours, theirs in zip(run.model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def fit(**changes: Any) -> sv.Run:
    arguments: dict[str, Any] = {
        "private": COPY, "method": sv.DPSGD(lr=1.0), "budget": BUDGET, "steps": 2, "batch_size": 30, **changes,
    }  # fmt: skip
    model = arguments.pop("model", None) or linear()
    return sv.fit(model, arguments.pop("loss", sv.losses.cross_entropy), **arguments)


def raising(model: nn.Module, batch: Any) -> Tensor:
    if bool((batch[0] == INPUTS[-1]).all(dim=1).any()):
        raise KeyError("the last record")
    return sv.losses.cross_entropy(model, batch)


class Uneven(Items):
    def __getitem__(self, index: int) -> Any:
        return INPUTS[index, : 4 - (index == 5)], int(TARGETS[index])


NOT_MEASURED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "the private records": ({"validate": COPY}, sv.DataError, "validate= and private= read the same items.*as copies"),
    "some of them": ({"validate": (COPY[0][5:9], TARGETS[5:9])}, sv.DataError, "validate= and private= share memory"),
    "nothing": ({"validate": (INPUTS[:0], TARGETS[:0])}, sv.DataError, "validate= is empty"),
    "an empty data set": ({"validate": Items(0)}, sv.DataError, "validate= is empty"),
    "another width": (
        {"validate": (INPUTS[:, :3], TARGETS)}, sv.ConfigurationError,
        r"'loss' cannot be computed.*records are \(float32\[3\], int64\[\]\), those of private= are \(float32\[4\]",
    ),
    "another type": ({"validate": (INPUTS.double(), TARGETS)}, sv.ConfigurationError, "float64"),
    "no targets": ({"validate": INPUTS}, sv.ConfigurationError, r"records are float32\[4\], those of"),
    "items that differ": ({"validate": Uneven(300)}, sv.DataError, "item 5 of validate= is"),
    "a path": ({"validate": "test.csv"}, sv.DataError, "read the file"),
    "a mean": ({"validate": DATA, "metrics": {"m": mean_loss}}, sv.ConfigurationError, "one value for each record"),
    "an error in the last batch": (
        {"validate": DATA, "metrics": {"m": raising}}, sv.ConfigurationError, "'m' cannot be computed.*KeyError",
    ),
    "a list of metrics": ({"validate": DATA, "metrics": [mean_loss]}, sv.ConfigurationError, "give a dict from names"),
    "a function alone": ({"validate": DATA, "metrics": mean_loss}, sv.ConfigurationError, "give a dict from names"),
    "text for a metric": ({"validate": DATA, "metrics": {"a": "b"}}, sv.ConfigurationError, "'a' is 'b'"),
    "a column's name": ({"validate": DATA, "metrics": {"step": raising}}, sv.ConfigurationError, "'step' and"),
    "metrics of nothing": ({"metrics": {"loss": raising}}, sv.ConfigurationError, "without validate="),
    "words for a count": ({"validate": DATA, "evaluate_every": "a"}, sv.ConfigurationError, "evaluate_every='a'"),
    "text for a function": ({"salvage": "runs/first"}, sv.ConfigurationError, "salvage='runs/first': give a function"),
    "half a step": ({"validate": DATA, "evaluate_every": 1.5}, sv.ConfigurationError, "evaluate_every=1.5"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_MEASURED)
def test_what_cannot_be_measured_is_found_before_the_first_step(case: str, tmp_path: Path):
    changes, error, words = NOT_MEASURED[case]
    ledger = Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(error, match=words):
        fit(dataset="clinic", ledger=ledger, **changes)
    assert ledger.runs() == []


def test_validation_data_come_in_the_forms_of_private_data():
    expected = fit(validate=DATA, method=sv.SGD(lr=1.0), budget=None).final["loss"]
    for validate in (TensorDataset(INPUTS, TARGETS), Items(300), [INPUTS.numpy(), TARGETS.numpy()]):
        assert fit(validate=validate, method=sv.SGD(lr=1.0), budget=None).final["loss"] == expected


def test_measuring_leaves_the_model_and_the_generators_alone():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    model[1](torch.randn(50, 8))
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    fit(model=model, validate=DATA, method=sv.DPSGD(lr=0.0))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in model.modules())


def test_evaluate_refuses_what_has_no_mean_over_records():
    model = linear()
    exact = float(sv.losses.accuracy(model, DATA).mean())
    assert sv.evaluate(model, sv.losses.accuracy, Items(300), rows=7) == pytest.approx(exact)
    with pytest.raises(sv.ConfigurationError, match="one value for each record"):
        sv.evaluate(model, mean_loss, DATA)
    with pytest.raises(sv.ConfigurationError, match="one value for each record"):
        sv.evaluate(model, lambda network, batch: network(batch[0]), DATA)
    with pytest.raises(sv.DataError, match="is empty"):
        sv.evaluate(model, sv.losses.accuracy, (INPUTS[:0], TARGETS[:0]))


def test_what_was_released_before_an_interruption_is_not_lost():
    saved: list[sv.Run] = []

    def interrupt(model: nn.Module, batch: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 3:  # tried, measured after step 1, and now after step 2
            raise KeyboardInterrupt
        return sv.losses.cross_entropy(model, batch)

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        fit(validate=DATA, metrics={"m": interrupt}, steps=5, salvage=saved.append)
    (run,) = saved
    assert run.statement.steps_run == 2 and [row["step"] for row in run.history] == [1]
    with pytest.raises(sv.ConfigurationError):
        fit(validate=DATA, metrics={"m": mean_loss}, salvage=saved.append)
    assert len(saved) == 1, "where nothing was released there is nothing to keep"


def test_training_flags_are_as_they_were():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    model[1].train()
    for _ in session(model=model, method=sv.DPZero(lr=0.01)):
        pass
    assert [part.training for part in model] == [True, True, True]


@pytest.mark.parametrize("sampling", ["poisson", "full-batch"])
def test_noise_and_batches_cannot_be_seeded(sampling: str):
    """The same public seed, the same global seeds: two runs share their directions and nothing else."""
    released: list[list[float]] = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        size = 30 if sampling == "poisson" else None
        loop = session(method=sv.DPZero(lr=0.0), seed=3, sampling=sampling, batch_size=size)
        released.append([float(step.released) for step in loop])
    assert not set(released[0]) & set(released[1])
