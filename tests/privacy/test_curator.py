"""The curator: what leaves it, when, and what is refused before the data is looked at."""

import math
import pickle

import numpy as np
import pytest
import torch
from fakes import BUDGET, SAMPLERS, Ask, curator, generator, itself

import sottovoce as sv
from sottovoce.inputs import as_records
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.curator import Curator
from sottovoce.privacy.entropy import OperatingSystemEntropy
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.plan import Plan, RunningSum, Stage
from sottovoce.privacy.sampling import FullBatch, Poisson, SinglePass
from sottovoce.privacy.window import Window

DATA = torch.rand(60, 3, generator=generator())


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_answer_without_noise_is_the_mean_over_the_public_divisor(name: str):
    with sv.testing.no_noise(), sv.testing.fixed_entropy(1):
        runner = curator(DATA, SAMPLERS[name](60))
        members = list(SAMPLERS[name](60).batches(60, runner._entropy.fork("sampler", 0)))
        for step, batch in enumerate(runner.batches()):
            answer = batch.release(itself(3), bound=2.0)
            expected = DATA[members[step]].double().sum(0) / SAMPLERS[name](60).divisor(step)
            assert torch.allclose(answer, expected, atol=60 * 2.0**-23)


def test_the_noise_has_the_calibrated_standard_deviation():
    """4,000 answers about an empty question: the variance within 5.5 standard errors (false alarm 4e-8)."""
    sampler = FullBatch(steps=400, records=60)
    runner = curator(DATA, sampler)
    nothing = Ask(lambda records: torch.zeros(len(records), 10, dtype=torch.float64), 10)
    answers = torch.cat([batch.release(nothing, bound=3.0) for batch in runner.batches()])
    sigma = runner.noise_multiplier * 3.0 / 60
    assert abs(float(answers.square().mean()) / sigma**2 - 1) < 5.5 * math.sqrt(2 / 4000)


def test_a_share_raises_the_noise_and_two_shares_cost_what_one_release_does():
    """Variance of answers of share 0.25 is four times that of a whole release; false alarm 4e-8."""
    sampler = FullBatch(steps=400, records=60)
    whole = curator(DATA, sampler)
    shared = Curator(as_records(DATA), Plan((Stage(sampler=sampler, shares=(0.25, 0.75)),)), BUDGET)
    assert whole.noise_multiplier == shared.noise_multiplier
    nothing = Ask(lambda records: torch.zeros(len(records), 10, dtype=torch.float64), 10)
    answers = torch.cat([batch.release(nothing, bound=1.0, share=0.25) for batch in shared.batches()])
    sigma = whole.noise_multiplier / 60
    assert abs(float(answers.square().mean()) / (4 * sigma**2) - 1) < 5.5 * math.sqrt(2 / 4000)


@pytest.mark.parametrize("share", [0.5, 1.0, 0.2])
def test_a_release_that_is_not_in_the_plan_raises_before_it_looks_at_data(share: float):
    plan = Plan((Stage(sampler=FullBatch(steps=2, records=60), shares=(0.3, 0.3)),))
    runner = Curator(as_records(DATA), plan, BUDGET)
    asked: list[int] = []
    query = Ask(lambda records: asked.append(1) or records[:, :1].double())
    batch = next(runner.batches())
    with pytest.raises(sv.PlanViolation, match="not in the plan"):
        batch.release(query, bound=1.0, share=share)
    assert not asked


def test_each_planned_share_is_released_once():
    plan = Plan((Stage(sampler=FullBatch(steps=1, records=60), shares=(0.5, 0.5)),))
    batch = next(Curator(as_records(DATA), plan, BUDGET).batches())
    batch.release(itself(), bound=1.0, share=0.5)
    batch.release(itself(), bound=1.0, share=0.5)
    with pytest.raises(sv.PlanViolation, match="left on this batch: nothing"):
        batch.release(itself(), bound=1.0, share=0.5)


def test_shares_above_one_are_no_plan():
    with pytest.raises(sv.ConfigurationError, match="all together at most 1"):
        Stage(sampler=FullBatch(steps=1, records=60), shares=(0.5, 0.6))


def test_an_old_batch_and_a_closed_run_answer_nothing():
    runner = curator(DATA, FullBatch(steps=3, records=60))
    batches = runner.batches()
    first, _second = next(batches), next(batches)
    with pytest.raises(sv.PlanViolation, match="this batch is over"):
        first.release(itself(), bound=1.0)
    runner.close()
    with pytest.raises(sv.PlanViolation, match="this batch is over"):
        _second.release(itself(), bound=1.0)
    with pytest.raises(sv.PlanViolation, match="handed out already"):
        next(runner.batches())


def test_there_is_no_batch_without_a_reservation_and_no_release_without_a_lease():
    class Refusing(Ledger):
        pass

    ledger = Ledger.in_memory()
    runner = curator(DATA, FullBatch(steps=3, records=60), ledger=ledger)
    batch = next(runner.batches())
    assert runner._reservation is not None
    runner._reservation.settle(1)  # as if another process had settled the run
    with pytest.raises(sv.LedgerConflict, match="no live lease"):
        batch.release(itself(), bound=1.0)


def test_the_lease_is_durable_before_the_batch_exists():
    ledger = Ledger.in_memory()
    runner = curator(DATA, FullBatch(steps=5, records=60), ledger=ledger)
    for step, _batch in enumerate(runner.batches()):
        assert ledger.runs()[0].mark >= step + 1
    assert ledger.runs()[0].steps_charged == 5


def test_stopping_early_charges_what_was_run():
    ledger = Ledger.in_memory()
    runner = curator(DATA, FullBatch(steps=50, records=60), ledger=ledger)
    batches = runner.batches()
    for _ in range(7):
        next(batches).skip()
    runner.close()
    assert ledger.runs()[0].steps_charged == 7
    assert runner.epsilon() < runner.epsilon(50) <= BUDGET.epsilon


def test_handles_are_opaque():
    runner = curator(DATA, FullBatch(steps=1, records=60))
    batch = next(runner.batches())
    for secret in (runner, batch, runner._records):
        assert repr(secret).endswith("(private)")
        assert not hasattr(secret, "__dict__")
        with pytest.raises(TypeError, match="not copied or pickled"):
            pickle.dumps(secret)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_bound_must_be_positive_and_finite(bound: float):
    batch = next(curator(DATA, FullBatch(steps=1, records=60)).batches())
    with pytest.raises(sv.ConfigurationError, match="bound"):
        batch.release(itself(), bound=bound)


def test_errors_leave_without_the_curator_s_frames():
    batch = next(curator(DATA, FullBatch(steps=1, records=60)).batches())
    with pytest.raises(sv.PlanViolation) as caught:
        batch.release(itself(), bound=1.0, share=0.5)
    for entry in caught.traceback[1:]:
        assert not {"indices", "records", "sums", "kept", "rows"} & set(entry.locals)


def test_a_query_of_the_wrong_shape_is_found_on_the_example():
    seen: list[float] = []

    def mean(records: torch.Tensor) -> torch.Tensor:
        seen.append(float(records.abs().max()))
        return records.mean()

    batch = next(curator(DATA, FullBatch(steps=1, records=60)).batches())
    with pytest.raises(sv.QueryError, match=r"of shape \(64, 1\)"):
        batch.release(Ask(mean), bound=1.0)
    assert seen == [0.0], "only the zero example was seen"


def test_rehearsal_enforces_the_plan_and_reads_no_record():
    seen: list[float] = []
    query = Ask(lambda records: seen.append(float(records.max())) or records[:, :1].double())
    runner = curator(DATA, FullBatch(steps=4, records=60))
    runner.rehearse(lambda batch: batch.release(query, bound=1.0))
    assert seen == [0.0]
    with pytest.raises(sv.PlanViolation):
        runner.rehearse(lambda batch: [batch.release(query, bound=1.0) for _ in range(2)])
    assert runner.steps_run == 0


def test_an_empty_batch_releases_pure_noise():
    runner = curator(torch.rand(5, 1), Poisson(rate=1e-9, steps=5, records=5))
    answers = [float(batch.release(itself(), bound=1.0)) for batch in runner.batches()]
    assert len(set(answers)) == 5


def test_testing_switches_are_read_once_and_mark_the_run():
    with sv.testing.no_noise():
        runner = curator(DATA, FullBatch(steps=1, records=60))
    assert runner.switches == ("no_noise",)
    assert runner.epsilon() == math.inf
    assert curator(DATA, FullBatch(steps=1, records=60)).switches == ()


def test_a_named_data_set_refuses_the_testing_switches():
    for switch in (sv.testing.no_noise(), sv.testing.fixed_entropy(3), sv.testing.expose_answers()):
        with switch, pytest.raises(sv.LedgerConflict, match="testing switches"):
            curator(DATA, FullBatch(steps=1, records=60), dataset="clinic")


def test_answers_are_exposed_under_the_switch_alone():
    for switch, count in ((sv.testing.expose_answers(), 1), (sv.testing.fixed_entropy(1), 0)):
        with switch:
            runner = curator(DATA, FullBatch(steps=1, records=60))
        next(runner.batches()).release(itself(), bound=1.0)
        assert len(runner.exposed) == count


def test_add_remove_with_disjoint_blocks_is_refused():
    with pytest.raises(sv.ConfigurationError, match="no meaning for disjoint blocks"):
        curator(DATA, SinglePass(sizes=(10,)), Budget(epsilon=1, delta=1e-5, neighbours="add-remove"))


def test_a_replace_one_guarantee_needs_twice_the_noise_of_zero_out():
    one = curator(DATA, FullBatch(steps=9, records=60)).noise_multiplier
    two = curator(DATA, FullBatch(steps=9, records=60), Budget(epsilon=1, delta=1e-5, neighbours="replace-one"))
    assert two.noise_multiplier == pytest.approx(2 * one, rel=1e-6)


@pytest.mark.parametrize("noise", ["fenwick", "toeplitz"])
def test_running_sums_are_prefix_sums(noise):
    """Two windows of four leaves with unequal blocks; a skipped batch counts as zero."""
    sizes = (10, 5, 5, 5) * 2
    plan = Plan((Stage(sampler=SinglePass(sizes=sizes), shares=(), running_sum=RunningSum(
        sensitivities=(0.1, 0.2, 0.2, 0.2), noise=noise)),))  # fmt: skip
    with sv.testing.no_noise(), sv.testing.fixed_entropy(5):
        runner = Curator(as_records(DATA), plan, BUDGET)
        members = list(plan.stages[0].sampler.batches(60, runner._entropy.fork("sampler", 0)))
        for step, batch in enumerate(runner.batches()):
            if step == 2:
                batch.skip()
                continue
            prefix = batch.running_sum(itself(), bound=1.0)
            first = step - step % 4
            expected = sum(float(DATA[members[s], 0].double().mean()) for s in range(first, step + 1) if s != 2)
            assert float(prefix) == pytest.approx(expected, abs=1e-5)
    with_noise = Curator(as_records(DATA), plan, BUDGET)
    answers = [float(batch.running_sum(itself(), bound=1.0)) for batch in with_noise.batches()]
    assert len(set(answers)) == 8


def test_a_leaf_beyond_its_planned_sensitivity_is_refused_and_so_is_a_second_one():
    plan = Plan((Stage(sampler=SinglePass(sizes=(10, 10)), shares=(), running_sum=RunningSum(
        sensitivities=(0.1, 0.1))),))  # fmt: skip
    batch = next(Curator(as_records(DATA), plan, BUDGET).batches())
    with pytest.raises(sv.PlanViolation, match=r"was planned with 0\.1"):
        batch.running_sum(itself(), bound=1.5)
    batch.running_sum(itself(), bound=1.0)
    with pytest.raises(sv.PlanViolation, match="in its running sum already"):
        batch.running_sum(itself(), bound=1.0)


def test_a_leaf_that_was_skipped_or_failed_keeps_its_place():
    """The place decides how much of the noise covers a leaf: one that moved up would be less protected."""
    window = Window(0, RunningSum(sensitivities=(1.0, 1.0, 5.0, 5.0)), 1, 9.0, OperatingSystemEntropy())
    window.take(0, 1, 1.0)  # and whatever was to give its answer failed
    window.take(2, 1, 5.0)
    window.add(np.ones(1, dtype=np.int64), noiseless=False)
    assert window._sums.prefix == 3


def test_running_sums_need_disjoint_blocks():
    with pytest.raises(sv.ConfigurationError, match="SinglePass"):
        Stage(sampler=FullBatch(steps=2, records=60), shares=(), running_sum=RunningSum(sensitivities=(0.1, 0.1)))


def test_padding_contributes_nothing():
    """An example that would count a great deal, in 10 records padded to 16 rows."""
    data = torch.full((10, 1), 0.25)
    example = torch.tensor([1.0])
    with sv.testing.no_noise():
        runner = Curator(as_records(data, example), Plan((Stage(sampler=FullBatch(steps=1, records=10)),)), BUDGET)
    assert float(next(runner.batches()).release(itself(), bound=1.0)) == 0.25
