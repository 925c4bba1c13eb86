"""What the nonsmooth papers get wrong about estimators, the walk and generalisation: each statement, counterexample by
counterexample. Z24: Zhang et al. 2024; I24: "Improved Sample Complexity for Private Nonsmooth Nonconvex Optimization".
"""

import math

import numpy as np
import pytest
from scipy.stats import norm

from sottovoce.planning.population import uniform_gap
from sottovoce.privacy.accounting import gaussian_delta

RNG = np.random.default_rng(0)


def sphere(count: int, dimension: int) -> np.ndarray:
    drawn = np.random.default_rng(1).normal(size=(count, dimension))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_z24_section_2_turns_renyi_into_approximate_privacy_the_wrong_way_round():
    """rho = 10, delta = e^-50: claimed epsilon 2 rho sqrt(ln 1/delta) = 141.4 for all delta >= exp(-rho^2).

    A Gaussian of mu = rho has exactly that Renyi curve, and its delta at 141.4 is 85 times larger.
    """
    rho, log_delta = 10.0, -50.0
    assert math.exp(log_delta) >= math.exp(-(rho**2))  # inside the range that is claimed
    claimed = 2 * rho * math.sqrt(-log_delta)
    exact = norm.sf(claimed / rho - rho / 2) - math.exp(claimed + norm.logsf(claimed / rho + rho / 2))
    assert claimed == pytest.approx(141.42, abs=0.01)
    assert exact == pytest.approx(1.6e-20, rel=0.05)
    assert exact > 80 * math.exp(log_delta)
    assert gaussian_delta(rho, claimed) == pytest.approx(exact, rel=1e-3)


def test_i24_draws_directions_in_the_ball_and_shrinks_the_estimate_a_hundredfold():
    """Line 12 of Algorithm 3: y in the ball of radius a, f evaluated at a y away, multiplied by y: for a linear f the
    mean is a^2 d / (d + 2) of the gradient, .0091 at a = .1 and d = 20. Four-figure Monte Carlo, six standard errors.
    """
    dimension, radius = 20, 0.1
    gradient = np.ones(dimension) / math.sqrt(dimension)
    y = radius * sphere(200_000, dimension) * np.random.default_rng(2).random((200_000, 1)) ** (1 / dimension)
    slopes = (y @ gradient) * radius / radius  # (f(x + a y) - f(x - a y)) / (2 a), as printed
    along = dimension * slopes * (y @ gradient)
    expected = radius**2 * dimension / (dimension + 2)
    assert along.mean() == pytest.approx(expected, abs=6 * along.std() / math.sqrt(len(along)))
    assert expected == pytest.approx(0.00909, abs=1e-5)


def test_i24_first_order_estimator_on_the_sphere_is_not_the_smoothed_gradient():
    """Equation 17 takes the gradient on the sphere; its mean is that of another function than f_a, whose gradient is
    the mean over the ball. f = |x|^3 / 3 far from zero: the two means differ by a factor that samples tell apart.
    """
    dimension, radius = 5, 1.0
    at = np.zeros(dimension)
    at[0] = 0.5
    u = sphere(400_000, dimension)
    ball = u * np.random.default_rng(3).random((len(u), 1)) ** (1 / dimension)

    def gradient(points):
        return np.linalg.norm(points, axis=1, keepdims=True) * points

    on_sphere, in_ball = gradient(at + radius * u)[:, 0], gradient(at + radius * ball)[:, 0]
    error = 6 * math.hypot(on_sphere.std(), in_ball.std()) / math.sqrt(len(u))
    assert abs(on_sphere.mean() - in_ball.mean()) > error
    values = np.linalg.norm(at + radius * u, axis=1) ** 3 / 3  # what GRAD estimates, by its definition
    smoothed = dimension * values * u[:, 0] / radius
    slack = 6 * math.hypot(smoothed.std(), in_ball.std()) / math.sqrt(len(u))
    assert abs(smoothed.mean() - in_ball.mean()) < slack


def test_i24_uncoupled_differences_are_ten_times_longer():
    """Directions of its own at each of two near points: rms .37 against .040 (d = 100, l-inf loss, r / a = .04)."""
    dimension, radius, trials = 100, 1.0, 60
    rng = np.random.default_rng(4)
    here = rng.normal(size=dimension) * 0.3
    step = rng.normal(size=dimension)
    there = here + 0.04 * radius * step / np.linalg.norm(step)

    def estimate(at, u):
        slopes = (np.abs(at + radius * u).max(axis=1) - np.abs(at - radius * u).max(axis=1)) / (2 * radius)
        return dimension / len(u) * slopes @ u

    def directions():
        drawn = rng.normal(size=(dimension, dimension))
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    coupled, uncoupled = [], []
    for _ in range(trials):
        u, v = directions(), directions()
        coupled.append(np.sum((estimate(here, u) - estimate(there, u)) ** 2))
        uncoupled.append(np.sum((estimate(here, u) - estimate(there, v)) ** 2))
    assert math.sqrt(np.mean(uncoupled)) > 5 * math.sqrt(np.mean(coupled))


def test_i24_equation_5_misses_a_factor_of_two_under_its_own_relation():
    """Replacing a record moves a mean of B vectors of length R by up to 2 R / B, not R / B."""
    rows = np.zeros((4, 3))
    rows[:, 0] = 1.0
    other = rows.copy()
    other[2, 0] = -1.0
    assert np.linalg.norm(rows.mean(axis=0) - other.mean(axis=0)) == pytest.approx(2 / 4)


def test_i24_says_that_points_are_one_step_apart_and_they_are_up_to_two():
    """z_t = x_{t-1} + s_t Delta_t, s_t in [0, 1]: from s = 0 to s = 1 a point moves by (1 - 0) D and another D."""
    delta = 1.0
    assert (1 * delta + delta) - (0 * delta) == 2 * delta  # z_{t+1} at s = 1 after z_t at s = 0


def test_i24_without_restarts_the_regret_is_two_and_a_half_times_d_g_root_m():
    """Its Algorithm 2 carries Delta over: the comparator changes from u to -u, which costs 2 D |Delta - u| / eta.

    Online gradient descent with eta = D / (G sqrt(M)): |Delta_1 - u|^2 / (2 eta) + eta G^2 M / 2 is (2 D)^2 / (2 eta) +
    D G sqrt(M) / 2 = 5/2 D G sqrt(M) where |Delta_1 - u| = 2 D, and D G sqrt(M) where Delta_1 = 0.
    """
    longest, size, length = 1.0, 1.0, 400
    rate = longest / (size * math.sqrt(length))
    claimed = 1.5 * longest * size * math.sqrt(length)
    carried = (2 * longest) ** 2 / (2 * rate) + rate * size**2 * length / 2
    restarted = longest**2 / (2 * rate) + rate * size**2 * length / 2
    assert carried == pytest.approx(2.5 * longest * size * math.sqrt(length))
    assert carried > claimed >= restarted
    # and it happens: one sign in a first window, the other in the second
    delta, regret = 0.0, 0.0
    for step in range(2 * length):
        gradient = 1.0 if step < length else -1.0
        if step >= length:
            regret += gradient * (delta - longest)
        delta = min(longest, max(-longest, delta - rate * gradient))
    assert regret > restarted


def test_i24_proposition_5_1_no_uniform_gap_for_lipschitz_losses_even_on_the_line():
    """f(x; xi) = x / 2 + zigzag / 2 with an independent sign on every interval: F' = 1/2 nearly everywhere, but with
    2^n intervals and more, some interval has all n signs at -1: there the empirical derivative is exactly 0.
    """
    records, intervals = 10, 2**10 * 40
    signs = np.random.default_rng(5).choice([-1.0, 1.0], size=(records, intervals))
    empirical = 0.5 + 0.5 * signs.mean(axis=0)
    assert empirical.min() == 0.0  # misses with probability (1 - 2^-10)^40960 = 4e-18
    assert abs(empirical.mean() - 0.5) < 0.01
    # The corrected statement is about the smoothed derivative, and holds here: a window of 1,000 intervals.
    window = 1000
    smoothed = np.convolve(empirical, np.full(window, 1 / window), mode="valid")
    bound = uniform_gap(records=records, dimension=1, lipschitz=1.0, radius=window / 2, reach=intervals / 2)
    assert np.abs(smoothed - 0.5).max() < bound


def test_i24_lasry_lions_deviates_by_l_squared_lambda_and_its_smoothness_is_one_over_lambda():
    """Fact D.2 claims L lambda and L / lambda. f = -L |x|, L = 3, lambda = .2: deviation 1.8 at the kink, not .6.

    On a grid: max_z min_y f(y) + |z - y|^2 / (4 lambda) - |z - x|^2 / (2 lambda).
    """
    slope, smooth = 3.0, 0.2
    grid = np.linspace(-4, 4, 1601)
    squares = (grid[:, None] - grid[None, :]) ** 2
    lower = (-slope * np.abs(grid)[None, :] + squares / (4 * smooth)).min(axis=1)
    regular = (lower[None, :] - squares / (2 * smooth)).max(axis=1)
    inner = np.abs(grid) < 2
    deviation = np.abs(regular + slope * np.abs(grid))[inner].max()
    assert deviation == pytest.approx(slope**2 * smooth, rel=0.02)
    assert deviation > 2.5 * slope * smooth
    spacing = grid[1] - grid[0]
    curvature = np.abs(np.diff(regular, 2))[inner[1:-1]].max() / spacing**2
    assert curvature <= 1 / smooth * 1.05
    assert curvature < 0.5 * slope / smooth
