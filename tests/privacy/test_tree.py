"""Noise for running sums: the factorisations, their norms, what the noise is, and what it guarantees."""

import copy
import math
import pickle
import time
import tracemalloc
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from sottovoce.privacy import tree
from sottovoce.privacy.entropy import OperatingSystemEntropy
from sottovoce.privacy.errors import ConfigurationError, PlanViolation
from sottovoce.privacy.tree import (
    Factorisation,
    prefix_noise,
    rounding_bound,
    sensitivity,
)
from sottovoce.testing import ReplayableEntropy

BOTH: tuple[Factorisation, Factorisation] = ("fenwick", "toeplitz")
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100]
SCALE = 2.0**40
SIGMAS = 5.5  # two-sided false alarm of a normal statistic: 3.8e-8


def low_bit(b: int) -> int:
    return b & -b


def encoder(factorisation: Factorisation, n: int) -> np.ndarray:
    """C, written from its definition: the node of each b, or the exact coefficients of the square root."""
    if factorisation == "fenwick":
        return np.array([[float(b - low_bit(b) < i <= b) for i in range(1, n + 1)] for b in range(1, n + 1)])
    coefficients = [math.comb(2 * k, k) / 4**k for k in range(n)]
    return np.array([[coefficients[b - i] if i <= b else 0.0 for i in range(n)] for b in range(n)])


def draw_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaf t's draw becomes scale x the t-th unit vector, so prefix t's noise is scale x row t of B."""
    drawn = 0

    def unit(count: int, scale: float) -> np.ndarray:
        nonlocal drawn
        drawn += 1
        return np.where(np.arange(count) == (drawn - 1) % count, scale, 0.0)

    monkeypatch.setattr(
        tree, "rounded_normals", lambda count, scale, _: unit(count, scale).astype(np.int64), raising=True
    )
    monkeypatch.setattr(tree, "grid_normals", lambda count, _: unit(count, 1.0), raising=True)


def decoder(factorisation: Factorisation, n: int) -> np.ndarray:
    """B as the implementation has it."""
    noise = prefix_noise(factorisation, length=n, width=n, scale=SCALE, entropy=OperatingSystemEntropy())
    return np.array([noise.next() for _ in range(n)]) / SCALE


@pytest.mark.parametrize("n", LENGTHS)
def test_fenwick_covers_every_prefix_exactly_once(n: int, monkeypatch: pytest.MonkeyPatch):
    draw_units(monkeypatch)
    chosen = decoder("fenwick", n)
    for t in range(1, n + 1):
        nodes = sorted((b - low_bit(b) + 1, b) for b in range(1, n + 1) if chosen[t - 1, b - 1])
        assert nodes[0][0] == 1 and nodes[-1][1] == t
        assert all(left[1] + 1 == right[0] for left, right in pairwise(nodes))
        assert len(nodes) == t.bit_count()
        if t == 7:
            assert nodes == [(1, 4), (5, 6), (7, 7)]


@pytest.mark.parametrize("factorisation", BOTH)
@pytest.mark.parametrize("n", LENGTHS)
def test_decoder_times_encoder_is_the_prefix_matrix(factorisation, n: int, monkeypatch: pytest.MonkeyPatch):
    draw_units(monkeypatch)
    product = decoder(factorisation, n) @ encoder(factorisation, n)
    assert np.allclose(product, np.tri(n), rtol=0, atol=1e-11 if factorisation == "toeplitz" else 0)


@pytest.mark.parametrize("factorisation", BOTH)
@pytest.mark.parametrize("n", LENGTHS)
def test_sensitivity_is_the_weighted_column_norm_of_the_encoder(factorisation, n: int):
    norms = np.linalg.norm(encoder(factorisation, n), axis=0)
    for leaf in range(n):
        assert sensitivity(factorisation, [3.0 * (i == leaf) for i in range(n)]) == pytest.approx(
            3 * norms[leaf], rel=1e-14
        )
    unequal = np.random.default_rng(n).exponential(size=n)
    assert sensitivity(factorisation, list(unequal)) == pytest.approx(np.max(unequal * norms), rel=1e-14)


def test_equal_leaves_cost_floor_log2_plus_one_nodes():
    for n in [*range(1, 1001), 2**16 - 1, 2**16, 2**16 + 1]:
        assert sensitivity("fenwick", [2.0] * n) == 2 * math.sqrt(n.bit_length())
    full = 2**10
    for leaf in (1, 2, 3, 512, 513, 1023, 1024):
        zeros = 10 - (leaf - 1).bit_count()
        assert sensitivity("fenwick", [float(i == leaf) for i in range(1, full + 1)]) == math.sqrt(1 + zeros)


@pytest.mark.parametrize(
    ("n", "fenwick_worst", "fenwick_rms", "toeplitz_worst", "toeplitz_rms"),
    [
        (2**4, 4.47, 3.21, 1.94, 1.80),
        (2**6, 6.48, 4.59, 2.39, 2.23),
        (2**8, 8.49, 6.00, 2.83, 2.67),
        (2**10, 10.49, 7.42, 3.27, 3.11),
    ],
)
def test_noise_at_mu_one(n, fenwick_worst, fenwick_rms, toeplitz_worst, toeplitz_rms, monkeypatch):
    """The standard deviation of a prefix at mu = 1 and s = 1: worst prefix and root mean square."""
    draw_units(monkeypatch)
    expected = {"fenwick": (fenwick_worst, fenwick_rms), "toeplitz": (toeplitz_worst, toeplitz_rms)}
    for factorisation in BOTH:
        worst, rms = expected[factorisation]
        rows = np.linalg.norm(decoder(factorisation, n), axis=1) * sensitivity(factorisation, [1.0] * n)
        assert rows.max() == pytest.approx(worst, abs=0.005001)
        assert math.sqrt(np.mean(rows**2)) == pytest.approx(rms, abs=0.005001)
    assert sensitivity("toeplitz", [1.0] * n) ** 2 == pytest.approx(math.log(n) / math.pi + 1.07, abs=0.01)


@pytest.mark.parametrize("factorisation", BOTH)
@pytest.mark.parametrize("n", [1, 8, 13])
def test_variance_of_each_prefix_and_of_each_increment(factorisation, n: int):
    """Real noise: 2 n statistics, each off by 5.5 standard errors with probability 4e-8 (1.6e-6 over all)."""
    scale, width = 1e6, 100_000
    noise = prefix_noise(factorisation, length=n, width=width, scale=scale, entropy=OperatingSystemEntropy())
    drawn = np.array([noise.next() for _ in range(n)]) / scale
    inverse = np.linalg.inv(encoder(factorisation, n))
    rows = np.tri(n) @ inverse
    increments = inverse.copy()
    error = SIGMAS * math.sqrt(2 / width)
    assert np.allclose(np.mean(drawn**2, axis=1) / np.sum(rows**2, axis=1), 1, rtol=0, atol=error)
    changes = np.diff(drawn, axis=0, prepend=0)
    assert np.allclose(np.mean(changes**2, axis=1) / np.sum(increments**2, axis=1), 1, rtol=0, atol=error)
    if factorisation == "fenwick":
        assert np.allclose(np.sum(rows**2, axis=1), [t.bit_count() for t in range(1, n + 1)])
    # No increment is free of noise: the last one least of all.
    assert np.sum(increments**2, axis=1).min() >= 1


@pytest.mark.parametrize("factorisation", BOTH)
def test_one_leaf_alone_has_noise(factorisation):
    """Zero in all 64 coordinates of a sum of one leaf at scale 1e6 has probability below 1e-400."""
    assert sensitivity(factorisation, [1.5]) == 1.5
    noise = prefix_noise(factorisation, length=1, width=64, scale=1e6, entropy=OperatingSystemEntropy())
    assert np.any(noise.next())


@pytest.mark.parametrize("factorisation", BOTH)
def test_adaptive_privacy_loss(factorisation):
    """The privacy loss of 16 adaptive leaves of unequal sensitivity, from the noise that was really drawn.

    Every coordinate is an independent run of a scalar sum. Each leaf is a function of the prefixes released
    before it, and so is the sign of the change that the record makes in its leaf. At the most exposed leaf
    the loss has mean mu^2/2 and variance mu^2; at every leaf the mean of exp(-loss) is 1. Each of the 48 normal
    statistics errs with probability 4e-8, 2e-6 over all.
    """
    n, runs, grid, target = 16, 50_000, 2.0**-20, 0.8
    leaves = np.array([0.3 + 0.7 * ((5 * i) % 16) / 16 for i in range(n)])
    scale = sensitivity(factorisation, list(leaves)) / (target * grid)
    noise = prefix_noise(factorisation, length=n, width=runs, scale=scale, entropy=OperatingSystemEntropy())
    inner = encoder(factorisation, n)
    decode = np.tri(n) @ np.linalg.inv(inner)
    released, total = np.zeros((n, runs)), np.zeros(runs, dtype=np.int64)
    sums, signs = np.zeros((n, runs)), np.zeros((n, runs))
    for t in range(n):
        before = released[t - 1] if t else np.zeros(runs)
        total += np.floor(leaves[t] * np.tanh(before) / grid).astype(np.int64)
        signs[t] = np.where(np.sin(3 * before) >= 0, 1.0, -1.0)
        sums[t] = total * grid
        released[t] = (total + noise.next()) * grid
    standard = np.linalg.solve(decode, released - sums) / (scale * grid)

    exposures = leaves * np.linalg.norm(inner, axis=0) / (scale * grid)
    assert exposures.max() == pytest.approx(target, rel=1e-12)
    for leaf in range(n):
        shift = np.outer(inner[:, leaf], signs[leaf] * leaves[leaf] / (scale * grid))
        loss = np.sum(standard * shift, axis=0) + np.sum(shift**2, axis=0) / 2
        mu = exposures[leaf]
        assert abs(loss.mean() - mu**2 / 2) < SIGMAS * mu / math.sqrt(runs)
        assert abs(loss.var() / mu**2 - 1) < SIGMAS * math.sqrt(2 / runs)
        assert abs(np.exp(-loss).mean() - 1) < SIGMAS * math.sqrt(math.expm1(mu**2) / runs)


def test_fenwick_keeps_only_the_open_nodes(monkeypatch: pytest.MonkeyPatch):
    """Memory O(width log length): a row for each of at most 10 open nodes, the total, one result."""
    width, length = 20_000, 1000
    monkeypatch.setattr(tree, "rounded_normals", lambda count, *_: np.ones(count, dtype=np.int64))
    noise = prefix_noise("fenwick", length=length, width=width, scale=1.0, entropy=OperatingSystemEntropy())
    tracemalloc.start()
    for t in range(1, length + 1):
        assert noise.next()[0] == t.bit_count()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 13 * width * 8 + 100_000


def test_toeplitz_pays_only_for_the_leaves_it_has_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tree, "grid_normals", lambda count, _: np.ones(count))
    tracemalloc.start()
    noise = prefix_noise("toeplitz", length=10_000, width=10_000, scale=1.0, entropy=OperatingSystemEntropy())
    for _ in range(5):
        noise.next()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * 10_000 * 8


def test_toeplitz_rounds_once_within_the_stated_bound(monkeypatch: pytest.MonkeyPatch):
    """Against rational arithmetic, with the part of the bound that the normals' own grid takes left out."""
    length, width, scale = 80, 8, 2.0**45 / 3
    normals: list[list[Fraction]] = []
    original = tree.grid_normals

    def recorded(count, entropy):
        drawn = original(count, entropy)
        normals.append([Fraction(float(z)) for z in drawn])
        return drawn

    monkeypatch.setattr(tree, "grid_normals", recorded)
    noise = prefix_noise("toeplitz", length=length, width=width, scale=scale, entropy=ReplayableEntropy("rounding"))
    coefficients = [Fraction(math.comb(2 * k, k), 4**k) for k in range(length)]
    grid_part = scale * float(sum(coefficients)) * 2.0**-31
    allowed = rounding_bound(length, scale) - grid_part
    assert 0 < allowed < 100 < grid_part
    worst = 0.0
    for t in range(1, length + 1):
        rounded = noise.next()
        for column in range(width):
            exact = Fraction(scale) * sum(coefficients[k] * normals[t - 1 - k][column] for k in range(t))
            worst = max(worst, abs(float(exact - int(rounded[column]))))
    assert worst < allowed + 0.5
    assert all((z * 2**30).denominator == 1 for row in normals for z in row)


def test_toeplitz_rounds_halves_up():
    """At a small scale the rounding is floor(x + 1/2) of the rational combination (a fixed stream)."""
    length, width, scale = 20, 50, 3.0
    noise = prefix_noise("toeplitz", length=length, width=width, scale=scale, entropy=ReplayableEntropy("halves"))
    normals = [tree.grid_normals(width, ReplayableEntropy("halves").fork("prefix", t)) for t in range(1, length + 1)]
    combined = scale * encoder("toeplitz", length) @ np.array(normals)
    assert np.array_equal([noise.next() for _ in range(length)], np.floor(combined + 0.5))


@pytest.mark.parametrize("factorisation", BOTH)
def test_each_leaf_has_draws_of_its_own(factorisation):
    """Under a replayable entropy too, where two leaves with one purpose would share their draws."""
    noise = prefix_noise(factorisation, length=16, width=2, scale=1e9, entropy=ReplayableEntropy("own"))
    prefixes = np.array([noise.next() for _ in range(16)]) / 1e9
    draws = np.linalg.solve(np.tri(16) @ np.linalg.inv(encoder(factorisation, 16)), prefixes)
    assert len(np.unique(np.round(draws, 6))) == 32


@pytest.mark.parametrize("factorisation", BOTH)
def test_past_the_planned_length_nothing_is_drawn(factorisation, monkeypatch: pytest.MonkeyPatch):
    noise = prefix_noise(factorisation, length=3, width=2, scale=5.0, entropy=OperatingSystemEntropy())
    for _ in range(3):
        noise.next()

    def never(*_):
        raise AssertionError("drawn past the plan")

    monkeypatch.setattr(tree, "rounded_normals", never)
    monkeypatch.setattr(tree, "grid_normals", never)
    for _ in range(2):
        with pytest.raises(PlanViolation, match="3 planned prefixes"):
            noise.next()


@pytest.mark.parametrize("factorisation", BOTH)
def test_an_interrupted_draw_ends_the_sum(factorisation, monkeypatch: pytest.MonkeyPatch):
    noise = prefix_noise(factorisation, length=8, width=2, scale=5.0, entropy=OperatingSystemEntropy())
    noise.next()
    with monkeypatch.context() as failing:
        for name in ("rounded_normals", "grid_normals"):
            failing.setattr(tree, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            noise.next()
    with pytest.raises(PlanViolation):
        noise.next()


@pytest.mark.parametrize("factorisation", BOTH)
def test_the_state_cannot_leave_the_process(factorisation):
    noise = prefix_noise(factorisation, length=3, width=2, scale=5.0, entropy=OperatingSystemEntropy())
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PlanViolation, match="new running sum"):
            leave(noise)
    assert "5.0" not in repr(noise)


@pytest.mark.parametrize("factorisation", BOTH)
def test_what_was_handed_out_is_not_the_state(factorisation):
    def run(spoil: bool) -> np.ndarray:
        noise = prefix_noise(factorisation, length=9, width=4, scale=1e6, entropy=ReplayableEntropy("k"))
        drawn = []
        for _ in range(9):
            one = noise.next()
            drawn.append(one.copy())
            if spoil:
                one += 1_000_000
        return np.array(drawn)

    assert np.array_equal(run(spoil=False), run(spoil=True))


@pytest.mark.parametrize("factorisation", BOTH)
def test_noise_is_a_vector_of_whole_grid_cells(factorisation):
    noise = prefix_noise(factorisation, length=2, width=3, scale=9.0, entropy=OperatingSystemEntropy())
    first = noise.next()
    assert first.dtype == np.int64 and first.shape == (3,)


@pytest.mark.parametrize("factorisation", BOTH)
def test_sensitivity_of_a_million_leaves_is_quick(factorisation):
    leaves = np.ones(10**6)
    started = time.process_time()
    found = sensitivity(factorisation, leaves)  # pyright: ignore[reportArgumentType]
    assert time.process_time() - started < 2
    expected = math.sqrt(20) if factorisation == "fenwick" else math.sqrt(math.log(10**6) / math.pi + 1.066)
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("leaves", [[], [0.0], [0.0, 0.0], [1.0, -1.0], [1.0, math.nan], [math.inf], [[1.0]]])
@pytest.mark.parametrize("factorisation", BOTH)
def test_senseless_sensitivities_are_refused(factorisation, leaves):
    with pytest.raises(ConfigurationError):
        sensitivity(factorisation, leaves)


@pytest.mark.parametrize(
    "wrong",
    [
        {"factorisation": "honaker"},
        {"length": 0},
        {"width": 0},
        {"scale": 0.0},
        {"scale": -1.0},
        {"scale": math.nan},
        {"scale": math.inf},
        {"scale": 2.0**46},
    ],
)
def test_senseless_plans_are_refused(wrong):
    plan = {"factorisation": "fenwick", "length": 4, "width": 4, "scale": 4.0} | wrong
    with pytest.raises(ConfigurationError):
        prefix_noise(plan.pop("factorisation"), **plan, entropy=OperatingSystemEntropy())  # pyright: ignore
    if "factorisation" in wrong:
        with pytest.raises(ConfigurationError):
            sensitivity(wrong["factorisation"], [1.0])
    elif "scale" in wrong:
        with pytest.raises(ConfigurationError):
            rounding_bound(4, wrong["scale"])
