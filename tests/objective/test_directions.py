"""Public random directions: replay, independence, distribution, and the pinned stream."""

import hashlib
import math
import random
import subprocess
import sys
from itertools import combinations, pairwise
from typing import Any, get_args

import numpy as np
import pytest
import torch

from sottovoce.objective import directions as module
from sottovoce.objective.directions import (
    BLOCK,
    Directions,
    Key,
    Kind,
    Layout,
    combine,
    draw,
    gaussian,
    orthonormal,
    pieces,
    rademacher,
    sphere,
)
from sottovoce.privacy.errors import ConfigurationError

KINDS: tuple[Kind, ...] = get_args(Kind)
SMALL = Layout(("weight", "empty", "bias"), (50, 0, 7))
LONG = Layout(("first", "long", "last"), (13, 2 * BLOCK + 1001, 77))
KEY = Key(2024).fold("test")
SIGMAS = 5.5  # two-sided false alarm of a normal statistic: 3.8e-8


def make(kind: str, layout: Layout, count: int, key: Key = KEY) -> Directions:
    if kind == "orthonormal":
        return orthonormal(layout, count=count, key=key)
    return draw(kind, layout, count=count, key=key)  # pyright: ignore[reportArgumentType]


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.numpy().astype("<f4").tobytes()).hexdigest()


# Keys


def test_keys_are_values_and_their_paths_are_unambiguous():
    assert Key(1).fold("a").fold(2) == Key(1).fold("a", 2) == Key(1, ("a", 2))
    counted: Any = np.int64(2)
    assert Key(counted).fold(counted) == Key(2).fold(2) and type(Key(counted).fold(counted).path[0]) is int
    paths = [(), ("a",), ("a", "b"), ("ab",), ("a", "b", ""), (1,), ("1",), (12,), (1, 2), (-1,), ("i1:2",), ("as1:b",)]
    keys = [Key(seed, path) for seed in (0, 1, 12, -1, 2**200) for path in paths]
    first = [key.generator().bit_generator.random_raw() for key in keys]
    assert len(set(first)) == len(keys)
    key = Key(3)
    assert key.generator().bit_generator.random_raw() == key.generator().bit_generator.random_raw()
    with pytest.raises(AttributeError):
        key.seed = 4  # pyright: ignore[reportAttributeAccessIssue]


def test_seeds_that_differ_only_beyond_32_or_64_bits_differ():
    seeds = [5, 5 + 2**32, 5 + 2**64, 5 + 2**128]
    vectors = [gaussian(SMALL, count=1, key=Key(seed)).vector(0) for seed in seeds]
    assert all(not torch.equal(a, b) for a, b in combinations(vectors, 2))


@pytest.mark.parametrize("wrong", [(1.5, ()), ("1", ()), (1, (2.5,)), (None, ())])
def test_senseless_keys_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        Key(*wrong)


# Replay


def test_pieces_cut_at_block_borders():
    assert list(pieces(0, 0)) == []
    assert list(pieces(5, 9)) == [(0, 5, 9)]
    assert list(pieces(BLOCK - 1, 2 * BLOCK + 1)) == [(0, BLOCK - 1, BLOCK), (1, 0, BLOCK), (2, 0, 1)]
    for start, stop in ((0, BLOCK), (BLOCK, 3 * BLOCK), (7, 5 * BLOCK + 3)):
        covered = [BLOCK * b + i for b, first, end in pieces(start, stop) for i in (first, end - 1)]
        assert covered[0] == start and covered[-1] == stop - 1
        assert all(b - a == 1 for a, b in list(pairwise(covered))[1::2])


@pytest.mark.parametrize("kind", KINDS)
def test_any_slices_in_any_order_agree_with_the_whole(kind: Kind):
    whole = make(kind, LONG, 3)
    vector = whole.vector(1)
    assert vector.dtype == torch.float32 and vector.shape == (LONG.numel,)
    generator = random.Random(5)
    size = LONG.sizes[1]
    borders = [0, 1, 7, 64, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, size - 1, size]
    slices = [(generator.choice(borders), generator.randrange(size + 1)) for _ in range(12)]
    slices += [(0, size), (BLOCK - 3, BLOCK + 3), (9, 9)]
    replayed = make(kind, LONG, 3)  # its first request is a slice, not the whole
    for a, b in slices:
        start, stop = sorted((a, b))
        part = replayed.block(1, "long", start, stop)
        assert part.dtype == torch.float32
        assert torch.equal(part, vector[13 + start : 13 + stop])
    assert torch.equal(replayed.block(1, "last", 0, 77), vector[-77:])
    assert torch.equal(replayed.vector(1), vector)
    assert torch.equal(whole.vector(1), vector)  # drawn again after its norm is known


def test_another_process_replays_the_same_bits():
    program = f"""
import hashlib
from sottovoce.objective.directions import Key, Layout, draw, orthonormal
key, small, long = Key({KEY.seed}, {KEY.path!r}), {SMALL!r}, {LONG!r}
made = [draw(kind, long, count=2, key=key) for kind in {KINDS!r}]
for d in [*made, orthonormal(small, count=2, key=key)]:
    print(hashlib.sha256(d.vector(1).numpy().astype("<f4").tobytes()).hexdigest())
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    here = [*(make(kind, LONG, 2) for kind in KINDS), make("orthonormal", SMALL, 2)]
    assert found.split() == [digest(d.vector(1)) for d in here]


@pytest.mark.parametrize("kind", ["gaussian", "rademacher"])
def test_a_parameter_does_not_depend_on_the_others_nor_on_sizes_and_counts(kind: Kind):
    here = make(kind, Layout(("a", "b"), (100, 70_000)), 2)
    there = make(kind, Layout(("b", "c", "a"), (66_000, 5, 40)), 9)
    assert torch.equal(here.block(1, "a", 0, 40), there.block(1, "a", 0, 40))
    assert torch.equal(here.block(1, "b", 65_000, 66_000), there.block(1, "b", 65_000, 66_000))


def test_on_the_sphere_only_the_norm_depends_on_the_others():
    here = make("sphere", Layout(("a", "b"), (100, 30)), 2).block(1, "a", 0, 100)
    there = make("sphere", Layout(("b", "a"), (300, 100)), 2).block(1, "a", 0, 100)
    ratio = (here.double() / there.double()).numpy()
    assert np.allclose(ratio, ratio[0], rtol=1e-6) and abs(ratio[0] - 1) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_steps_queries_names_and_blocks_have_draws_of_their_own(kind: Kind):
    """No two of 9 stretches of 10,000 correlate beyond 5.5 standard errors: 1.4e-6 over all keys."""
    n = 10_000
    layout = Layout(("a", "b"), (BLOCK + n, n))
    stretches = []
    for key in (KEY.fold(0), KEY.fold(1), Key(2025).fold("test", 0)):
        d = make(kind, layout, 2, key)
        stretches += [d.block(0, "a", 0, n), d.block(1, "a", 0, n), d.block(0, "b", 0, n)]
    stretches.append(d.block(0, "a", BLOCK, BLOCK + n))
    for one, other in combinations(stretches, 2):
        assert not torch.equal(one, other)
        assert abs(np.corrcoef(one, other)[0, 1]) < SIGMAS / math.sqrt(n)


@pytest.mark.parametrize("kind", [*KINDS, "orthonormal"])
def test_what_is_handed_out_is_not_kept(kind: str):
    d = make(kind, SMALL, 2)
    before = d.vector(0).clone()
    d.vector(0).zero_()
    d.block(0, "weight", 0, 50).zero_()
    assert torch.equal(d.vector(0), before)
    assert torch.equal(d.block(0, "bias", 0, 7), before[50:])
    assert d.block(0, "empty", 0, 0).shape == (0,)


def test_golden_values_pin_the_stream():
    """If this fails after an upgrade, numpy draws otherwise: runs of earlier versions no longer replay."""
    layout, key = Layout(("weight", "bias"), (70_000, 5)), Key(7).fold("golden")
    assert key.generator().bit_generator.random_raw(2).tolist() == [5696369818595684063, 8678100152666123319]
    normals = gaussian(layout, count=2, key=key)
    border = ["-0x1.2fb99a0000000p-1", "-0x1.67e2e20000000p+0", "-0x1.fb1b600000000p+0", "0x1.5e20fe0000000p-3"]
    assert [x.hex() for x in normals.block(1, "weight", BLOCK - 2, BLOCK + 2).tolist()] == border
    assert normals.block(1, "bias", 0, 3).tolist() == [
        -0.035676296800374985,
        -0.7709733843803406,
        0.48544424772262573,
    ]
    signs = rademacher(layout, count=2, key=key)
    assert signs.block(1, "weight", BLOCK - 2, BLOCK + 2).tolist() == [-1, 1, 1, -1]
    assert signs.block(1, "bias", 0, 5).tolist() == [-1, 1, 1, 1, -1]
    unit = sphere(layout, count=2, key=key).block(1, "weight", BLOCK - 2, BLOCK + 2)
    scale = math.sqrt(70_005) / float(normals.vector(1).double().norm())
    assert np.allclose(unit, [float.fromhex(x) * scale for x in border], rtol=2e-7)
    columns = orthonormal(Layout(("w",), (3,)), count=2, key=key)
    golden = ["0x1.36edf20000000p-1", "0x1.5aedc20000000p-1", "0x1.a8c5060000000p-2"]
    assert np.allclose(columns.vector(1), [float.fromhex(x) for x in golden], rtol=0, atol=3e-7)


# Distributions


@pytest.mark.parametrize("radius", [None, 1.0, 1e-3, 123.456])
def test_sphere_has_its_radius(radius):
    d = sphere(LONG, count=3, key=KEY, radius=radius)
    expected = math.sqrt(LONG.numel) if radius is None else radius
    for query in range(3):
        assert float(d.vector(query).double().norm()) == pytest.approx(expected, rel=1e-7)


def test_a_direction_of_zeros_is_drawn_again(monkeypatch: pytest.MonkeyPatch):
    """A float32 normal is zero once in 2^23 draws; in one dimension there would be nothing to normalise."""
    calls = 0

    def first_zero(generator: np.random.Generator, out: np.ndarray) -> None:
        nonlocal calls
        calls += 1
        out[:] = 0 if calls <= 2 else generator.standard_normal(dtype=np.float32)

    monkeypatch.setattr(module, "_normals", first_zero)
    d = sphere(Layout(("x",), (1,)), count=1, key=KEY, radius=2.0)
    drawn = d.vector(0)
    assert calls == 3 and abs(float(drawn)) == pytest.approx(2, rel=1e-6)
    assert torch.equal(d.vector(0), drawn) and torch.equal(d.block(0, "x", 0, 1), drawn)


def test_sphere_is_uniform():
    """E u u^T = (r^2 / d) I and E u = 0; each of 14 statistics errs for 4e-8 of the keys, 5e-7 over all.

    The fourth moment distinguishes the sphere from a normalised cube: E u_1^4 = 3 r^4 / (d (d + 2)).
    """
    d, count, radius = 4, 10_000, 2.0
    drawn = sphere(Layout(("a", "b"), (1, 3)), count=count, key=KEY, radius=radius)
    u = np.array([drawn.vector(q).numpy() for q in range(count)], dtype=np.float64)
    fourth = 3 * radius**4 / (d * (d + 2))
    for i in range(d):
        assert abs(u[:, i].mean()) < SIGMAS * radius / math.sqrt(d * count)
        for j in range(i + 1):
            expected = radius**2 / d if i == j else 0
            variance = fourth - expected**2 if i == j else fourth / 3
            assert abs(np.mean(u[:, i] * u[:, j]) - expected) < SIGMAS * math.sqrt(variance / count)
    eighth = 105 * radius**8 / (d * (d + 2) * (d + 4) * (d + 6))
    assert abs(np.mean(u[:, 0] ** 4) - fourth) < SIGMAS * math.sqrt((eighth - fourth**2) / count)


def test_gaussian_moments():
    """The first four moments of 130,000 normals; each errs for 4e-8 of the keys."""
    x = gaussian(LONG, count=1, key=KEY, scale=3.0).vector(0).double().numpy() / 3
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(x**power) - mean) < SIGMAS * math.sqrt(variance / x.size)


def test_rademacher_signs():
    """Signs alone; their mean and neighbours' products, at lags up to 65, err for 4e-8 of the keys each."""
    x = rademacher(LONG, count=1, key=KEY).vector(0).numpy()
    assert set(np.unique(x)) == {-1.0, 1.0}
    for lag in (1, 2, 7, 8, 63, 64, 65):
        assert abs(np.mean(x[lag:] * x[:-lag])) < SIGMAS / math.sqrt(x.size - lag)
    assert abs(x.mean()) < SIGMAS / math.sqrt(x.size)
    odd = rademacher(Layout(("w",), (61,)), count=1, key=KEY)
    assert set(odd.vector(0).tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("kind", KINDS)
def test_default_scales_make_the_second_moment_the_identity(kind: Kind):
    """Mean square 1: to 5.5 standard errors for the normals, exactly for the others."""
    x = make(kind, LONG, 1).vector(0).double()
    assert float((x**2).mean()) == pytest.approx(1, abs=SIGMAS * math.sqrt(2 / LONG.numel))


@pytest.mark.parametrize("count", [1, 5, 57, 114])
def test_orthonormal_to_rounding(count: int):
    d = orthonormal(SMALL, count=count, key=KEY)
    assert d.count == count and d.numel == 57
    rows = torch.stack([d.vector(q) for q in range(count)]).double()
    for first in range(0, count, 57):
        basis = rows[first : first + 57]
        assert torch.allclose(basis @ basis.T, torch.eye(len(basis), dtype=torch.float64), rtol=0, atol=5e-7)
    if count == 114:
        assert (rows[:57] @ rows[57:].T).abs().max() < 0.95 and not torch.equal(rows[:57], rows[57:])
    assert torch.equal(d.block(0, "weight", 3, 9), d.vector(0)[3:9])


def test_orthonormal_bases_are_haar():
    """E tr Q = 0, E (tr Q)^2 = 1 and E Q_ij^2 = 1/3 on O(3); each errs for about 1e-6 of the keys.

    Without the sign fix of QR, LAPACK's reflections give the diagonal a sign and the trace a mean.
    """
    draws = 4000
    layout = Layout(("w",), (3,))
    d = orthonormal(layout, count=3 * draws, key=KEY)
    q = torch.stack([d.vector(i) for i in range(3 * draws)]).double().view(draws, 3, 3).numpy()
    trace = np.trace(q, axis1=1, axis2=2)
    assert abs(trace.mean()) < SIGMAS / math.sqrt(draws)
    assert abs(np.mean(trace**2) - 1) < SIGMAS * math.sqrt(2 / draws)  # E (tr Q)^4 = 3 on O(3)
    assert np.all(np.abs(np.mean(q, axis=0)) < SIGMAS * math.sqrt(1 / 3 / draws))
    assert np.all(np.abs(np.mean(q**2, axis=0) - 1 / 3) < SIGMAS * math.sqrt((1 / 5 - 1 / 9) / draws))
    assert abs(np.mean(np.linalg.det(q))) < SIGMAS / math.sqrt(draws)


@pytest.mark.parametrize("dimension", [1, 2])
def test_orthonormal_in_one_and_two_dimensions(dimension: int):
    """All 20 signs in one dimension agree for 2e-6 of the keys."""
    d = orthonormal(Layout(("w",), (dimension,)), count=20 * dimension, key=KEY)
    rows = torch.stack([d.vector(i) for i in range(d.count)])
    assert torch.allclose(rows.norm(dim=1), torch.ones(d.count))
    assert rows.min() < 0 < rows.max()


# Sums


@pytest.mark.parametrize("kind", [*KINDS, "orthonormal"])
def test_combine_is_the_weighted_sum(kind: str):
    d = make(kind, SMALL, 5)
    weights = [0.5, -2.0, 0.0, 1e-3, 7.0]
    stacked = torch.stack([d.vector(q) for q in range(5)]).double()
    expected = torch.tensor(weights, dtype=torch.float64) @ stacked
    for coefficients in (weights, tuple(weights), torch.tensor(weights), torch.tensor(weights).double()):
        found = combine(d, coefficients)
        assert found.dtype == torch.float32 and found.shape == (57,)
        assert torch.allclose(found.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("coefficients", [[1.0], [1.0, 2.0, 3.0], torch.tensor(1.0), torch.ones(2, 2)])
def test_combine_needs_a_coefficient_for_each_direction(coefficients):
    with pytest.raises(ConfigurationError, match="2 directions"):
        combine(make("gaussian", SMALL, 2), coefficients)


# Errors


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("kind", [*KINDS, "orthonormal"])
def test_at_least_one_direction(kind: str, count: int):
    with pytest.raises(ConfigurationError, match="At least one direction"):
        make(kind, SMALL, count)


@pytest.mark.parametrize(("count", "advice"), [(58, "57 or 114"), (115, "114 or 171")])
def test_orthonormal_counts_fit_the_dimension(count: int, advice: str):
    with pytest.raises(ConfigurationError, match=advice):
        orthonormal(SMALL, count=count, key=KEY)


@pytest.mark.parametrize(
    ("names", "sizes"),
    [((), ()), (("a",), (0,)), (("a",), (1, 2)), (("a", "a"), (1, 2)), (("a", "b"), (3, -1))],
)
def test_senseless_layouts_are_refused(names, sizes):
    with pytest.raises(ConfigurationError):
        Layout(names, sizes)


@pytest.mark.parametrize("kind", [*KINDS, "orthonormal"])
def test_what_is_not_there_cannot_be_asked_for(kind: str):
    d = make(kind, SMALL, 2)
    for query in (-1, 2):
        with pytest.raises(ConfigurationError):
            d.vector(query)
        with pytest.raises(ConfigurationError):
            d.block(query, "bias", 0, 1)
    for name, start, stop in (("nobody", 0, 1), ("bias", 0, 8), ("bias", -1, 3), ("bias", 5, 4)):
        with pytest.raises(ConfigurationError, match=name):
            d.block(0, name, start, stop)


@pytest.mark.parametrize("size", [0.0, -1.0, math.nan, math.inf])
def test_scales_are_positive(size: float):
    with pytest.raises(ConfigurationError):
        sphere(SMALL, count=1, key=KEY, radius=size)
    with pytest.raises(ConfigurationError):
        gaussian(SMALL, count=1, key=KEY, scale=size)


def test_unknown_kinds_are_refused():
    with pytest.raises(ConfigurationError, match="rademacher"):
        make("cube", SMALL, 1)
