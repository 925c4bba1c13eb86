"""Ways out of the trusted room that an audit tried: each is shut."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import METHODS, NullRecord, data, model
from torch import Tensor, nn

import sottovoce as sv
from sottovoce.inputs import as_records
from sottovoce.privacy.curator import Curator
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.plan import Plan, RunningSum, Stage
from sottovoce.privacy.sampling import FullBatch, SinglePass
from sottovoce.privacy.statement import state

BUDGET = sv.Budget(epsilon=1.0, delta=1e-3)
VICTIM, MARK = 17, 5.0


def marked() -> tuple[Tensor, Tensor]:
    inputs, targets = data()
    inputs[VICTIM] = MARK
    return inputs, targets


def victim_in(inputs: Tensor) -> bool:
    return bool((inputs == MARK).all(dim=-1).any())


def sums(loss: Any, private: Any, method: str = "DPZero", **options: Any) -> list[Tensor]:
    with sv.testing.fixed_entropy("escape"), sv.testing.expose_answers():
        session = sv.Session(
            model(),
            loss,
            private=private,
            method=METHODS[method],
            budget=BUDGET,
            sampling="full-batch",
            steps=2,
            **options,
        )
        for _ in session:
            pass
    return session.exposed


class Panic(BaseException):
    """What a library written in another language raises."""


def test_an_error_outside_the_usual_family_does_not_leave():
    class Loss(NullRecord):
        def __call__(self, network: nn.Module, batch: Any) -> Tensor:
            if victim_in(batch[0]):
                raise Panic(f"bad record {batch[0]}")
            return super().__call__(network, batch)

    nulled = marked()
    nulled[0][VICTIM] = 0
    for one, other in zip(sums(Loss(), marked()), sums(NullRecord(), nulled), strict=True):
        assert torch.equal(one, other)


def test_what_fails_inside_the_room_leaves_without_words_cause_or_variables(monkeypatch: pytest.MonkeyPatch):
    def explode(*_: Any, **__: Any) -> Tensor:
        raise MemoryError("row 17 has 5.0 in it")

    session = sv.Session(
        model(), NullRecord(), private=data(), method=METHODS["DPZero"], budget=BUDGET, batch_size=12, steps=3
    )
    monkeypatch.setattr("sottovoce.privacy.evaluation.clipped_sum", explode)
    with pytest.raises(sv.PrivacyError, match="withheld") as caught:
        next(iter(session))
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    for entry in caught.traceback:
        assert not {"indices", "records", "sums", "kept", "rows", "total"} & set(entry.locals)


def test_an_interrupt_leaves_without_the_room_s_frames(monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: Any, **__: Any) -> Tensor:
        raise KeyboardInterrupt("private words")

    session = sv.Session(
        model(), NullRecord(), private=data(), method=METHODS["DPZero"], budget=BUDGET, batch_size=12, steps=3
    )
    monkeypatch.setattr("sottovoce.privacy.evaluation.clipped_sum", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        next(iter(session))
    assert caught.value.args == () and caught.value.__context__ is None


def test_a_loss_that_writes_into_its_batch_is_refused():
    """One record that raises would have the others asked again, on what was made of them."""

    def loss(network: nn.Module, batch: Any) -> Tensor:
        batch[0].mul_(0.5)
        return sv.losses.cross_entropy(network, batch)

    with pytest.raises(sv.QueryError, match="wrote into its batch"):
        sums(loss, data())


def test_a_random_loss_draws_the_same_for_a_record_whoever_raises():
    class Loss(NullRecord):
        def __init__(self, raises: bool) -> None:
            self.raises = raises

        def __call__(self, network: nn.Module, batch: Any) -> Tensor:
            inputs, targets = batch
            if self.raises and victim_in(inputs):
                raise ValueError
            values = super().__call__(network, (torch.where(inputs == MARK, 0.0, inputs), targets))
            null = (inputs == MARK).all(dim=1) | (inputs == 0).all(dim=1)
            return torch.where(null, values, values * (1 + torch.rand(len(inputs))))

    after: list[tuple[float, float, float]] = []
    answers: list[list[Tensor]] = []
    for raises in (True, False):
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers.append(sums(Loss(raises), marked()))
        after.append((float(torch.rand(())), float(np.random.rand()), random.random()))
    assert after[0] == after[1], "the user's generators tell nothing"
    for one, other in zip(*answers, strict=True):
        assert torch.equal(one, other)


class Draws(torch.utils.data.Dataset[Any]):
    """Each record adds what it draws: the number of draws depends on the record, as a random crop's does."""

    def __init__(self, victim: str) -> None:
        self.victim = victim

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Tensor:
        if index == 7 and self.victim == "null":
            return torch.zeros(1)
        if index == 7 and self.victim == "unreadable":
            random.random()
            raise ValueError
        drawn = [random.random() + float(np.random.rand()) + float(torch.rand(())) for _ in range(1 + index % 3)]
        return torch.tensor([drawn[-1] / 3])


class Itself:
    name, width = "itself", 1

    def __call__(self, records: Tensor) -> Tensor:
        return records.double()


def drawn_sum(victim: str, steps: int = 1) -> list[Tensor]:
    with sv.testing.fixed_entropy("draws"), sv.testing.expose_answers():
        plan = Plan((Stage(sampler=FullBatch(steps=steps, records=20)),))
        curator = Curator(as_records(Draws(victim), torch.zeros(1)), plan, BUDGET)
        for batch in curator.batches():
            batch.release(Itself(), bound=1.0)
    return curator.exposed


def test_what_an_item_draws_no_other_item_feels():
    """Otherwise one record's number of draws would move all others' contributions, far beyond its bound."""
    null, unreadable, full = drawn_sum("null"), drawn_sum("unreadable"), drawn_sum("full")
    assert torch.equal(null[0], unreadable[0])
    assert 0 < int((full[0] - null[0]).abs()) <= 2**24


def test_every_answer_has_draws_of_its_own():
    one, other = drawn_sum("full", steps=2)
    assert not torch.equal(one, other)


def test_the_draws_start_from_a_secret(monkeypatch: pytest.MonkeyPatch):
    """A public start would tell whose slot moved, and with it who else was sampled."""
    plan = Plan((Stage(sampler=FullBatch(steps=1, records=20)),))
    answers: list[float] = []
    for _ in range(2):
        with sv.testing.no_noise():
            curator = Curator(as_records(Draws("full"), torch.zeros(1)), plan, BUDGET)
            answers += [float(batch.release(Itself(), bound=1.0)) for batch in curator.batches()]
    assert answers[0] != answers[1]


def test_no_other_device_s_generator_is_touched(monkeypatch: pytest.MonkeyPatch):
    """`torch.manual_seed` would leave the last micro-batch's number, hence the batch's size, on every other device."""

    def never(*_: Any) -> None:
        raise AssertionError("all devices were seeded")

    monkeypatch.setattr(torch, "manual_seed", never)
    drawn_sum("full")


def test_two_passes_at_once_reserve_once(monkeypatch: pytest.MonkeyPatch):
    ledger = Ledger.in_memory()
    original, started = ledger.reserve, threading.Barrier(2, timeout=5)

    def slow(**arguments: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            started.wait(0.5)
        return original(**arguments)

    monkeypatch.setattr(ledger, "reserve", slow)
    plan = Plan((Stage(sampler=FullBatch(steps=1, records=20)),))
    curator = Curator(as_records(torch.rand(20, 1)), plan, BUDGET, ledger=ledger)
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.extend(batch.release(Itself(), bound=1.0) for batch in curator.batches())
        except sv.PlanViolation as error:
            answers.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([each for each in answers if isinstance(each, Tensor)]) == 1
    assert len(ledger.runs()) == 1


def test_the_statement_tells_a_running_sum_s_grid():
    plan = Plan((Stage(sampler=SinglePass(sizes=(4, 4)), shares=(), running_sum=RunningSum(sensitivities=(1.0, 1.0))),))
    curator = Curator(as_records(torch.zeros(8, 1)), plan, BUDGET)
    next(curator.batches()).running_sum(Itself(), bound=4.0)
    assert state(curator).grids == ({"bound": 1.0, "grid": 2.0**-24},)


@pytest.mark.parametrize("kind", ["attribute", "list", "dict"])
def test_a_model_that_stores_activations_is_refused(kind: str):
    class Storing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)
            self.seen: Any = [] if kind == "list" else {}

        def forward(self, inputs: Tensor) -> Tensor:
            if kind == "attribute":
                self.last = inputs
            elif kind == "list":
                self.seen.append(inputs)
            else:
                self.seen["last"] = inputs
            return self.layer(inputs)

    with pytest.raises(sv.QueryError, match=r"last|seen"):
        sv.Session(
            Storing(), NullRecord(), private=data(), method=METHODS["DPZero"], budget=BUDGET, batch_size=12, steps=3
        )


def test_items_that_warn_are_not_heard(recwarn: pytest.WarningsRecorder):
    class Items(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 48

        def __getitem__(self, index: int) -> Any:
            if index == VICTIM:
                warnings.warn("record 17 is constant", stacklevel=1)
            inputs, targets = data()
            return inputs[index], targets[index]

    example = (torch.zeros(5), torch.tensor(0))
    sums(NullRecord(), Items(), example=example)
    assert not [each for each in recwarn.list if "constant" in str(each.message)]


class ItemsOf(torch.utils.data.Dataset[Any]):
    """48 records of one form, some of which cannot be read."""

    def __init__(self, value: float, unreadable: range) -> None:
        self.value, self.unreadable = value, unreadable

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        if index in self.unreadable:
            warnings.warn(f"record {index} is odd", stacklevel=1)
            torch.rand(3)
            raise Panic(f"cannot read record {index}")
        return torch.full((5,), self.value), torch.tensor(0)


@pytest.mark.parametrize("unreadable", [range(0), range(3), range(48)])
@pytest.mark.parametrize("value", [0.0, 3.0, float("nan")])
def test_the_form_of_items_is_the_example_s(value: float, unreadable: range, recwarn: pytest.WarningsRecorder):
    """Whatever is in them and whichever can be read, the same is accepted and refused, and nothing shows."""
    state, items = torch.get_rng_state(), ItemsOf(value, unreadable)
    for example in ((torch.ones(5), torch.tensor(1)), torch.ones(4), {"x": torch.ones(2).double()}):
        kept = as_records(items, example).example
        assert repr(kept) == repr(example)
    with pytest.raises(sv.DataError, match="give one public record of that form as example="):
        as_records(items)
    assert torch.equal(state, torch.get_rng_state())
    assert not recwarn.list


def test_a_key_too_many_in_the_example_is_refused():
    with pytest.raises(sv.DataError, match="give one record of their form"):
        as_records({"x": torch.zeros(5, 2)}, {"x": torch.zeros(2), "y": torch.zeros(())})


def test_a_question_inside_a_question_is_refused():
    """A query that asks again, or draws the next batch, would mix two batches' answers."""
    curator = Curator(as_records(torch.rand(20, 1)), Plan((Stage(sampler=FullBatch(steps=3, records=20)),)), BUDGET)
    batches = curator.batches()
    batch = next(batches)

    class Nested:
        name, width = "nested", 1

        def __call__(self, records: Tensor) -> Tensor:
            next(batches)
            return records.double()

    with pytest.raises(sv.PlanViolation, match="one question at a time"):
        batch.release(Nested(), bound=1.0)


def test_float32_and_tensor_bounds_become_floats():
    curator = Curator(as_records(torch.rand(20, 1)), Plan((Stage(sampler=FullBatch(steps=3, records=20)),)), BUDGET)

    class Ask:
        name, width = "ask", 1

        def __call__(self, records: Tensor) -> Tensor:
            return records.double()

    for batch, bound in zip(curator.batches(), (np.float32(0.1), torch.tensor(0.3), 1), strict=True):
        batch.release(Ask(), bound=bound)  # pyright: ignore[reportArgumentType]
    assert all(type(bound) is float for bound in curator.grids)


def test_a_leaf_of_nothing_but_rounding_is_refused():
    """A bound far below the window's grid would clip every record to nothing, and once gave 0 / 0."""
    plan = Plan((Stage(sampler=SinglePass(sizes=(4, 4)), shares=(), running_sum=RunningSum(sensitivities=(1.0, 1.0))),))
    curator = Curator(as_records(torch.zeros(8, 1)), plan, BUDGET)

    class Ask:
        name, width = "ask", 1

        def __call__(self, records: Tensor) -> Tensor:
            return records.double()

    with pytest.raises(sv.PlanViolation, match="nothing but rounding"):
        next(curator.batches()).running_sum(Ask(), bound=1e-9)


def test_a_named_data_set_needs_a_ledger_that_lasts():
    with pytest.raises(sv.LedgerConflict, match="ledger in a file"):
        sv.Session(
            model(), NullRecord(), private=data(), method=METHODS["DPZero"], budget=BUDGET, batch_size=12, steps=3,
            dataset="clinic", ledger=Ledger.in_memory(),
        )  # fmt: skip


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_inside_a_transaction_does_not_make_later_ones_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """After it, what a second connection sees is what was promised."""
    from sottovoce.privacy.events import Event

    ledger = Ledger.open(tmp_path / "ledger.db")
    events = [Event(sampling="full-batch", noise_multiplier=50.0, steps=5)]
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ledger, "_append", interrupt)
        ledger.reserve(budget=BUDGET, events=events)
    reservation = ledger.reserve(budget=BUDGET, events=events)
    reservation.lease(3)
    assert not ledger._connection.in_transaction
    other = Ledger.open(tmp_path / "ledger.db")
    assert [(run.mark, run.steps_planned) for run in other.runs()] == [(3, 5)]


def test_what_a_loss_logs_is_not_heard(caplog: pytest.LogCaptureFixture):
    def chatty(net: nn.Module, batch: Any) -> Tensor:
        if victim_in(batch[0]):
            logging.getLogger("library").critical("odd input: %s", batch[0].max())
        return sv.losses.cross_entropy(net, batch)

    sums(chatty, marked())
    assert caplog.text == ""
    logging.getLogger("library").critical("heard again")
    assert "heard again" in caplog.text


def test_torch_tells_nothing_of_records_on_standard_error(capfd: pytest.CaptureFixture[str]):
    """An operation without a batching rule makes torch itself write, past Python's warnings, at each evaluation."""
    library = torch.library.Library("sottovoce_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")

    class Twice(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return torch.ops.sottovoce_test.twice(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return 2 * gradients[0]

    def loss(net: nn.Module, batch: Any) -> Tensor:
        return sv.losses.cross_entropy(net, (Twice.apply(batch[0]), batch[1]))

    warned = torch._C._functorch._set_vmap_fallback_warning_enabled  # pyright: ignore
    warned(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.func.vmap(torch.ops.sottovoce_test.twice)(torch.ones(3))
    heard = capfd.readouterr().err
    sums(loss, marked(), "DPSGD")
    assert capfd.readouterr().err == ""
    if "batching rule" not in heard:
        pytest.skip("this torch says nothing where a batching rule is missing")
