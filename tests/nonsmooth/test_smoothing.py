"""Moreau envelopes and Lasry-Lions smoothing against brute force, their bounds, and ridge losses."""

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.smoothing import PiecewiseLinear, RidgeLoss, component_stationarity

ZIGZAG = PiecewiseLinear(np.array([-1.0, -0.4, 0.1, 0.9]), np.array([-1.0, 2.0, -3.0, 0.5, -1.0]), 0.3)
PROFILES = {"absolute": PiecewiseLinear.absolute(), "ramp": PiecewiseLinear.ramp(width=0.5), "zigzag": ZIGZAG}
AT = np.linspace(-1.7, 1.7, 161)


def brute(profile, scale):
    """Both transforms on a fine grid."""
    grid = np.linspace(-4, 4, 4001)
    squares = (grid[:, None] - grid[None, :]) ** 2
    lower = (profile(grid)[None, :] + squares / (4 * scale)).min(axis=1)
    double = (lower[None, :] - (AT[:, None] - grid[None, :]) ** 2 / (2 * scale)).max(axis=1)
    single = (profile(grid)[None, :] + (AT[:, None] - grid[None, :]) ** 2 / (2 * scale)).min(axis=1)
    return single, double


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("scale", [0.02, 0.2])
def test_both_transforms_agree_with_brute_force(name, scale):
    profile = PROFILES[name]
    single, double = brute(profile, scale)
    assert np.allclose(profile.moreau(AT, scale), single, atol=2e-4)
    # The inner envelope has kinks that point upwards: the grid misses a peak by half its spacing times the slope.
    assert np.allclose(profile.lasry_lions(AT, scale)[0], double, atol=3e-3)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.3])
def test_deviation_slope_and_curvature_are_bounded(name, scale):
    """Deviation at most L^2 scale, slope at most L, curvature at most 1 / scale (I24's Fact D.2 says otherwise)."""
    profile = PROFILES[name]
    fine = np.linspace(-2, 2, 20_001)
    value, slope = profile.lasry_lions(fine, scale)
    steepest = profile.lipschitz
    assert np.abs(value - profile(fine)).max() <= steepest**2 * scale * (1 + 1e-9)
    assert np.abs(slope).max() <= steepest * (1 + 1e-9)
    spacing = fine[1] - fine[0]
    assert (np.abs(np.diff(slope)) / spacing).max() <= (1 + 1e-6) / scale
    assert np.allclose(np.diff(value) / spacing, (slope[1:] + slope[:-1]) / 2, atol=spacing / scale)


def test_the_moreau_envelope_of_the_absolute_value_is_hubers_loss():
    expected = np.where(np.abs(AT) <= 0.3, AT**2 / 0.6, np.abs(AT) - 0.15)
    assert np.allclose(PiecewiseLinear.absolute().moreau(AT, 0.3), expected)


def test_values_are_those_of_a_piecewise_linear_function():
    assert ZIGZAG(np.array([-1.0, -0.4, 0.1, 0.9])) == pytest.approx([0.3, 1.5, 0.0, 0.4])
    assert ZIGZAG(-2.0) == pytest.approx(1.3)
    assert ZIGZAG(1.9) == pytest.approx(-0.6)


def test_a_ridge_loss_is_smoothed_in_space_as_along_its_own_direction():
    """Brute force in the plane: LL of phi(<a, x> - b) is that of phi, with scale |a|^2."""
    loss = RidgeLoss(PROFILES["ramp"], 0.1)
    a, b = np.array([[0.6, -0.5]]), np.array([0.1])
    grid = np.linspace(-2, 2, 161)
    x, y = (part.ravel() for part in np.meshgrid(grid, grid))
    plane = np.column_stack([x, y])
    heights = loss.profile(plane @ a[0] - b[0])
    at = np.array([0.3, -0.1])
    centres = plane[np.linalg.norm(plane - at, axis=1) < 0.6]
    lower = np.array([(heights + ((plane - z) ** 2).sum(axis=1) / 0.4).min() for z in centres])
    expected = (lower - ((centres - at) ** 2).sum(axis=1) / 0.2).max()
    assert loss.values(at, a, b)[0] == pytest.approx(expected, abs=5e-3)


def test_gradients_are_those_of_the_values_and_never_too_long():
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(30, 4)), rng.normal(size=30)
    features[3] = 0
    loss = RidgeLoss.for_radius(ZIGZAG, 0.3, feature_norm=3.0)
    at = rng.normal(size=4)
    gradients = loss.gradients(at, features, targets)
    for axis in range(4):
        step = 1e-6 * np.eye(4)[axis]
        change = (loss.values(at + step, features, targets) - loss.values(at - step, features, targets)) / 2e-6
        assert np.allclose(change, gradients[:, axis], atol=1e-4)
    assert (np.linalg.norm(gradients, axis=1) <= 3.0 * np.linalg.norm(features, axis=1) * (1 + 1e-9)).all()
    assert (gradients[3] == 0).all()


def test_smoothed_ridge_losses_train_under_privacy_by_their_gradients():
    """A nonconvex ramp loss, first order, one pass."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(20_000, 3))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    signs = np.sign(features @ np.array([1.0, -1.0, 0.5]))
    loss = RidgeLoss.for_radius(PiecewiseLinear.ramp(), 0.3, feature_norm=1.0)

    def gradients(points, records):
        rows, sign = records
        return -sign[:, None] * loss.gradients(-points * sign[:, None], rows, 0 * sign) * -sign[:, None]

    result = sv.minimize(
        None, np.zeros(3), (features, signs), budget=sv.Budget(epsilon=1.0, delta=1e-6), radius=0.3, lipschitz=1.0,
        method="first-order", jac=gradients, gap=1.0,
    )  # fmt: skip
    assert result.certificate.radius == 0.3
    assert np.isfinite(result.x).all()


@pytest.mark.parametrize(
    ("at", "radius", "least"), [(0.0, 0.05, 3.0), (0.1, 0.01, 0.0), (0.8, 0.05, 0.5), (0.95, 0.1, 0.0), (-2, 0.1, 1)]
)
def test_component_stationarity_is_that_of_the_slopes_in_reach(at, radius, least):
    assert component_stationarity(ZIGZAG, at, radius) == pytest.approx(least)


@pytest.mark.parametrize(
    "wrong", [([1.0, 0.0], [0, 1, 2]), ([0.0], [1.0]), ([], [1.0]), ([np.nan], [0, 1])]
)  # fmt: skip
def test_profiles_check_their_numbers(wrong):
    with pytest.raises(sv.ConfigurationError):
        PiecewiseLinear(np.asarray(wrong[0]), np.asarray(wrong[1]))
    with pytest.raises(sv.ConfigurationError, match="scale"):
        ZIGZAG.moreau(0.0, 0.0)
