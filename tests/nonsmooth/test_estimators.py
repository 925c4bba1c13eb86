"""GRAD and DIFF: unbiased, bounded whatever the function, coupled, and a record's own.

Statistical tests compare means of N independent estimates with their expectation at six standard errors: a false alarm
in 5e8 for each comparison.
"""

import math

import numpy as np
import pytest
import torch

from sottovoce.estimators import Smoothed
from sottovoce.objective.bases import haar_bases
from sottovoce.objective.directions import Key
from sottovoce.objective.function import BlackBox


def asking(f, dimension: int, *, radius: float = 0.1, bases: int = 1, limit: float = 1.0) -> Smoothed:
    return Smoothed(box=BlackBox(f, dimension, vectorised=True), radius=radius, bases=bases, limit=limit)


def batch(records: torch.Tensor, first: int = 0):
    return records, torch.arange(first, first + len(records))


def linear(points, records):
    return (points * records).sum(axis=1)


def largest(points, records):
    """1-Lipschitz, nonsmooth: the maximum coordinate, counted from the record."""
    return np.abs(points - records).max(axis=1)


def wild(points, records):
    """Not Lipschitz at all."""
    return np.sin(1e6 * points.sum(axis=1)) * 1e3 + records[:, 0] * np.sign(points[:, 0])


@pytest.mark.parametrize("dimension", [1, 2, 7, 30])
@pytest.mark.parametrize("bases", [1, 3])
def test_a_linear_function_is_recovered_exactly(dimension, bases):
    records = torch.randn(5, dimension, dtype=torch.float64)
    records /= records.norm(dim=1, keepdim=True)
    found = asking(linear, dimension, bases=bases).gradients(np.ones(dimension), Key(0))(batch(records))
    assert torch.allclose(found, records, atol=1e-9)


def test_the_mean_is_the_gradient_of_the_smoothed_function():
    """Against E f(x + a u) u d / a, by independent draws of u on the sphere."""
    dimension, radius, count = 4, 0.5, 40_000
    at = np.array([0.3, -0.2, 0.25, 0.1])
    records = torch.zeros(count, dimension, dtype=torch.float64)
    ask = asking(largest, dimension, radius=radius)
    rows = ask.gradients(at, Key(1))(batch(records)).numpy()
    rng = np.random.default_rng(2)
    u = rng.normal(size=(400_000, dimension))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    slopes = (largest(at + radius * u, np.zeros_like(u)) - largest(at - radius * u, np.zeros_like(u))) / (2 * radius)
    brute = slopes[:, None] * u * dimension
    error = np.sqrt(rows.var(axis=0) / count + brute.var(axis=0) / len(u))
    assert (np.abs(rows.mean(axis=0) - brute.mean(axis=0)) < 6 * error).all()


def test_differences_have_the_difference_of_the_means():
    dimension, count = 3, 20_000
    here, there = np.array([0.3, -0.1, 0.2]), np.array([0.25, 0.0, 0.2])
    records = torch.zeros(count, dimension, dtype=torch.float64)
    ask = asking(largest, dimension, radius=0.4)
    rows = ask.differences(here, there, Key(1))(batch(records)).numpy()
    ends = [ask.gradients(at, Key(2).fold(name))(batch(records)).numpy() for at, name in ((here, "h"), (there, "t"))]
    error = np.sqrt((rows.var(axis=0) + ends[0].var(axis=0) + ends[1].var(axis=0)) / count)
    assert (np.abs(rows.mean(axis=0) - ends[0].mean(axis=0) + ends[1].mean(axis=0)) < 6 * error).all()


@pytest.mark.parametrize("function", [linear, largest, wild])
@pytest.mark.parametrize("dimension", [1, 2, 10, 40])
def test_norms_never_exceed_their_bounds(function, dimension):
    """Also for a function that is not Lipschitz: the slopes are cut off."""
    records = 10 * torch.randn(50, dimension, dtype=torch.float64)
    limit, radius = 0.7, 0.05
    ask = asking(function, dimension, radius=radius, limit=limit)
    here = np.full(dimension, 0.3)
    there = here + 0.01
    rounding = 1 + 1e-7  # orthonormality holds to eight digits; the curator clips
    assert (ask.gradients(here, Key(4))(batch(records)).norm(dim=1) <= rounding * math.sqrt(dimension) * limit).all()
    moved = float(np.linalg.norm(here - there))
    bound = math.sqrt(dimension) * limit * moved / radius
    assert (ask.differences(here, there, Key(4))(batch(records)).norm(dim=1) <= rounding * bound).all()


@pytest.mark.parametrize("dimension", [2, 10, 50])
def test_the_mean_squared_norm_is_free_of_the_dimension(dimension):
    """E |GRAD|^2 <= L^2 d / (d - 1), by Poincare; the worst case is d times as much. Five standard errors."""
    records = torch.randn(4000, dimension, dtype=torch.float64)
    rows = asking(largest, dimension, radius=0.3).gradients(np.zeros(dimension), Key(5))(batch(records))
    squared = rows.square().sum(dim=1)
    assert float(squared.mean()) <= dimension / (dimension - 1) + 5 * float(squared.std()) / math.sqrt(len(squared))


def test_coupled_differences_vanish_with_the_distance_and_uncoupled_ones_do_not():
    dimension, radius = 20, 0.1
    records = 0.05 * torch.randn(200, dimension, dtype=torch.float64)  # kinks within the radius
    ask = asking(largest, dimension, radius=radius)
    here = np.zeros(dimension)
    sizes = []
    for distance in (0.1, 0.01, 0.001, 0.0):
        there = here + distance / math.sqrt(dimension)
        sizes.append(float(ask.differences(here, there, Key(6))(batch(records)).norm(dim=1).square().mean().sqrt()))
    assert sizes[0] > 3 * sizes[1] > 9 * sizes[2]
    assert sizes[3] == 0.0
    uncoupled = ask.gradients(here, Key(7))(batch(records)) - ask.gradients(here + 1e-9, Key(8))(batch(records))
    # I24's independent directions: as far apart at a billionth as coupled ones are at the smoothing radius.
    assert float(uncoupled.norm(dim=1).square().mean().sqrt()) > max(0.3 * sizes[0], 20 * sizes[2])


def test_a_row_depends_on_its_record_and_number_alone():
    records = torch.randn(30, 6, dtype=torch.float64)
    ask = asking(largest, 6, bases=2)
    together = ask.gradients(np.zeros(6), Key(9))(batch(records))
    other = torch.randn(30, 6, dtype=torch.float64)
    other[11] = records[11]
    beside = ask.gradients(np.zeros(6), Key(9))(batch(other))
    assert torch.equal(together[11], beside[11])
    order = torch.randperm(30)
    moved = ask.gradients(np.zeros(6), Key(9))((records[order], order))
    assert torch.allclose(moved, together[order], rtol=1e-12)  # another slot: the same directions


def test_a_record_that_is_not_a_number_is_not_a_number_alone():
    records = torch.randn(8, 3, dtype=torch.float64)
    records[5, 1] = torch.nan
    rows = asking(largest, 3).gradients(np.zeros(3), Key(0))(batch(records))
    assert rows[5].isnan().any()
    assert rows[[0, 1, 2, 3, 4, 6, 7]].isfinite().all()


def test_points_outside_the_bounds_are_moved_to_them():
    seen = []

    def f(points, records):
        seen.append(points)
        return points.sum(axis=1)

    ask = Smoothed(
        box=BlackBox(f, 2, vectorised=True), radius=1.0, bases=1, limit=9.0, project=lambda p: np.clip(p, -0.5, 0.5)
    )
    ask.gradients(np.zeros(2), Key(0))(batch(torch.zeros(3, 1)))
    assert np.abs(np.concatenate(seen)).max() <= 0.5


@pytest.mark.parametrize("dimension", [1, 2, 17, 100])
def test_bases_are_orthonormal_and_replay(dimension):
    rows = haar_bases(dimension, Key(3), range(5), 2)
    assert torch.allclose(rows @ rows.mT, torch.eye(dimension, dtype=torch.float64), atol=1e-8)
    assert torch.equal(haar_bases(dimension, Key(3), [4, 1], 2), rows[[4, 1]])
    assert not torch.equal(haar_bases(dimension, Key(3), range(5), 1), rows)
    assert not torch.equal(haar_bases(dimension, Key(4), range(5), 2), rows)


def test_every_row_of_a_basis_is_uniform_on_the_sphere():
    """Means and second moments of every row of 40,000 bases: 3 x 3 x (3 + 6) comparisons at six standard errors."""
    rows = haar_bases(3, Key(0), range(40_000)).numpy()
    error = 6 / math.sqrt(len(rows))
    assert np.abs(rows.mean(axis=0)).max() < error
    for row in range(3):
        second = np.einsum("ni,nj->ij", rows[:, row], rows[:, row]) / len(rows)
        assert np.abs(second - np.eye(3) / 3).max() < error


def test_a_singular_draw_is_made_orthonormal_by_householder(monkeypatch):
    singular = np.ones((2, 3, 3))
    singular[1] = np.eye(3)
    monkeypatch.setattr("sottovoce.objective.bases._normals", lambda *_: singular)
    rows = haar_bases(3, Key(0), range(2))
    assert torch.allclose(rows @ rows.mT, torch.eye(3, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize(("dimension", "bases"), [(10, 1), (10, 4), (3, 1)])
def test_clipping_just_above_the_lipschitz_constant_costs_little_bias(dimension, bases):
    """At C = 1.5 L the mean moves by at most v^2 / (4 (C - L)), v^2 = L^2 d / ((d - 1) bases)."""
    records = 0.05 * torch.randn(3000, dimension, dtype=torch.float64)
    rows = asking(largest, dimension, radius=0.2, bases=bases).gradients(np.zeros(dimension), Key(8))(batch(records))
    clipped = rows * (1.5 / rows.norm(dim=1, keepdim=True)).clamp(max=1)
    assert float(clipped.norm(dim=1).max()) <= 1.5 * (1 + 1e-12)
    variance = dimension / (dimension - 1) / bases
    assert float((clipped - rows).norm(dim=1).mean()) <= variance / (4 * 0.5)
