"""First-order estimates: balls, the maximal coupling, and minimize by gradients."""

import math

import numpy as np
import pytest
import torch

import sottovoce as sv
from sottovoce.gradient_estimators import Sampled, coupled
from sottovoce.objective.bases import points_of_ball
from sottovoce.objective.directions import Key
from sottovoce.objective.function import BlackBox
from sottovoce.planning.problem import curvature_constant


def signs(points, records):
    """Of the l1 distance: a gradient of length sqrt(d)."""
    return np.sign(points - records)


def asking(dimension, **options) -> Sampled:
    return Sampled(box=BlackBox(signs, dimension, vectorised=True, width=dimension), **options)


def test_points_are_uniform_in_the_ball():
    """Second moments 1 / (d + 2), radii to the power of d uniform: six standard errors each."""
    points = points_of_ball(3, Key(0), range(100_000))
    radii = np.linalg.norm(points, axis=1)
    assert radii.max() <= 1
    assert np.abs(points.T @ points / len(points) - np.eye(3) / 5).max() < 6 * 0.3 / math.sqrt(len(points))
    assert abs((radii**3).mean() - 0.5) < 6 * 0.29 / math.sqrt(len(points))


def test_coupled_points_are_uniform_in_the_other_ball_and_mostly_the_same():
    """The share that differs is the total variation, kappa_d r / (2 a) for small r. Six standard errors."""
    dimension, radius, count = 6, 0.5, 200_000
    here, there = np.zeros(dimension), np.zeros(dimension)
    there[0] = 0.02
    points = here + radius * points_of_ball(dimension, Key(1), range(count))
    moved = coupled(points, here, there, radius)
    assert np.linalg.norm(moved - there, axis=1).max() <= radius * (1 + 1e-12)
    second = (moved - there).T @ (moved - there) / count / radius**2
    assert np.abs(second - np.eye(dimension) / (dimension + 2)).max() < 6 * 0.25 / math.sqrt(count)
    differ = (moved != points).any(axis=1).mean()
    expected = curvature_constant(dimension) * 0.02 / (2 * radius)
    assert differ == pytest.approx(expected, abs=6 * math.sqrt(expected / count) + 0.02 * expected)


def test_differences_have_the_right_mean_and_are_rarely_not_zero():
    dimension, count = 4, 40_000
    here, there = np.full(dimension, 0.02), np.full(dimension, 0.03)
    records = torch.zeros(count, dimension, dtype=torch.float64), torch.arange(count)
    ask = asking(dimension, radius=0.2)
    rows = ask.differences(here, there, Key(2))(records)
    ends = [ask.gradients(at, Key(3).fold(str(at[0])))(records) for at in (here, there)]
    slack = 6 * math.sqrt(dimension) * 2 / math.sqrt(count)
    assert float((rows.mean(dim=0) - ends[0].mean(dim=0) + ends[1].mean(dim=0)).abs().max()) < slack
    # |here - there| = .02: TV = kappa_4 * .02 / .4 = .085, and E |.|^2 <= 4 L^2 TV with L = 2
    tv = curvature_constant(dimension) * 0.02 / 0.4
    assert float(rows.square().sum(dim=1).mean()) <= 4 * dimension * tv * 1.1
    assert torch.equal(ask.differences(here, here, Key(2))(records), torch.zeros(count, dimension, dtype=torch.float64))


def test_at_radius_zero_the_gradient_is_that_at_the_point():
    records = torch.randn(7, 3, dtype=torch.float64), torch.arange(7)
    found = asking(3).gradients(np.zeros(3), Key(0))(records)
    assert torch.equal(found, -records[0].sign())


def median(points, records):
    away = points - records
    return away / np.maximum(np.linalg.norm(away, axis=-1, keepdims=True), 1e-12)


def one_median(x, record):
    assert x.shape == (2,)
    return median(x[None], record[None])[0]


@pytest.mark.parametrize("jac", [median, one_median])
def test_minimize_by_gradients_finds_the_median(jac):
    records = np.array([0.4, -0.3]) + 0.1 * np.random.default_rng(0).normal(size=(4_000, 2))
    result = sv.minimize(
        None, np.zeros(2), records, budget=sv.Budget(epsilon=1.0, delta=1e-5), radius=0.05, lipschitz=1.0,
        method="first-order", jac=jac,
    )  # fmt: skip
    assert np.linalg.norm(result.x - [0.4, -0.3]) < 0.3
    assert result.nfev == result.schedule.records
    assert result.schedule.bases == 0


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "first-order"}, "give jac="),
        ({"method": "first-order", "jac": median, "bounds": [(0, 1), (0, 1)]}, "leave out bounds="),
        ({"method": "single-pass", "jac": median}, "leave out jac="),
        ({"method": "first-order", "jac": lambda x, r: 1.0}, "a vector of 2"),
    ],
)
def test_mistakes_are_told(options, match):
    with pytest.raises(sv.ConfigurationError, match=match):
        sv.minimize(
            None, np.zeros(2), np.zeros((50, 2)), budget=sv.Budget(epsilon=1.0, delta=1e-5), radius=0.1, lipschitz=1.0,
            **options,
        )  # fmt: skip
