"""Noise for running sums: the factorisations, their norms, what the noise is, and what it guarantees."""

import copy
import math
import pickle
import time
import tracemalloc
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.linalg import solve_toeplitz

from sottovoce.privacy import tree
from sottovoce.privacy.entropy import OperatingSystemEntropy
from sottovoce.privacy.errors import ConfigurationError, PlanViolation
from sottovoce.privacy.tree import Factorisation, PrefixSums, prefix_sums, sensitivity
from sottovoce.testing import ReplayableEntropy

BOTH: tuple[Factorisation, Factorisation] = ("fenwick", "toeplitz")
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100]
SCALE = 2.0**40
UNIT = 2**10  # the square root's coefficients are rounded to multiples of 1 / UNIT
SIGMAS = 5.5  # two-sided false alarm of a normal statistic: 3.8e-8


def low_bit(b: int) -> int:
    return b & -b


def encoder(factorisation: Factorisation, n: int) -> np.ndarray:
    """C, written from its definition: the node of each b, or the square root's coefficients to ten binary digits."""
    if factorisation == "fenwick":
        return np.array([[float(b - low_bit(b) < i <= b) for i in range(1, n + 1)] for b in range(1, n + 1)])
    coefficients = [round(Fraction(math.comb(2 * k, k), 4**k) * UNIT) / UNIT for k in range(n)]
    return np.array([[coefficients[b - i] if i <= b else 0.0 for i in range(n)] for b in range(n)])


def following(sums: PrefixSums, leaf: np.ndarray | None = None) -> np.ndarray:
    """The next prefix; without a leaf, its noise alone."""
    return sums.add(np.zeros(sums._width, dtype=np.int64) if leaf is None else leaf)


def draw_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaf t's draw becomes scale x the t-th unit vector, so prefix t's noise is scale x row t of B."""
    drawn = 0

    def unit(count: int, scale: float, _: object) -> np.ndarray:
        nonlocal drawn
        drawn += 1
        return np.where(np.arange(count) == (drawn - 1) % count, scale, 0.0).astype(np.int64)

    monkeypatch.setattr(tree, "rounded_normals", unit)


def decoder(factorisation: Factorisation, n: int) -> np.ndarray:
    """B as the implementation has it."""
    noise = prefix_sums(factorisation, length=n, width=n, scale=SCALE, entropy=OperatingSystemEntropy())
    return np.array([following(noise) for _ in range(n)]) / SCALE


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
    noise = prefix_sums(factorisation, length=n, width=width, scale=scale, entropy=OperatingSystemEntropy())
    drawn = np.array([following(noise) for _ in range(n)]) / scale
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
    noise = prefix_sums(factorisation, length=1, width=64, scale=1e6, entropy=OperatingSystemEntropy())
    assert np.any(following(noise))


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
    noise = prefix_sums(factorisation, length=n, width=runs, scale=scale, entropy=OperatingSystemEntropy())
    inner = encoder(factorisation, n)
    decode = np.tri(n) @ np.linalg.inv(inner)
    released = np.zeros((n, runs))
    sums, signs = np.zeros((n, runs)), np.zeros((n, runs))
    for t in range(n):
        before = released[t - 1] if t else np.zeros(runs)
        leaf = np.floor(leaves[t] * np.tanh(before) / grid).astype(np.int64)
        signs[t] = np.where(np.sin(3 * before) >= 0, 1.0, -1.0)
        sums[t] = (sums[t - 1] if t else 0) + leaf * grid
        released[t] = following(noise, leaf) * grid
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
    """Memory O(width log length): a row for each of at most 10 open nodes, the total, and a few to work with."""
    width, length = 20_000, 1000
    monkeypatch.setattr(tree, "rounded_normals", lambda count, *_: np.ones(count, dtype=np.int64))
    noise = prefix_sums("fenwick", length=length, width=width, scale=1.0, entropy=OperatingSystemEntropy())
    tracemalloc.start()
    for t in range(1, length + 1):
        assert following(noise)[0] == t.bit_count()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15 * width * 8 + 100_000


def test_toeplitz_pays_only_for_the_leaves_it_has_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tree, "rounded_normals", lambda count, *_: np.ones(count, dtype=np.int64))
    tracemalloc.start()
    noise = prefix_sums("toeplitz", length=10_000, width=10_000, scale=1.0, entropy=OperatingSystemEntropy())
    for _ in range(5):
        following(noise)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 10_000 * 8


@pytest.mark.parametrize("factorisation", BOTH)
@pytest.mark.parametrize("largest", [2**20, 2**53])
def test_what_is_released_is_a_function_of_the_encoded_release(factorisation, largest, monkeypatch):
    """Two worlds whose integers C x + noise agree release the same bits, wrapped round or not.

    So the float64 decoding reads nothing but what the ideal Gaussian mechanism gave.
    """
    length, width = 24, 5
    generator = np.random.default_rng(largest)
    inner = encoder(factorisation, length) * (UNIT if factorisation == "toeplitz" else 1)
    encoded = [generator.integers(-(2**40), 2**40, width) for _ in range(length)]
    released = []
    for _ in range(2):
        leaves = generator.integers(-largest, largest, (length, width))
        if factorisation == "fenwick":  # the noise is drawn for a node, and a node's sum is C's row
            noises = iter([encoded[t] - inner[t].astype(np.int64) @ leaves for t in range(length)])
        else:
            noises = iter([encoded[t] - np.einsum("i,ij->j", inner[t].astype(np.int64), leaves) for t in range(length)])
        monkeypatch.setattr(tree, "rounded_normals", lambda *_, noises=noises: next(noises))
        sums = prefix_sums(factorisation, length=length, width=width, scale=9.0, entropy=OperatingSystemEntropy())
        released.append(np.array([following(sums, leaf) for leaf in leaves]))
    assert np.array_equal(released[0].view(np.int64), released[1].view(np.int64))


@pytest.mark.parametrize("factorisation", BOTH)
def test_without_noise_the_prefixes_are_the_sums(factorisation, monkeypatch: pytest.MonkeyPatch):
    """The error of decoding a window of 2,048 leaves is below a millionth of a grid cell for each unit of a leaf."""
    length, width, largest = 2048, 3, 2**20
    monkeypatch.setattr(tree, "rounded_normals", lambda count, *_: np.zeros(count, dtype=np.int64))
    leaves = np.random.default_rng(0).integers(-largest, largest, (length, width))
    sums = prefix_sums(factorisation, length=length, width=width, scale=1.0, entropy=OperatingSystemEntropy())
    prefixes = np.array([following(sums, leaf) for leaf in leaves])
    exact = np.cumsum(leaves, axis=0)
    assert np.abs(prefixes - exact).max() <= (0 if factorisation == "fenwick" else 1e-6)


@pytest.mark.parametrize("n", [16, 256, 4096, 16_384])
def test_rounding_the_encoder_costs_less_than_a_thousandth(n: int):
    """The worst prefix's noise at mu = 1: |last row of B| |first column of C|, against the exact square root's."""
    rounded = tree._encoder(n) / UNIT
    doubled = 2.0 * np.arange(1, n)
    exact = np.concatenate(([1.0], np.cumprod((doubled - 1) / doubled)))
    assert np.abs(rounded - exact).max() <= 0.5 / UNIT
    row = solve_toeplitz((rounded, np.r_[rounded[0], np.zeros(n - 1)]), np.ones(n))
    assert np.linalg.norm(row) * np.linalg.norm(rounded) == pytest.approx(np.sum(exact**2), rel=1e-3)


@pytest.mark.parametrize("factorisation", BOTH)
def test_each_leaf_has_draws_of_its_own(factorisation):
    """Under a replayable entropy too, where two leaves with one purpose would share their draws."""
    noise = prefix_sums(factorisation, length=16, width=2, scale=1e9, entropy=ReplayableEntropy("own"))
    prefixes = np.array([following(noise) for _ in range(16)]) / 1e9
    draws = np.linalg.solve(np.tri(16) @ np.linalg.inv(encoder(factorisation, 16)), prefixes)
    assert len(np.unique(np.round(draws, 6))) == 32


@pytest.mark.parametrize("factorisation", BOTH)
def test_past_the_planned_length_nothing_is_drawn(factorisation, monkeypatch: pytest.MonkeyPatch):
    noise = prefix_sums(factorisation, length=3, width=2, scale=5.0, entropy=OperatingSystemEntropy())
    for _ in range(3):
        following(noise)

    def never(*_):
        raise AssertionError("drawn past the plan")

    monkeypatch.setattr(tree, "rounded_normals", never)
    for _ in range(2):
        with pytest.raises(PlanViolation, match="3 planned prefixes"):
            following(noise)


@pytest.mark.parametrize("factorisation", BOTH)
def test_an_interrupted_draw_ends_the_sum(factorisation, monkeypatch: pytest.MonkeyPatch):
    noise = prefix_sums(factorisation, length=8, width=2, scale=5.0, entropy=OperatingSystemEntropy())
    following(noise)
    with monkeypatch.context() as failing:
        failing.setattr(tree, "rounded_normals", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            following(noise)
    with pytest.raises(PlanViolation):
        following(noise)


@pytest.mark.parametrize("factorisation", BOTH)
def test_the_state_cannot_leave_the_process(factorisation):
    noise = prefix_sums(factorisation, length=3, width=2, scale=5.0, entropy=OperatingSystemEntropy())
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="private"):
            leave(noise)
    assert "5.0" not in repr(noise)


@pytest.mark.parametrize("factorisation", BOTH)
def test_what_was_handed_out_is_not_the_state(factorisation):
    def run(spoil: bool) -> np.ndarray:
        noise = prefix_sums(factorisation, length=9, width=4, scale=1e6, entropy=ReplayableEntropy("k"))
        drawn = []
        for _ in range(9):
            one = following(noise)
            drawn.append(one.copy())
            if spoil:
                one += 1_000_000
        return np.array(drawn)

    assert np.array_equal(run(spoil=False), run(spoil=True))


@pytest.mark.parametrize("factorisation", BOTH)
def test_a_leaf_is_a_vector_of_whole_grid_cells(factorisation):
    sums = prefix_sums(factorisation, length=2, width=3, scale=9.0, entropy=OperatingSystemEntropy())
    assert following(sums).shape == (3,)
    wrong: Any
    for wrong in (np.zeros(2, dtype=np.int64), np.zeros(3)):
        with pytest.raises(PlanViolation, match="64-bit integers"):
            sums.add(wrong)


@pytest.mark.parametrize("factorisation", BOTH)
def test_sensitivity_of_a_million_leaves_is_quick(factorisation):
    leaves = np.ones(10**6)
    started = time.process_time()
    found = sensitivity(factorisation, leaves)  # pyright: ignore[reportArgumentType]
    assert time.process_time() - started < 2
    if factorisation == "fenwick":
        assert found == math.sqrt(20)
    else:  # beyond 10^5 leaves the rounding of C shows
        assert found == pytest.approx(math.sqrt(math.log(10**6) / math.pi + 1.066), rel=0.03)


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
        prefix_sums(plan.pop("factorisation"), **plan, entropy=OperatingSystemEntropy())  # pyright: ignore
    if "factorisation" in wrong:
        with pytest.raises(ConfigurationError):
            sensitivity(wrong["factorisation"], [1.0])
