"""The planner reproduces the table of required records, and its bounds move as theory says."""

import itertools
import math
from typing import Any

import pytest

import sottovoce as sv
from sottovoce.planning import NonsmoothProblem, Schedule, every, records_for_gap, schedule, uniform_gap
from sottovoce.planning.problem import curvature_constant

DIMENSIONS = (10, 100, 1000)


def problem(dimension: int = 10, epsilon: float | None = 1.0, neighbours: Any = "replace-one") -> NonsmoothProblem:
    budget = None if epsilon is None else sv.Budget(epsilon=epsilon, delta=1e-6, neighbours=neighbours)
    return NonsmoothProblem(dimension=dimension, lipschitz=1.0, gap=1.0, radius=0.1, budget=budget)


# ALGORITHMS.md, section 8: n for a bound of at most .2 (or .5) at epsilon 1, delta 1e-6, L = Phi = 1, alpha = .1,
# replace-one. Its first-order row keeps A = Phi + L alpha, though nothing is smoothed there: ours is 1.1 times smaller.
TABLE = {
    ("single-pass", 0.2, "toeplitz"): (1.3e6, 4.1e6, 1.3e7),
    ("single-pass", 0.5, "toeplitz"): (7.5e4, 2.3e5, 7.2e5),
    ("first-order", 0.2, "toeplitz"): (6.7e5 / 1.1, 2.1e6 / 1.1, 6.7e6 / 1.1),
    ("tree", 0.2, "fenwick"): (7.0e6, 5.4e7, 2.0e8),
    ("tree", 0.2, "toeplitz"): (2.6e6, 1.9e7, 1.6e8),
    ("multi-pass-differences", 0.2, "toeplitz"): (6.2e4, 3.4e5, 1.5e6),
    ("multi-pass", 0.2, "toeplitz"): (7e3, 2.3e4, 7e4),
}


@pytest.mark.parametrize(("row", "expected"), TABLE.items(), ids=lambda value: "-".join(map(str, value)))
def test_the_table_of_required_records(row, expected):
    oracle, target, noise = row
    for dimension, records in zip(DIMENSIONS, expected, strict=True):
        # Its tree and multi-pass rows leave out the clip's bias and the directions' variance, as many bases do.
        bases = 64 if oracle == "single-pass" else 10**6
        found = schedule(problem(dimension), target=target, oracle=oracle, noise=noise, bases=bases)
        assert found is not None
        assert found.records == pytest.approx(records, rel=0.1), dimension
        assert found.bound <= target + 1e-12


def planned(*arguments, **options) -> Schedule:
    """A schedule, where there is one."""
    found = schedule(*arguments, **options)
    assert found is not None
    return found


def test_the_tree_is_switched_off_where_it_does_not_pay():
    """At d = 1000 the binary tree's best period is one step: no tree at all."""
    assert planned(problem(1000), target=0.2, oracle="tree", noise="fenwick", bases=10**6).period == 1


@pytest.mark.parametrize(("dimension", "records"), [(10, 3e4), (100, 3e5), (1000, 3.5e6)])
def test_records_for_a_uniform_gap(dimension: int, records: float):
    reach = 2 * (1.0 + 0.1) / 0.2  # D T where half of the target is the descent's
    found = records_for_gap(0.1, dimension=dimension, lipschitz=1.0, radius=0.1, reach=reach)
    assert found == pytest.approx(records, rel=0.1)
    gap = {
        n: uniform_gap(records=n, dimension=dimension, lipschitz=1.0, radius=0.1, reach=reach)
        for n in (found, found - 1)
    }
    assert gap[found] <= 0.1 < gap[found - 1]


def test_the_non_private_row():
    for dimension in DIMENSIONS:
        found = planned(problem(dimension, None), target=0.2, bases=64)
        assert found is not None
        # The clip costs bias here too; the table has none, which is what many bases come to.
        free = planned(problem(dimension, None), target=0.2, bases=10**6)
        assert free.records == pytest.approx(3e4, rel=0.1)
        assert found.records > free.records


ORACLES = ("single-pass", "tree", "multi-pass", "multi-pass-differences", "first-order")


@pytest.mark.parametrize("oracle", ORACLES)
def test_fewer_records_for_more_budget_and_fewer_dimensions(oracle):
    by_epsilon = [planned(problem(10, e), target=0.3, oracle=oracle).records for e in (0.5, 1.0, 2.0, 8.0)]
    assert all(more > fewer for more, fewer in itertools.pairwise(by_epsilon))
    by_dimension = [planned(problem(d), target=0.3, oracle=oracle).records for d in (5, 20, 80, 320)]
    assert all(fewer < more for fewer, more in itertools.pairwise(by_dimension))


@pytest.mark.parametrize("oracle", ORACLES)
def test_a_better_bound_for_more_records(oracle):
    bounds = [planned(problem(), records=n, oracle=oracle).bound for n in (10**4, 10**5, 10**6, 10**7)]
    assert all(worse >= better for worse, better in itertools.pairwise(bounds))
    assert bounds[-1] < bounds[0]


@pytest.mark.parametrize("oracle", ORACLES)
def test_zero_out_needs_half_the_records_where_noise_rules(oracle):
    """A record's change is half as long; sampling and the number of steps do not care."""
    ours, theirs = (
        planned(problem(1000, 1.0, each), target=0.3, oracle=oracle) for each in ("zero-out", "replace-one")
    )
    assert 0.4 < ours.records / theirs.records < 0.65


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("target", [0.15, 0.4])
def test_planning_for_the_records_found_reaches_the_target(oracle, target):
    wanted = planned(problem(20), target=target, oracle=oracle)
    reached = planned(problem(20), records=wanted.records, oracle=oracle)
    assert reached.bound == pytest.approx(target, rel=0.02)
    assert reached.records <= wanted.records


def test_naive_needs_the_root_of_the_dimension():
    n = {d: planned(problem(d), target=0.2).records for d in (100, 400, 1600)}
    assert n[400] / n[100] == pytest.approx(2, rel=0.05)
    assert n[1600] / n[400] == pytest.approx(2, rel=0.05)


def test_naive_follows_its_closed_form():
    """n = 35 sqrt(d) C L A / (mu radius target'^3), to leading order."""
    for dimension in DIMENSIONS:
        p = problem(dimension)
        bias = dimension / (dimension - 1) / 64 / (4 * 0.5)
        expected = 35 * math.sqrt(dimension) * 1.5 * 1.1 / (p.mu * 0.1 * (0.2 - 2 * bias) ** 3)
        assert planned(p, target=0.2).records == pytest.approx(expected, rel=0.1)


def test_vacuous_is_said():
    few = planned(problem(), records=100)
    assert few.vacuous(1.0)
    assert not planned(problem(), records=10**7).vacuous(1.0)
    assert schedule(problem(), target=0.1, bases=1) is None  # the clip's bias alone is more


def test_evaluations_are_counted():
    plan = Schedule(
        oracle="tree", windows=3, window_length=10, period=4, batch=20, difference_batch=5, bound=1.0, length=1.0,
        records=0, clip=1.5, bases=2,
    )  # fmt: skip
    fresh = math.ceil(30 / 4)
    assert plan.evaluations(7) == fresh * 20 * 2 * 2 * 7 + (30 - fresh) * 5 * 4 * 2 * 7


def test_all_oracles_at_once():
    assert set(every(problem(), records=10**5)) == set(ORACLES)


@pytest.mark.parametrize(("dimension", "kappa"), [(10, 2.59), (100, 8.00), (1000, 25.2)])
def test_the_curvature_constant(dimension: int, kappa: float):
    assert curvature_constant(dimension) == pytest.approx(kappa, rel=2e-3)
    assert curvature_constant(dimension) <= math.sqrt(dimension)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "exactly one"),
        ({"records": 5, "target": 0.1}, "exactly one"),
        ({"records": 0}, "at least 1"),
        ({"target": -1.0}, "positive"),
        ({"target": 0.1, "oracle": "treee"}, "choose one of"),
        ({"target": 0.1, "bases": 0}, "at least 1"),
    ],
)
def test_mistakes_are_told(options, match):
    with pytest.raises(sv.ConfigurationError, match=match):
        schedule(problem(), **options)


@pytest.mark.parametrize("wrong", [{"dimension": 0}, {"lipschitz": -1.0}, {"gap": math.nan}, {"radius": 0.0}])
def test_a_problem_checks_its_numbers(wrong):
    with pytest.raises(sv.ConfigurationError, match=next(iter(wrong))):
        NonsmoothProblem(**({"dimension": 2, "lipschitz": 1.0, "gap": 1.0, "radius": 0.1, "budget": None} | wrong))
