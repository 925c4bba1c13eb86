"""minimize(): what a numerical user relies on, and what no record can make it tell."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds

import sottovoce as sv
from sottovoce.minimize import minimize

BUDGET = sv.Budget(epsilon=1.0, delta=1e-5)
TARGET = np.array([0.4, -0.3])
METHODS = ("single-pass", "tree", "multi-pass", "multi-pass-differences")


def records(count=2000, seed=0):
    return TARGET + 0.1 * np.random.default_rng(seed).normal(size=(count, 2))


def distance(points, given):
    return np.linalg.norm(points - given, axis=1)


def one_by_one(x, record):
    assert x.shape == record.shape == (2,)
    return float(np.linalg.norm(x - record))


def call(f=distance, data=None, **options):
    data = records() if data is None else data
    return minimize(
        f, np.zeros(2), data, **({"budget": BUDGET, "radius": 0.05, "lipschitz": 1.0, "most_steps": 30} | options)
    )


def test_it_finds_the_median_under_privacy():
    result = call(data=records(20_000))
    assert np.linalg.norm(result.x - TARGET) < 0.15
    assert result.success
    assert result.statement.private
    assert result.statement.epsilon == 1.0
    assert result.nit == result.schedule.steps == len(result.history)
    assert result.nfev == result.schedule.evaluations(2)
    assert result.candidates.shape == (result.schedule.windows, 2)
    assert any(np.array_equal(result.x, each) for each in result.candidates)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_says_what_it_certifies(method):
    result = call(method=method, data=records(300))
    assert result.certificate.radius == 0.1
    assert ("records" in result.certificate.of) == method.startswith("multi")
    assert result.message.endswith(str(result.certificate))
    assert np.isfinite(result.x).all()


def test_a_function_of_one_point_and_one_record_gives_the_same_as_a_vectorised_one():
    """With the same entropy: the same slopes to rounding, hence nearly the same walk."""
    found = []
    for f in (distance, one_by_one):
        with sv.testing.fixed_entropy("same"):
            found.append(call(f, records(100)).x)
    assert np.allclose(found[0], found[1], atol=1e-6)


def test_an_executor_gives_the_same():
    with ThreadPoolExecutor(2) as pool:
        found = []
        for executor in (None, pool):
            with sv.testing.fixed_entropy("same"):
                found.append(call(one_by_one, records(60), executor=executor).x)
    assert np.array_equal(found[0], found[1])


def test_a_function_that_takes_matrices_by_accident_is_called_for_one_point():
    def summed(x, record):
        return np.abs(x - record).sum()

    assert np.isfinite(call(summed, records(50)).x).all()


def test_bounds_hold_for_every_evaluation_and_for_the_answer():
    seen = []

    def watched(points, given):
        seen.append((points.min(), points.max()))
        return distance(points, given)

    result = call(watched, records(500), bounds=[(-0.1, 0.2), (-0.1, 0.2)])
    assert min(low for low, _ in seen) >= -0.1
    assert max(high for _, high in seen) <= 0.2
    assert result.candidates.min() >= -0.1
    assert result.candidates.max() <= 0.2


def test_a_callback_may_stop_and_the_rest_is_not_paid_for():
    taken = []

    def stop(step):
        taken.append(step.number)
        return step.number == 7

    result = call(method="multi-pass", data=records(200), callback=stop)
    assert taken == list(range(1, 8))
    assert not result.success
    assert "after 7 of" in result.message
    assert result.statement.steps_run == 7
    assert np.isnan(result.certificate.bound)


def test_stop_iteration_stops_too():
    def stop(step):
        raise StopIteration

    assert call(method="multi-pass", data=records(200), callback=stop).nit == 1


def test_without_a_lipschitz_constant_the_clip_takes_its_place_and_the_statement_says_so():
    result = call(data=records(300), lipschitz=None, clip=0.5)
    assert any("clip=0.5" in text for text in result.statement.assumed)
    assert "were it Lipschitz at the clip" in result.certificate.of


@pytest.mark.parametrize("f", [distance, one_by_one])
def test_bad_records_count_as_zero_unseen(f, capsys):
    """NaN, infinite, huge and raising records: the same walk as with records that contribute zero."""

    def raising(points, given):
        if np.any(np.asarray(given) == 77.0):
            raise ValueError("record 77")
        return f(points, given)

    outcomes = []
    for value in (np.nan, np.inf, 77.0):
        data = records(120)
        data[[3, 50]] = value
        with sv.testing.fixed_entropy("bad"):
            result = call(raising, data)
        outcomes.append((result.x.tobytes(), result.message, str(result.statement)))
        assert capsys.readouterr() == ("", "")
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_the_same_randomness_gives_the_same_walk_and_fresh_noise_another():
    with sv.testing.fixed_entropy("a"):
        first, second = call(data=records(200)).x, call(data=records(200)).x
    assert not np.array_equal(first, call(data=records(200)).x)
    with sv.testing.fixed_entropy("a"):
        assert np.array_equal(first, call(data=records(200)).x)
    assert second.shape == first.shape


def test_the_last_window_can_be_had_without_a_certificate():
    result = call(data=records(300), choose="last")
    assert np.array_equal(result.x, result.candidates[-1])
    assert np.isnan(result.certificate.bound)
    assert "no certificate" in result.message
    assert result.success


def test_a_schedule_of_ones_own():
    plan = sv.planning.Schedule(
        oracle="single-pass", windows=2, window_length=5, batch=10, length=1.0, bound=9.0, records=100,
        clip=1.5, bases=1,
    )  # fmt: skip
    result = call(data=records(100), plan=plan)
    assert result.nit == 10
    assert np.isnan(result.certificate.bound)  # the schedule may have been made for anything


def mixing(points, given):
    return distance(points, given) - given.mean()


def wrong_shape(points, given):
    return np.zeros((len(points), 2))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"f": mixing}, TypeError, "depends on the records beside it"),
        ({"f": wrong_shape, "vectorized": True}, ValueError, "one value for each"),
        ({"lipschitz": None}, ValueError, "exactly one"),
        ({"clip": 1.0}, ValueError, "exactly one"),
        ({"lipschitz": -1.0}, ValueError, "positive"),
        ({"radius": 0.0}, ValueError, "radius"),
        ({"method": "tre"}, ValueError, "choose one of"),
        ({"bounds": [(0, 1)]}, ValueError, "one pair"),
        ({"bounds": [(0, 1), (1, 0)]}, ValueError, "one pair"),
        ({"data": iter([1])}, ValueError, "arrays"),
        ({"data": np.zeros((0, 2))}, ValueError, "empty"),
        ({"plan": 5}, ValueError, "Schedule"),
        ({"budget": None}, ValueError, "give Budget"),
        ({"ledger": "a.db"}, ValueError, "an opened one"),
        ({"ledger": sv.Ledger.in_memory()}, ValueError, "without dataset="),
        ({"callback": 3}, ValueError, "a function of a step"),
        ({"f": 3}, ValueError, "a function of a point"),
        ({"f": lambda x, r: None}, ValueError, "a return is missing"),
        ({"executor": 4}, ValueError, "Executor"),
        ({"bases": 1.5}, ValueError, "whole number"),
        ({"seed": "a"}, ValueError, "whole number"),
        ({"noise": "gauss"}, ValueError, "'toeplitz' or 'fenwick'"),
        ({"vectorized": "yes"}, ValueError, "True, False"),
        ({"data": [np.zeros(2)] * 200}, ValueError, "as many columns"),
        ({"data": np.zeros((1, 2))}, ValueError, "too few"),
        ({"choose": "best"}, ValueError, "'random' or 'last'"),
    ],
)
def test_mistakes_are_told_before_anything_is_spent(options, error, match):
    with pytest.raises(error, match=match):
        call(**options)


def test_a_bug_in_the_function_shows_its_own_traceback():
    def broken(x, record):
        raise RuntimeError("my own bug")

    with pytest.raises(RuntimeError, match="my own bug"):
        call(broken)


def test_a_private_record_cannot_be_the_example():
    data = records(100)
    with pytest.raises(sv.DataError, match="example="):
        call(data=data, example=data[0])


@pytest.mark.parametrize("form", ["reversed", "big-endian", "float32", "integers", "dict", "dataset", "scalars"])
def test_forms_of_records(form):
    data = records(300)
    made = {
        "reversed": data[::-1], "big-endian": data.astype(">f8"), "float32": data.astype(np.float32),
        "integers": np.rint(data * 10).astype(np.int64), "dict": {"at": data}, "scalars": data[:, 0],
        "dataset": torch.utils.data.TensorDataset(torch.as_tensor(data)),
    }[form]  # fmt: skip

    def f(x, record):
        given = record["at"] if form == "dict" else record[0] if form == "dataset" else record
        return float(np.abs(x - given).sum())

    assert np.isfinite(call(f, made).x).all()


def test_a_function_of_the_first_coordinate_of_one_point_is_not_taken_for_a_vectorised_one():
    data = records(4_000)[:, 0]
    result = minimize(
        lambda x, r: abs(x[0] - r), 0.0, data, budget=BUDGET, radius=0.1, lipschitz=1.0, choose="last"
    )  # fmt: skip
    assert result.x[0] == pytest.approx(0.4, abs=0.2)


def test_bounds_may_be_open_or_scipy_s():
    sides: Any = np.array([-1, -0.5]), np.array([1, np.inf])
    for bounds in ([(None, 1.0), (-0.5, None)], Bounds(*sides)):
        result = call(data=records(300), bounds=bounds)
        assert result.x[1] >= -0.5


def test_numpy_s_truth_stops_as_well_as_python_s():
    assert call(method="multi-pass", data=records(200), callback=lambda step: np.bool_(True)).nit == 1


def test_what_a_callback_is_given_is_its_own():
    def spoil(step):
        step.point[:] = 99.0
        step.estimate.zero_()

    with sv.testing.fixed_entropy("own"):
        plain = call(method="multi-pass-differences", data=records(100))
    with sv.testing.fixed_entropy("own"):
        assert np.array_equal(call(method="multi-pass-differences", data=records(100), callback=spoil).x, plain.x)


def test_a_delta_above_one_over_records_is_warned_of():
    with pytest.warns(sv.PrivacyWarning, match="delta"):
        call(data=records(50), budget=sv.Budget(epsilon=1.0, delta=0.1))


def test_a_function_that_is_not_finite_on_zeros_is_warned_of():
    with np.errstate(divide="ignore"), pytest.warns(sv.ObjectiveWarning, match="example="):
        call(lambda x, r: float(np.log(np.abs(r)).sum() + x.sum()), records(50), vectorized=False)


def test_a_start_that_is_no_vector_is_refused():
    with pytest.raises(sv.ConfigurationError, match="x0"):
        minimize(distance, np.zeros((2, 2)), records(10), budget=BUDGET, radius=0.1, lipschitz=1.0)


def test_the_user_s_own_generators_stay_where_they_are():
    def states() -> tuple[str, ...]:
        return str(random.getstate()), str(np.random.get_state()), str(torch.get_rng_state().tolist())

    before = states()
    call(one_by_one, records(40))
    assert states() == before
