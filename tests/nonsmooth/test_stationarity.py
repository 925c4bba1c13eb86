"""Certificates: the shortest convex combination of gradients near a point, and what may be said of the population."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

import sottovoce as sv
from sottovoce.stationarity import held_out_bound, least_norm, window_certificate


def l1(x):
    return np.sign(x)


def test_at_a_kink_the_goldstein_gradient_is_zero():
    """|x|_1: every sign pattern of the small coordinates is within reach, none of the large ones'."""
    at = np.array([0.01, -0.02, 1.0, -1.0])
    found = least_norm(l1, at, 0.1, samples=200)
    assert found.norm == pytest.approx(math.sqrt(2), abs=1e-6)
    assert found.vector[2:] == pytest.approx([1.0, -1.0])
    assert np.linalg.norm(found.points - at, axis=1).max() <= 0.1 * (1 + 1e-12)
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights.min() >= 0


def test_the_norm_is_that_of_sequential_programming():
    rng = np.random.default_rng(0)
    pieces = rng.normal(size=(6, 3)) + 0.5

    def gradient(x):
        return pieces[np.argmax(pieces @ x)]

    found = least_norm(gradient, np.zeros(3), 1.0, samples=400)
    rows = np.unique(found.gradients, axis=0)
    best = min(
        scipy_minimize(
            lambda w: float(np.sum((w @ rows) ** 2)), np.full(len(rows), 1 / len(rows)), bounds=[(0, 1)] * len(rows),
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-14, "maxiter": 500},
        ).fun
        for _ in range(1)
    )  # fmt: skip
    assert found.norm == pytest.approx(math.sqrt(best), abs=1e-5)


def test_refinement_finds_what_samples_missed():
    """A narrow valley behind the point: one sample sees one side only."""

    def gradient(x):
        return np.array([1.0 if x[0] > -0.09 else -1.0, 0.0])

    alone = least_norm(gradient, np.zeros(2), 0.1, samples=1, rounds=0, seed=3)
    assert alone.norm == pytest.approx(1.0)
    assert least_norm(gradient, np.zeros(2), 0.1, samples=1, rounds=20, seed=3).norm < 1e-9


def test_a_smooth_function_far_from_its_minimum_is_not_stationary():
    found = least_norm(lambda x: 2 * x, np.array([3.0, 4.0]), 0.5)
    assert 10 - 2 * 0.5 - 1e-9 <= found.norm <= 10


def test_a_window_is_certified_by_its_mean_gradient():
    points = np.array([[0.1, 0.0], [-0.1, 0.0]])
    assert window_certificate(l1, points, 0.1).norm == 0.0
    with pytest.raises(sv.ConfigurationError, match="further than"):
        window_certificate(l1, points, 0.05)


def test_the_held_out_bound_holds_and_costs_what_it_says():
    """Means of n unit vectors: 400 splits at 1 %, of which 20 fail with chance 1e-8."""
    rng = np.random.default_rng(1)
    dimension, records, failures = 4, 50, 0
    truth = np.array([0.3, 0.0, 0.0, 0.0])
    first = least_norm(lambda x: truth, np.zeros(dimension), 0.1)
    for _ in range(400):
        drawn = rng.normal(size=(records, dimension))
        drawn = truth + drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * 0.7
        bound = held_out_bound(
            first, lambda x, drawn=drawn: drawn.mean(axis=0), records=records, lipschitz=1.0, failure=0.01
        )
        failures += bound < np.linalg.norm(truth)
    assert failures < 20
    expected = 1.0 * (1 + math.sqrt(2 * math.log(20))) / math.sqrt(records)
    bound = held_out_bound(first, lambda x: 0 * truth, records=records, lipschitz=1.0)
    assert bound == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [{"radius": 0.0}, {"x": np.zeros((2, 2))}])
def test_mistakes_are_told(wrong):
    with pytest.raises(sv.ConfigurationError, match="positive radius"):
        least_norm(**({"gradient": l1, "x": np.zeros(2), "radius": 0.1} | wrong))
