"""A record's value is its own, whatever the function does: buffers, random draws, memory, company, workers."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch

import sottovoce as sv
from sottovoce.objective.box_probe import box_of
from sottovoce.objective.function import BlackBox

EXAMPLE = torch.zeros(2, dtype=torch.float64)
START = np.zeros(2)


def rows(box: BlackBox, records: np.ndarray, seed: int = 5) -> np.ndarray:
    np.random.seed(seed)
    return box.values(np.zeros((len(records), 2)), torch.as_tensor(records))


def others_change(function, **options) -> bool:
    """Whether the first record's value changes that of another."""
    box = BlackBox(function, 2, vectorised=False, **options)
    one = np.arange(12.0).reshape(6, 2)
    other = one.copy()
    other[0] = 99.0
    return not np.array_equal(rows(box, one)[1:], rows(box, other)[1:], equal_nan=True)


BUFFER = np.zeros(2)


def reuses_its_buffer(x, record):
    BUFFER[:] = x - record
    return BUFFER


def draws_as_it_likes(x, record):
    while np.random.random() < 0.5 and record[0] > 50:
        pass
    return float(np.random.normal() + record.sum())


def raises_before_its_draw(x, record):
    if record[0] == 99.0:
        raise ValueError(record)
    return float(np.random.normal() + torch.rand(()).item())


@pytest.mark.parametrize("function", [draws_as_it_likes, raises_before_its_draw])
def test_random_draws_of_one_record_do_not_move_another_s(function):
    assert not others_change(function)


def test_a_buffer_that_is_used_again_does_not_show_the_last_record_everywhere():
    assert not others_change(reuses_its_buffer, width=2)
    found = rows(BlackBox(reuses_its_buffer, 2, vectorised=False, width=2), np.arange(6.0).reshape(3, 2))
    assert np.array_equal(found, -np.arange(6.0).reshape(3, 2))


def test_the_draws_after_a_call_do_not_depend_on_its_records():
    after = []
    for value in (1.0, 99.0):
        rows(BlackBox(draws_as_it_likes, 2, vectorised=False), np.full((4, 2), value))
        after.append(np.random.random())
    assert after[0] == after[1]


def running(points, records):
    return np.cumsum(records[:, 0])


def running_maximum(points, records):
    return np.maximum.accumulate(np.abs(records[:, 0] - points[:, 0]))


def centred(points, records):
    return records[:, 0] - records[:, 0].mean()


class Remembers:
    """A warm start: the last answer is where the next search begins."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, x, record):
        self.last = 0.5 * self.last + float(record.sum()) + 1
        return self.last


class OwnGenerator:
    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __call__(self, x, record):
        return float(self.generator.normal())


@pytest.mark.parametrize("function", [running, running_maximum, centred, Remembers(), OwnGenerator()])
def test_functions_that_mix_or_remember_are_refused(function):
    with pytest.raises(sv.QueryError, match="alone"):
        box_of(function, START, EXAMPLE, vectorised=None, executor=None)


def test_a_function_that_draws_from_the_global_generators_is_accepted():
    assert not box_of(draws_as_it_likes, START, EXAMPLE, vectorised=None, executor=None).vectorised


def by_python(x, record):
    return sum(abs(x - record))


def signs(x, record):
    return record * np.sign(record @ x - 1)


def distance(points, records):
    return np.linalg.norm(points - records, axis=-1)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_what_a_function_takes_is_found_out_by_its_values(dimension):
    start, example = np.zeros(dimension), torch.zeros(dimension, dtype=torch.float64)
    found = {
        function: box_of(function, start, example, vectorised=None, executor=None, gradient=gradient).vectorised
        for function, gradient in ((by_python, False), (signs, True), (distance, False))
    }
    assert found == {by_python: False, signs: False, distance: True}


def warns_of_zeros(x, record):
    return float((np.ones(1) / record[:1]).sum())


def test_workers_of_other_processes_are_silent(capfd):
    with ProcessPoolExecutor(1) as pool:
        box = BlackBox(warns_of_zeros, 2, vectorised=False, executor=pool)
        found = rows(box, np.array([[0.0, 0.0], [2.0, 0.0]]))
    assert found[1] == 0.5
    assert capfd.readouterr().err == ""


def test_infinite_values_make_a_record_count_as_zero():
    def cliff(points, records):
        return np.where(points[:, 0] > 0, np.inf, 0.0)

    from sottovoce.estimators import Smoothed
    from sottovoce.objective.directions import Key

    ask = Smoothed(box=BlackBox(cliff, 2, vectorised=True), radius=0.1, bases=1, limit=1.0)
    assert ask.gradients(START, Key(0))((torch.zeros(4, 2), torch.arange(4))).isnan().any(dim=1).all()


def writes(x, record):
    x -= record
    return np.sign(x)


@pytest.mark.parametrize("method", ["first-order", "single-pass"])
def test_a_function_may_write_into_its_point(method):
    def value(x, record):
        x -= record
        return float(np.abs(x).sum())

    data = np.array([0.5, 0.2]) + 0.01 * np.random.default_rng(0).normal(size=(3_000, 2))
    first_order = method == "first-order"
    result = sv.minimize(
        None if first_order else value, np.zeros(2), data[: 3_000 if first_order else 500], method=method,
        jac=writes if first_order else None, budget=sv.Budget(epsilon=5.0, delta=1e-5), radius=0.05, lipschitz=1.5,
    )  # fmt: skip
    assert (result.history > 0).all()
    assert np.ptp(result.candidates, axis=0).max() > 0


@pytest.mark.parametrize("method", ["single-pass", "tree", "multi-pass", "multi-pass-differences"])
def test_add_remove_is_refused(method):
    with pytest.raises(sv.ConfigurationError, match="no meaning here"):
        sv.minimize(
            distance, START, np.zeros((50, 2)), method=method, radius=0.1, lipschitz=1.0,
            budget=sv.Budget(epsilon=1.0, delta=1e-5, neighbours="add-remove"),
        )  # fmt: skip
