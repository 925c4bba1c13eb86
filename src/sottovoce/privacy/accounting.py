"""What a sequence of Gaussian releases costs: epsilon, delta, and the noise that a budget asks for.

Releases without subsampling are accounted exactly, as one Gaussian (Dong, Roth and Su 2022, section 2 and
Corollary 3.3: mu^2 is the sum of the mu_i^2, also when they are chosen adaptively). Poisson-subsampled ones go
through discretised privacy loss distributions: connecting the dots (Doroshenko et al. 2022) dominates the true
loss, so a coarse grid errs on the safe side, and an allowance covers what the Fourier transforms may lose.

The pair behind "zero-out" and "add-remove" is N(0, 1) against (1 - rate) N(0, 1) + rate N(1/z, 1), both ways
(Zhu, Dong and Wang 2022); rate, steps and divisor must not depend on the record.
"""

# Neither scipy nor dp-accounting ships type stubs.
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from functools import cache, lru_cache, reduce
from importlib.metadata import version
from typing import get_args

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from scipy.special import erfcx, log_ndtr

from sottovoce.privacy.budget import Budget, Neighbours
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.events import Event

ACCOUNTANT = f"PLD (dp-accounting {version('dp-accounting')}, connect-the-dots, pessimistic)"
CLOSED_FORM = "exact Gaussian differential privacy (closed form)"
LARGEST_MULTIPLIER = 1e6
SMALLEST_MULTIPLIER = 0.05  # for subsampled runs: below, noise is no protection and its losses overflow
# Relative, in epsilon or the noise multiplier of a subsampled run; closed forms are found to 1e-12.
CALIBRATION_TOLERANCE = 4e-4

# The grid is refined until what it adds to epsilon is estimated below twice this share of it.
_GRID_SHARE = 1e-3
_FINEST_INTERVAL = 1e-7  # below it, second differences of float64 deltas are noise
_MOST_CELLS = 500_000
_LOG_MASS = -50.0  # of one step's tails, where delta does not say what is needed
_TAIL_MASS = 1e-15  # cut off, and added to delta, at each composition
# Rounding in the n-th power of a Fourier transform moved delta by up to 3.2e-16 n, against extended precision at
# random rates, multipliers and steps up to 1e5; a little more than that largest deviation is added to delta.
_ROUNDING_PER_STEP = 4e-16

# The logarithm of delta at an epsilon; an epsilon read off it, given a first guess.
_Curve = Callable[[float], float]
_Choice = Callable[[_Curve, float], float]


@dataclass(frozen=True)
class _Releases:
    """Events with equal ones merged: one Gaussian of ``mu``, and (rate, noise multiplier, steps) of the rest."""

    mu: float
    subsampled: tuple[tuple[float, float, int], ...]

    @property
    def count(self) -> int:
        return sum(steps for _, _, steps in self.subsampled) + (self.mu > 0)

    @property
    def full_mu(self) -> float:
        """Mu if no step were subsampled: an upper bound."""
        return math.sqrt(self.mu**2 + sum(steps / z / z for _, z, steps in self.subsampled))

    @property
    def limit_mu(self) -> float:
        """Mu in the central limit (Bu et al. 2020, Theorem 5); exact without subsampling."""
        variances = (n * rate**2 * math.expm1(min(1 / z / z, 500)) for rate, z, n in self.subsampled)
        return math.sqrt(self.mu**2 + sum(variances))


def epsilon(events: Sequence[Event], delta: float, neighbours: Neighbours = "zero-out") -> float:
    """The smallest epsilon such that the events are (epsilon, delta)-DP, or a little more; 0 for no release.

    Exact without subsampling. With it, an upper bound: at most 0.5 % above a finer grid on the tests' table, for
    delta >= 1e-10 up to 1e4 steps and delta >= 1e-8 up to 1e5. Below 4e-16 times the steps, delta drowns in the
    rounding of Fourier transforms, and the closed form without subsampling takes over, far above the truth.

    ``"replace-one"`` doubles mu without subsampling. With it, it is two zero-out steps by group privacy:
    (2 e, (1 + exp(e)) delta(e)) for the smallest e that meets delta (Vadhan 2017, Lemma 2.2).

    Raises:
        ConfigurationError: for a delta outside (0, 1) or a malformed event.
    """
    _check(delta=delta)
    return _epsilon(_merge(events), float(delta), _is_replacement(neighbours))


def calibrate(events_of: Callable[[float], Sequence[Event]], budget: Budget) -> float:
    """The smallest noise multiplier whose events fit the budget, or a little more; never less.

    Args:
        events_of: the events of a run at a noise multiplier; more noise must not cost more.
        budget: what ``epsilon(events_of(result), budget.delta, budget.neighbours)`` stays within.

    Raises:
        ConfigurationError: if no multiplier up to 1e6 is enough, or nothing is released.
    """
    if (example := _merge(events_of(1.0))).count == 0:
        raise ConfigurationError("the events release nothing, so there is no noise to calibrate; plan a step.")
    mu = gaussian_mu_for(budget.epsilon, budget.delta) / (1 + _is_replacement(budget.neighbours))
    tolerance = CALIBRATION_TOLERANCE if example.subsampled else 1e-12

    def excess(multiplier: float) -> float:
        spent = epsilon(events_of(multiplier), budget.delta, budget.neighbours)
        return math.log(max(spent, 1e-30) / budget.epsilon) + 1e-15  # for the rounding of this line

    start = _least(lambda z: _merge(events_of(z)).limit_mu / mu - 1, 1.0, tolerance)
    floor = SMALLEST_MULTIPLIER if example.subsampled else 1e-12
    multiplier = _least(excess, min(max(start, floor), LARGEST_MULTIPLIER), tolerance, floor)
    if multiplier > LARGEST_MULTIPLIER:
        raise ConfigurationError(f"no noise multiplier up to {LARGEST_MULTIPLIER:g} keeps {budget}; take fewer steps.")
    return multiplier


def gaussian_mu(events: Sequence[Event]) -> float:
    """The mu of the one Gaussian that events without subsampling amount to (zero-out; twice it to replace).

    Raises:
        ConfigurationError: if an event is truly subsampled, which no single Gaussian describes.
    """
    releases = _merge(events)
    if releases.subsampled:
        raise ConfigurationError("no Gaussian describes a Poisson rate below 1; use 'full-batch' or 'single-pass'.")
    return releases.mu


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon with ``gaussian_delta(mu, epsilon) <= delta``, on the feasible side."""
    _check(delta=delta)
    return _solve(lambda at: _log_gaussian_delta(mu, at), delta)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2) (Balle and Wang 2018, Theorem 8)."""
    _check(epsilon=epsilon)
    return math.exp(_log_gaussian_delta(mu, epsilon))


def gaussian_mu_for(epsilon: float, delta: float) -> float:
    """The largest mu with ``gaussian_delta(mu, epsilon) <= delta``, on the feasible side."""
    _check(epsilon, delta)
    target = math.log(delta) - 1e-13
    return 1 / _least(lambda sigma: _log_gaussian_delta(1 / sigma, epsilon) - target, 1.0, 1e-14)


def rounded_down(epsilon: float, digits: int = 4) -> float:
    """To so many digits: a run of what is said to be left must not be refused."""
    return float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal_from_float(epsilon))


def accountant_name(events: Sequence[Event]) -> str:
    """How the statement names what accounted for these events."""
    return ACCOUNTANT if _merge(events).subsampled else CLOSED_FORM


def _check(epsilon: float = 0.0, delta: float = 0.5) -> None:
    if not 0 < delta < 1:
        raise ConfigurationError(f"delta={delta!r}: it must lie in (0, 1); a tenth of 1/records is usual.")
    if not 0 <= epsilon < math.inf:
        raise ConfigurationError(f"epsilon={epsilon!r}: it must be a finite number, at least 0.")


def _is_replacement(neighbours: Neighbours) -> bool:
    if neighbours not in get_args(Neighbours):
        raise ConfigurationError(f"neighbours={neighbours!r}: choose among {', '.join(get_args(Neighbours))}.")
    return neighbours == "replace-one"


def _merge(events: Sequence[Event]) -> _Releases:
    squared_mu = 0.0
    subsampled: Counter[tuple[float, float]] = Counter()
    for event in events:
        rate, multiplier, steps = float(event.rate), float(event.noise_multiplier), int(event.steps)
        if not 0 < rate <= 1:
            raise ConfigurationError(f"rate={rate!r}: a sampling rate lies in (0, 1], such as 256/60000.")
        if not multiplier > 0:
            raise ConfigurationError(f"noise_multiplier={multiplier!r}: it must be positive; inf is no release.")
        if steps < 0:
            raise ConfigurationError(f"steps={steps!r}: it must be at least 0.")
        if event.sampling == "poisson" and rate < 1:
            subsampled[rate, multiplier] += 0 if math.isinf(multiplier) else steps
        else:
            squared_mu += (min(steps, 1) if event.sampling == "single-pass" else steps) / multiplier / multiplier
    return _Releases(math.sqrt(squared_mu), tuple(sorted((r, z, n) for (r, z), n in subsampled.items() if n)))


def _least(excess: Callable[[float], float], start: float, tolerance: float, floor: float = 1e-12) -> float:
    """The least number from ``floor`` on at which a falling excess is at most 0.

    It is there, and the number is least up to a tolerance, relative in the number or absolute in the excess.

    By false position (Illinois) on the logarithm of the number; infinite if 1e12 is not enough.
    """

    def value(at: float) -> float:
        return min(50.0, max(-50.0, excess(at)))

    low, high, step, kept = start, start, tolerance, 0
    below = above = value(start)
    while above > 0:
        if high > 1e12:
            return math.inf
        step = min(0.5, max(2 * step, 0.6 * above))
        low, below, high = high, above, high * math.exp(step)
        above = value(high)
    while below <= 0:
        if low <= floor:
            return low
        step = min(0.5, max(2 * step, -0.6 * below))
        high, above, low = low, below, max(floor, low * math.exp(-step))
        below = value(low)
    while high - low > tolerance * high:
        at = high * (low / high) ** ((above + tolerance / 2) / (above - below))
        at = min(high * (1 - tolerance / 2), max(low * (1 + tolerance / 2), at))
        now = value(at)
        if -tolerance <= now <= 0:
            return at
        if now > 0:
            low, below, above, kept = at, now, above / (2 if kept > 0 else 1), 1
        else:
            high, above, below, kept = at, now, below / (2 if kept < 0 else 1), -1
    return high


def _solve(curve: _Curve, delta: float, replace: bool = False, near: float = 1.0, tolerance: float = 1e-12) -> float:
    """The smallest epsilon at which a curve meets delta, searched from ``near`` on; infinite if none.

    To replace, it is that of each of the two zero-out steps, (1 + exp(epsilon)) times whose delta is delta.
    """
    target = math.log(delta) - 1e-13  # the result must hold after the rounding of these logarithms too

    def excess(at: float) -> float:
        return curve(at) + float(np.logaddexp(0, at)) * replace - target

    return 0.0 if excess(0.0) <= 0 else _least(excess, near or 1.0, tolerance)


def _log_gaussian_delta(mu: float, epsilon: float) -> float:
    """Not below the true value: where mu is small, two nearly equal numbers are subtracted, so rounding is added."""
    if mu == 0 or math.isinf(mu):
        return 0.0 if mu else -math.inf
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if near < -5:  # then mu > 10, and the two terms are far apart
        upper = float(log_ndtr(-near))
        return upper + math.log1p(-math.exp(epsilon + float(log_ndtr(-far)) - upper))
    # exp(epsilon - far^2 / 2) is exp(-near^2 / 2), which leaves a difference of scaled error functions.
    first, second = float(erfcx(near / math.sqrt(2))), float(erfcx(far / math.sqrt(2)))
    # 4 ulp of either, and a bound on their slopes, |2 x erfcx(x) - 2 / sqrt(pi)|, times the error of x, 2^-52 far.
    error = 2.0**-52 * (4 * (first + second) + far * (4 / (1 + near**2) + (4 - 2 * first * near) * (near < 0)))
    return math.log((first - second + error) / 2) - near * near / 2 + 2.0**-52 * (abs(near) + far) ** 2


@lru_cache(maxsize=1024)
def _epsilon(releases: _Releases, delta: float, replace: bool) -> float:
    full = gaussian_epsilon(releases.full_mu * (1 + replace), delta)
    if not releases.subsampled:
        return full
    # A step's delta beyond the cut is at most rate times the mass there (Balle et al. 2018, Theorem 2), 1.3e-4 of
    # delta in all. To replace, the zero-out delta is unknown and far below.
    meetings = sum(n * rate for rate, _, n in releases.subsampled) + 1
    log_mass = max(-600.0, min(_LOG_MASS * replace, math.log(delta) - math.log(meetings) - 9, -1.0))
    at = _refined_curve(releases, lambda curve, near: _solve(curve, delta, replace, near, 1e-6), log_mass)[1]
    return min(full, at * (1 + replace))


def _refined_curve(releases: _Releases, choose: _Choice, log_mass: float) -> tuple[_Curve, float]:
    """The curve on a grid fine enough at the epsilon that ``choose`` reads off it, and that reading.

    Connecting the dots splits each loss between its two neighbours on the grid, so it multiplies the loss's
    moment of order s by at most 1 + s (s + 1) interval^2 / 8. Over n steps, and where -log(delta) has slope s,
    that moves epsilon by about n (s + 1) interval^2 / 8 at most.
    """
    reach = math.sqrt(-2 * log_mass)
    widest = releases.mu * (releases.mu + 2 * reach)
    for rate, multiplier, _ in releases.subsampled:
        largest = (0.5 / multiplier + reach) / multiplier + math.log(rate) - math.log1p(-rate)
        widest = max(widest, float(np.logaddexp(0, largest)))
    finest = max(_FINEST_INTERVAL, widest / _MOST_CELLS)  # a coarser grid is safe, only less tight
    interval = max(finest, min(0.25, 0.5 * max(releases.limit_mu, 0.05) / math.sqrt(releases.count)))
    at = 1.0
    while True:
        curve = _curve(releases, interval, log_mass)
        at = choose(curve, at)
        if math.isinf(at):
            return curve, at
        width = max(interval, 0.01 * at)  # on both sides: ``at`` may lie just beyond the grid's last loss
        slope = max((curve(max(0.0, at - width)) - curve(at + width)) / (width + min(at, width)), 1e-3)
        wanted = math.sqrt(8 * _GRID_SHARE * max(at, 1 / slope) / (releases.count * (1 + slope)))
        if interval <= max(finest, 1.4 * wanted):
            return curve, at
        interval = max(finest, wanted)


@lru_cache(maxsize=4)
def _curve(releases: _Releases, interval: float, log_mass: float) -> _Curve:
    """By privacy loss distributions: the larger of both directions, with the allowance for rounding."""
    unsampled = [(1.0, 1 / releases.mu, 1)] if releases.mu else []
    parts: list[PrivacyLossDistribution] = []
    for rate, multiplier, steps in (*unsampled, *releases.subsampled):
        # By position: sensitivity 1, pessimistic, interval, truncation, rate, connecting the dots.
        part = from_gaussian_mechanism(multiplier, 1, True, interval, log_mass, rate, True)
        parts.append(part.self_compose(steps, _TAIL_MASS) if steps > 1 else part)
    composed = reduce(lambda one, other: one.compose(other, _TAIL_MASS), parts)

    @cache
    def log_delta(at: float) -> float:
        return math.log(max(float(composed.get_delta_for_epsilon(at)), 0.0) + _ROUNDING_PER_STEP * releases.count)

    return log_delta
