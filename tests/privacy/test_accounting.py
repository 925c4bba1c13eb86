"""Accounting against quadrature, closed forms, a table at a finer grid, Renyi accounting and Opacus' accountant."""

import importlib.util
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from types import ModuleType

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld, rdp
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.privacy import accounting
from sottovoce.privacy.accounting import (
    calibrate,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_mu_for,
)
from sottovoce.privacy.budget import Budget, Neighbours
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.events import Event

# What the accounting may add to the truth, and what rounding may take from a reference value.
ABOVE, BELOW = 5e-3, 1e-6


def poisson(rate: float, noise_multiplier: float, steps: int = 1) -> Event:
    return Event(sampling="poisson", rate=rate, noise_multiplier=noise_multiplier, steps=steps)


def full_batch(noise_multiplier: float, steps: int = 1) -> Event:
    return Event(sampling="full-batch", noise_multiplier=noise_multiplier, steps=steps)


def single_pass(noise_multiplier: float, steps: int = 1) -> Event:
    return Event(sampling="single-pass", noise_multiplier=noise_multiplier, steps=steps)


def load_reference() -> ModuleType:
    path = Path(__file__).parent / "reference" / "regenerate.py"
    spec = importlib.util.spec_from_file_location("reference_table", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


reference = load_reference()


def delta(events: list[Event], epsilon: float, neighbours: Neighbours = "zero-out") -> float:
    """The smallest delta such that the events are (epsilon, delta)-DP: the other way to read the curve."""
    accounting._check(epsilon=epsilon)
    releases, replace = accounting._merge(events), accounting._is_replacement(neighbours)
    full = gaussian_delta(releases.full_mu * (1 + replace), epsilon)
    if not releases.subsampled:
        return full
    at = float(epsilon) / (1 + replace)
    curve, _ = accounting._refined_curve(releases, lambda _curve, _near: at, accounting._LOG_MASS)
    return min(full, math.exp(min(0.0, curve(at) + float(np.logaddexp(0, at)) * replace)))


def exact_one_step_delta(rate: float, noise_multiplier: float, epsilon: float) -> float:
    """The larger hockey-stick divergence of the pair N(0, 1), (1 - rate) N(0, 1) + rate N(1/z, 1), by quadrature."""
    shift = 1 / noise_multiplier
    nodes, weights = np.polynomial.legendre.leggauss(24)

    def area(of_mixed: bool, log_ratio: float, towards: int) -> float:
        # mixed / without grows with x, and passes exp(log_ratio) once.
        if math.expm1(log_ratio) <= -rate:
            return 0.0
        edge = (math.log1p(math.expm1(log_ratio) / rate) + shift**2 / 2) / shift
        x = edge + towards * (np.arange(100)[:, None] + (1 + nodes) / 2)
        without = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        surplus = rate * np.expm1(x * shift - shift**2 / 2)  # mixed / without - 1, exact for tiny rates too
        if of_mixed:
            return float(np.sum(without * (surplus - math.expm1(epsilon)) * weights / 2))
        return float(np.sum(without * (-math.expm1(epsilon) - math.exp(epsilon) * surplus) * weights / 2))

    return max(area(True, epsilon, 1), area(False, -epsilon, -1))


def exact_gaussian_delta(mu: float, epsilon: float) -> float:
    with mpmath.workdps(60 + int(abs(epsilon))):
        mu_, eps = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return float(mpmath.ncdf(mu_ / 2 - eps / mu_) - mpmath.exp(eps) * mpmath.ncdf(-mu_ / 2 - eps / mu_))


# --- the closed form ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mu", "at"),
    [
        (1e-4, 0.0),
        (1e-3, 1e-3),
        (0.01, 0.3),
        (0.1, 0.05),
        (0.5, 2.0),
        (1.0, 0.0),
        (1.0, 8.0),
        (3.0, 0.5),
        (3.0, 60.0),
        (12.0, 1.0),
        (12.0, 60.0),
        (12.0, 300.0),
        (40.0, 100.0),
        (40.0, 800.0),
    ],
)
def test_the_closed_form_agrees_with_sixty_digits(mu: float, at: float):
    assert gaussian_delta(mu, at) == pytest.approx(exact_gaussian_delta(mu, at), rel=1e-10, abs=1e-305)


@pytest.mark.parametrize(("at", "delta"), [(1e-8, 1e-9), (1e-6, 1e-13), (1e-4, 1e-12), (0.01, 1e-9), (1.0, 1e-6)])
def test_the_largest_mu_keeps_delta_also_where_rounding_is_all_there_is(at: float, delta: float):
    assert exact_gaussian_delta(gaussian_mu_for(at, delta), at) <= delta


def test_the_closed_form_survives_extremes():
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_delta(math.inf, 1.0) == 1.0
    assert gaussian_delta(1.0, 1e9) == 0.0
    assert gaussian_delta(1e6, 1.0) == 1.0
    assert gaussian_epsilon(0.0, 1e-6) == 0.0
    assert gaussian_epsilon(1e-9, 1e-6) == 0.0
    assert gaussian_epsilon(math.inf, 1e-6) == math.inf
    # delta ~ exp(-epsilon^2 / 2 mu^2) far out, so the smallest float is reached near mu^2 / 2 + 38.5 mu.
    assert gaussian_epsilon(1.0, 1e-320) == pytest.approx(38.6, abs=0.5)
    assert gaussian_epsilon(1e3, 1e-9) == pytest.approx(5e5 + 1e3 * 5.9978, rel=1e-5)


@settings(max_examples=200, deadline=None)
@given(mu=st.floats(1e-3, 100), exponent=st.floats(-300, -0.01))
def test_epsilon_of_a_gaussian_is_feasible_and_least(mu: float, exponent: float):
    target = 10**exponent
    at = gaussian_epsilon(mu, target)
    assert gaussian_delta(mu, at) <= target
    if at > 0.01 * mu:
        assert gaussian_delta(mu, at * (1 - 1e-9)) > target


@settings(max_examples=200, deadline=None)
@given(at=st.floats(1e-3, 1e3), exponent=st.floats(-300, -0.01))
def test_mu_for_a_budget_is_feasible_and_largest(at: float, exponent: float):
    target = 10**exponent
    mu = gaussian_mu_for(at, target)
    assert gaussian_delta(mu, at) <= target
    assert gaussian_delta(mu * (1 + 1e-9), at) > target


@pytest.mark.parametrize(("at", "mu"), [(0.5, 0.12411), (1, 0.23670), (2, 0.44833), (4, 0.83786), (8, 1.53155)])
def test_mu_at_delta_one_in_a_million(at: float, mu: float):
    assert gaussian_mu_for(at, 1e-6) == pytest.approx(mu, abs=6e-6)


def test_mu_adds_in_squares_and_disjoint_batches_count_once():
    assert gaussian_mu([full_batch(2.0, 9)]) == pytest.approx(1.5, rel=1e-15)
    assert gaussian_mu([poisson(1.0, 2.0, 9)]) == pytest.approx(1.5, rel=1e-15)
    assert gaussian_mu([single_pass(2.0, 9)]) == 0.5
    assert gaussian_mu([single_pass(2.0, 0), full_batch(math.inf, 5)]) == 0.0
    assert gaussian_mu([single_pass(0.25, 3), full_batch(1.0, 5), full_batch(0.5, 1)]) == pytest.approx(5.0)
    with pytest.raises(ConfigurationError, match="full-batch"):
        gaussian_mu([poisson(0.5, 1.0)])


def test_without_subsampling_epsilon_and_delta_are_the_closed_form():
    events = [full_batch(20.0, 100), single_pass(5.0, 7), poisson(1.0, 30.0, 10)]
    mu = math.sqrt(100 / 400 + 1 / 25 + 10 / 900)
    factors: dict[Neighbours, int] = {"zero-out": 1, "add-remove": 1, "replace-one": 2}
    for relation, factor in factors.items():
        assert epsilon(events, 1e-6, relation) == pytest.approx(gaussian_epsilon(factor * mu, 1e-6), rel=1e-10)
        assert delta(events, 1.0, relation) == pytest.approx(gaussian_delta(factor * mu, 1.0), rel=1e-10)
    assert accounting.accountant_name(events) == accounting.CLOSED_FORM


# --- the reference table ---------------------------------------------------------------------------------------------


def test_the_reference_table_covers_what_it_should():
    rows = reference.read()
    assert len(rows) >= 100
    assert {row.rate for row in rows} >= {1e-4, 1e-3, 0.01, 0.05, 0.1, 0.5, 1.0}
    assert min(row.noise_multiplier for row in rows) <= 0.5
    assert max(row.noise_multiplier for row in rows) >= 50
    assert {row.steps for row in rows} >= {1, 10, 100, 1000, 10_000, 100_000}
    assert {row.delta for row in rows} >= {1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3}
    assert min(row.epsilon for row in rows) < 0.06
    assert max(row.epsilon for row in rows) > 18


@cache
def of_row(row) -> float:
    return epsilon([poisson(row.rate, row.noise_multiplier, row.steps)], row.delta)


def test_epsilon_is_never_below_the_reference_and_at_most_half_a_percent_above():
    wrong = {row: of_row(row) for row in reference.read() if not 1 - BELOW <= of_row(row) / row.epsilon <= 1 + ABOVE}
    assert not wrong


def test_epsilon_is_never_above_that_of_renyi_accounting():
    for (rate, multiplier, steps), rows in groupby(sorted(reference.read()), key=lambda row: row[:3]):
        accountant = rdp.RdpAccountant()
        gaussian = dp_accounting.GaussianDpEvent(multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, gaussian), steps)
        for row in rows:
            assert of_row(row) <= accountant.get_epsilon(row.delta), row


@pytest.mark.slow
def test_the_reference_table_is_reproduced():
    """To 1e-6, and where the transforms' rounding is felt, to a tenth of its share of delta."""
    for old, new in zip(sorted(reference.read()), reference.recompute(reference.read()), strict=True):
        rounding = 0.1 * 4e-16 * old.steps / old.delta
        assert old[:-1] == new[:-1]
        assert new.epsilon == pytest.approx(old.epsilon, rel=1e-6 + rounding), old


# --- dp-accounting is not trusted blindly ----------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("noise_multiplier", [0.3, 0.5, 1.0, 4.0, 40.0])
def test_one_step_is_never_below_quadrature(rate: float, noise_multiplier: float):
    events = [poisson(rate, noise_multiplier)]
    for target in (1e-10, 1e-7, 1e-5, 1e-3):
        at = epsilon(events, target)
        assert exact_one_step_delta(rate, noise_multiplier, at) <= target * (1 + 1e-9)
        if at > 1e-3:
            assert exact_one_step_delta(rate, noise_multiplier, at * (1 - ABOVE)) > target
    for at in (0.0, 0.1, 2.0):
        assert delta(events, at) >= exact_one_step_delta(rate, noise_multiplier, at) * (1 - 1e-9)


def test_both_directions_count():
    """Adding a record is the cheaper direction for one step of the pair; the larger of the two must be taken."""
    removed = from_gaussian_mechanism(1.0, value_discretization_interval=1e-3, sampling_prob=0.3)
    assert delta([poisson(0.3, 1.0)], 0.5) >= exact_one_step_delta(0.3, 1.0, 0.5)
    assert delta([poisson(0.3, 1.0)], 0.5) == pytest.approx(float(removed.get_delta_for_epsilon(0.5)), rel=1e-3)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("event", [poisson(0.01, 1.0, 100), poisson(0.5, 8.0, 3), full_batch(30.0, 40)], ids=str)
def test_composing_counts(event: Event, count: int):
    once = Event(**{**asdict(event), "steps": count * event.steps})
    for relation in ("zero-out", "replace-one"):
        assert epsilon([event] * count, 1e-6, relation) == pytest.approx(epsilon([once], 1e-6, relation), rel=1e-6)
    assert delta([event] * count, 0.5) == pytest.approx(delta([once], 0.5), rel=1e-6)


@pytest.mark.parametrize("count", [2, 7])
def test_composing_counts_when_events_cannot_be_merged(count: int):
    """The multipliers differ by 1e-12, so the distributions are composed one by one instead of by a power."""
    apart = [poisson(0.02, 1.0 + 1e-12 * k, 50) for k in range(count)]
    assert epsilon(apart, 1e-6) == pytest.approx(epsilon([poisson(0.02, 1.0, 50 * count)], 1e-6), rel=1e-5)


def test_many_steps_at_rate_nearly_one_meet_the_closed_form():
    """Rounding in the n-th power of a Fourier transform is covered: at rate 1 - 1e-13 the exact answer is known."""
    for steps, target in ((10_000, 1e-9), (100_000, 1e-8)):
        exact = gaussian_epsilon(1.0, target)
        assert (
            exact * (1 - BELOW) <= epsilon([poisson(1 - 1e-13, math.sqrt(steps), steps)], target) <= exact * (1 + ABOVE)
        )


@pytest.mark.skipif(not version("dp-accounting").startswith("0.6.0"), reason="describes that version")
def test_the_library_behind_has_miscounted():
    """Why it is cross-checked: 0.6.0 accounts 1,000 randomised responses as one."""
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    event = dp_accounting.RandomizedResponseDpEvent(noise_parameter=0.5, num_buckets=2)
    one, many = pld.PLDAccountant(relation), pld.PLDAccountant(relation)
    one.compose(event)
    many.compose(event, 1000)
    assert one.get_epsilon(1e-6) == pytest.approx(many.get_epsilon(1e-6))


@pytest.mark.parametrize(
    ("rate", "noise_multiplier", "steps", "target"),
    [(0.01, 1.0, 1000, 1e-5), (0.05, 2.0, 500, 1e-6), (0.001, 0.7, 20_000, 1e-6), (0.2, 5.0, 300, 1e-5)],
)
def test_opacus_agrees_within_its_stated_error(rate: float, noise_multiplier: float, steps: int, target: float):
    from opacus.accountants import create_accountant

    accountant = create_accountant("prv")
    accountant.history = [(noise_multiplier, rate, steps)]
    error = 0.01
    upper = accountant.get_epsilon(delta=target, eps_error=error, delta_error=target / 1000)
    assert upper - 2 * error <= epsilon([poisson(rate, noise_multiplier, steps)], target) <= upper


# --- heterogeneous events, relations ---------------------------------------------------------------------------------


def test_mixtures_agree_with_a_finer_composition():
    events = [poisson(0.01, 1.0, 400), single_pass(8.0, 5), poisson(0.03, 1.5, 200), full_batch(30.0, 9)]
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    for rate, multiplier, steps in ((0.01, 1.0, 400), (0.03, 1.5, 200), (1.0, 8.0, 1), (1.0, 10.0, 1)):
        gaussian = dp_accounting.GaussianDpEvent(multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, gaussian) if rate < 1 else gaussian, steps)
    assert 1 - 1e-4 <= epsilon(events, 1e-6) / accountant.get_epsilon(1e-6) <= 1 + ABOVE
    assert accounting.accountant_name(events) == accounting.ACCOUNTANT


def test_an_event_without_release_costs_nothing():
    for relation in ("zero-out", "replace-one"):
        assert epsilon([], 1e-6, relation) == 0.0
        assert delta([], 0.0, relation) == 0.0
        assert epsilon([poisson(0.1, 1.0, 0), poisson(0.1, math.inf, 9)], 1e-6, relation) == 0.0
        assert epsilon([poisson(1e-6, 100.0, 1)], 1e-3, relation) == 0.0
    assert epsilon([poisson(0.1, math.inf, 9), poisson(0.1, 1.0, 9)], 1e-6) == epsilon([poisson(0.1, 1.0, 9)], 1e-6)


@pytest.mark.parametrize("event", [poisson(0.01, 1.0, 500), poisson(0.2, 3.0, 20), poisson(0.001, 0.6, 10_000)])
def test_replacing_under_subsampling_is_two_steps_by_group_privacy(event: Event):
    at = epsilon([event], 1e-6, "replace-one") / 2
    target = 1e-6 / (1 + math.exp(at))
    assert at == pytest.approx(epsilon([event], target), rel=ABOVE)
    assert delta([event], 2 * at, "replace-one") == pytest.approx(1e-6, rel=0.1)
    assert at > epsilon([event], 1e-6)


def test_replacing_is_never_cheaper_than_its_own_accountant_says():
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    for rate, multiplier, steps in ((0.01, 1.0, 500), (0.2, 3.0, 20)):
        accountant = pld.PLDAccountant(relation)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier)), steps)
        assert epsilon([poisson(rate, multiplier, steps)], 1e-6, "replace-one") >= accountant.get_epsilon(1e-6)


def test_a_delta_lost_in_rounding_gives_a_finite_bound():
    """Below what the transforms can resolve, the answer is that without subsampling: far too large, yet true."""
    event = poisson(0.01, 1.0, 100_000)
    assert epsilon([event], 1e-14) == pytest.approx(gaussian_epsilon(math.sqrt(100_000), 1e-14))
    assert delta([event], 60.0) >= 1e-12


# --- order -----------------------------------------------------------------------------------------------------------

# Two neighbouring questions may be answered on different grids, each at most 0.2 % too high.
GRID = 1 + 2e-3

rates = st.floats(1e-3, 0.9)
multipliers = st.floats(0.6, 20)
steps_ = st.integers(1, 1500)
deltas = st.floats(-8, -3).map(lambda exponent: 10**exponent)
quick = settings(max_examples=12, deadline=None, derandomize=True)


@quick
@given(rates, multipliers, steps_, deltas, st.floats(1.001, 2))
def test_more_noise_never_costs_more(rate: float, multiplier: float, steps: int, target: float, factor: float):
    more = epsilon([poisson(rate, multiplier * factor, steps)], target)
    assert more <= epsilon([poisson(rate, multiplier, steps)], target) * GRID


@quick
@given(rates, multipliers, steps_, deltas, st.integers(1, 500))
def test_more_steps_never_cost_less(rate: float, multiplier: float, steps: int, target: float, extra: int):
    more = epsilon([poisson(rate, multiplier, steps + extra)], target)
    assert more * GRID >= epsilon([poisson(rate, multiplier, steps)], target)


@quick
@given(rates, multipliers, steps_, deltas, st.floats(1.001, 5))
def test_a_higher_rate_never_costs_less(rate: float, multiplier: float, steps: int, target: float, factor: float):
    more = epsilon([poisson(min(1.0, rate * factor), multiplier, steps)], target)
    assert more * GRID >= epsilon([poisson(rate, multiplier, steps)], target)


@quick
@given(rates, multipliers, steps_, deltas)
def test_delta_and_epsilon_are_inverse(rate: float, multiplier: float, steps: int, target: float):
    events = [poisson(rate, multiplier, steps)]
    at = epsilon(events, target)
    if at > 0.01:
        # Near the answer, delta falls by at most some 100 times as fast as epsilon grows, relatively.
        assert delta(events, at) == pytest.approx(target, rel=0.15)


# --- calibration -----------------------------------------------------------------------------------------------------


def check_calibration(events_of: Callable[[float], list[Event]], budget: Budget) -> float:
    multiplier = calibrate(events_of, budget)
    spent = epsilon(events_of(multiplier), budget.delta, budget.neighbours)
    assert 0 <= budget.epsilon - spent <= 2e-3 * budget.epsilon
    assert epsilon(events_of(multiplier * (1 - 2e-3)), budget.delta, budget.neighbours) > budget.epsilon * (1 - 1e-4)
    return multiplier


@pytest.mark.parametrize("rate", [1e-3, 0.01, 0.1])
@pytest.mark.parametrize(("steps", "target"), [(1, 1.0), (100, 0.1), (100, 8.0), (10_000, 1.0)])
def test_calibration_ends_just_inside_the_budget(rate: float, steps: int, target: float):
    check_calibration(lambda z: [poisson(rate, z, steps)], Budget(epsilon=target, delta=1e-6))


@pytest.mark.parametrize("relation", ["zero-out", "add-remove", "replace-one"])
def test_calibration_of_several_events(relation: Neighbours):
    budget = Budget(epsilon=2.0, delta=1e-6, neighbours=relation)
    check_calibration(lambda z: [poisson(0.05, z, 50), poisson(0.01, 1.5 * z, 200), full_batch(20 * z, 10)], budget)
    check_calibration(lambda z: [full_batch(z, 3), single_pass(2 * z, 10)], budget)
    check_calibration(lambda z: [poisson(0.05, z, 50), full_batch(40.0, 2)], budget)  # a part that stays as it is


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 50), st.floats(-12, -2), st.integers(1, 10**5), st.sampled_from(["zero-out", "replace-one"]))
def test_calibration_without_subsampling_is_exact(target: float, exponent: float, steps: int, relation: Neighbours):
    budget = Budget(epsilon=target, delta=10**exponent, neighbours=relation)
    multiplier = calibrate(lambda z: [full_batch(z, steps)], budget)
    assert epsilon([full_batch(multiplier, steps)], budget.delta, relation) <= target
    factor = 2 if relation == "replace-one" else 1
    exact = factor * math.sqrt(steps) / gaussian_mu_for(target, budget.delta)
    assert multiplier == pytest.approx(exact, rel=1e-11)


@pytest.mark.timing
@pytest.mark.parametrize("rate", [1e-3, 0.01, 0.1, 1.0])
def test_calibration_of_a_hundred_thousand_steps_is_quick(rate: float):
    """2 s of one idle core; twice that of processor time, which a busy machine stretches too."""
    for target in (1.0, 8.0):
        begun = time.process_time()
        check = calibrate(lambda z: [poisson(rate, z, 100_000)], Budget(epsilon=target, delta=1e-6))
        assert time.process_time() - begun < 4.0
        assert check > 0


def test_what_no_noise_can_meet_is_said():
    budget = Budget(epsilon=0.5, delta=1e-6)
    with pytest.raises(ConfigurationError, match="no noise multiplier up to 1e"):
        calibrate(lambda z: [poisson(0.01, z, 10), full_batch(1.0)], budget)
    with pytest.raises(ConfigurationError, match="no noise multiplier up to 1e"):
        calibrate(lambda z: [full_batch(z, 10**15)], budget)
    with pytest.raises(ConfigurationError, match="release nothing"):
        calibrate(lambda z: [poisson(0.01, z, 0)], budget)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_delta_is_checked(target: float):
    for call in (
        lambda: epsilon([], target),
        lambda: gaussian_epsilon(1.0, target),
        lambda: gaussian_mu_for(1, target),
    ):
        with pytest.raises(ConfigurationError, match="delta"):
            call()


@pytest.mark.parametrize("at", [-1.0, math.inf, math.nan])
def test_epsilon_is_checked(at: float):
    for call in (lambda: delta([], at), lambda: gaussian_delta(1.0, at), lambda: gaussian_mu_for(at, 1e-6)):
        with pytest.raises(ConfigurationError, match="epsilon"):
            call()


@pytest.mark.parametrize(
    ("event", "named"),
    [(poisson(rate, 1.0), "rate") for rate in (0.0, -0.1, 1.1, math.nan)]
    + [(full_batch(multiplier), "noise_multiplier") for multiplier in (0.0, -1.0, math.nan)]
    + [(poisson(0.5, 1.0, -1), "steps")],
)
def test_events_are_checked(event: Event, named: str):
    for call in (lambda: epsilon([event], 1e-6), lambda: delta([event], 1.0), lambda: gaussian_mu([event])):
        with pytest.raises(ConfigurationError, match=named):
            call()


def test_relations_are_checked():
    with pytest.raises(ConfigurationError, match="zero-out"):
        epsilon([], 1e-6, "swap")  # pyright: ignore[reportArgumentType]
