"""What a sequence of Gaussian releases costs: epsilon, delta, and the noise that a budget asks for.

Releases without subsampling are accounted exactly, as one Gaussian (Dong, Roth and Su 2022, Corollary 1 and
section 2.2: mu^2 is the sum of the mu_i^2, also when they are chosen adaptively). Poisson-subsampled ones go
through discretised privacy loss distributions: connect-the-dots (Doroshenko et al. 2022) dominates the true loss,
so a coarse grid errs on the safe side, and an allowance covers what the Fourier transforms may lose.

The pair behind "zero-out" and "add-remove" is N(0, 1) against (1 - rate) N(0, 1) + rate N(1/z, 1), both ways
(Zhu, Dong and Wang 2022; "zero-out" needs that the rate, the steps and the divisor do not depend on the record).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib.metadata import version
from typing import get_args

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

from sottovoce.privacy.budget import Budget, Neighbours
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.events import Event, Sampling

ACCOUNTANT = f"PLD (dp-accounting {version('dp-accounting')}, connect-the-dots, pessimistic)"
CLOSED_FORM = "exact Gaussian differential privacy (closed form)"

LARGEST_MULTIPLIER = 1e6
SMALLEST_MULTIPLIER = 1e-3

# The grid is refined until what it adds to epsilon is estimated below twice this share of it.
_GRID_SHARE = 1e-3
_FINEST_INTERVAL = 1e-7  # below it, second differences of float64 deltas are noise
_MOST_CELLS = 500_000
_TAIL_MASS = 1e-15  # cut off, and added to delta, at each self-composition
# Rounding in an n-fold power of a Fourier transform moves delta by up to 1.6e-17 n (measured against the closed
# form at n up to 1e6); three times that is added to delta.
_ROUNDING_PER_STEP = 5e-17

# The logarithm of delta at an epsilon.
_Curve = Callable[[float], float]


@dataclass(frozen=True)
class _Releases:
    """Events with equal ones merged: one Gaussian of ``mu``, and (rate, noise multiplier, steps) of the rest."""

    mu: float
    subsampled: tuple[tuple[float, float, int], ...]

    @property
    def count(self) -> int:
        return sum(steps for _, _, steps in self.subsampled) + (self.mu > 0)

    @property
    def limit_mu(self) -> float:
        """Mu in the central limit (Bu et al. 2020, Theorem 5); exact without subsampling."""
        return math.sqrt(
            self.mu**2 + sum(n * rate**2 * math.expm1(min(1 / z**2, 500)) for rate, z, n in self.subsampled)
        )


def epsilon(events: Sequence[Event], delta: float, neighbours: Neighbours = "zero-out") -> float:
    """The smallest epsilon, up to the grid's share, such that the events are (epsilon, delta)-DP; 0 for none.

    Exact without subsampling. With it, an upper bound, by design within 0.5 % of the truth for delta >= 1e-10 and
    up to 1e5 steps. Where delta is too small for Fourier transforms in float64, Renyi accounting (Mironov 2017)
    takes over when it is tighter, so the result stays finite.

    ``"replace-one"`` doubles mu without subsampling; with it, it is two zero-out steps by group privacy
    (Dwork and Roth 2014, Theorem 2.2's argument with delta): (2 e, (1 + exp(e)) delta(e)).

    Raises:
        ConfigurationError: for a delta outside (0, 1) or a malformed event.
    """
    _check_delta(delta)
    return _epsilon(_merge(events), float(delta), _check_neighbours(neighbours))


def delta(events: Sequence[Event], epsilon: float, neighbours: Neighbours = "zero-out") -> float:
    """The smallest delta, up to the grid's share, such that the events are (epsilon, delta)-DP; see `epsilon`.

    Raises:
        ConfigurationError: for a negative epsilon or a malformed event.
    """
    _check_epsilon(epsilon)
    releases = _merge(events)
    replace = _check_neighbours(neighbours) == "replace-one"
    if not releases.subsampled:
        return gaussian_delta(2 * releases.mu if replace else releases.mu, epsilon)
    at = epsilon / 2 if replace else epsilon
    log_delta = _refined_curve(releases, lambda _: at, -50.0)[0](at)
    if log_delta < math.log(3 * _floor(releases)):
        log_delta = min(log_delta, _renyi_curve(releases)(at))
    return min(1.0, math.exp(min(0.0, log_delta + (np.logaddexp(0, at) if replace else 0.0))))


def calibrate(events_of: Callable[[float], Sequence[Event]], budget: Budget) -> float:
    """The smallest noise multiplier whose events fit the budget: to 5e-4, never on the infeasible side.

    Args:
        events_of: the events of a run at a noise multiplier; more noise must not cost more.
        budget: what ``epsilon(events_of(result), budget.delta, budget.neighbours)`` stays within.

    Raises:
        ConfigurationError: if no multiplier up to 1e6 is enough, or nothing is released.
    """
    target_mu = gaussian_mu_for(budget.epsilon, budget.delta) / (1 + (budget.neighbours == "replace-one"))
    at_one, at_two = _merge(events_of(1.0)), _merge(events_of(2.0))
    if at_one.count == 0:
        raise ConfigurationError("the events release nothing, so there is no noise to calibrate; plan a step.")

    def excess(multiplier: float) -> float:
        spent = epsilon(events_of(multiplier), budget.delta, budget.neighbours)
        return math.log(max(spent, 1e-300) / budget.epsilon)

    if not at_one.subsampled and math.isclose(at_one.mu, 2 * at_two.mu):
        start, tolerance = at_one.mu / target_mu, 1e-12
    else:
        start, tolerance = _central_limit_multiplier(events_of, target_mu), 4e-4
    return _smallest_feasible(excess, start, tolerance, budget)


def gaussian_mu(events: Sequence[Event]) -> float:
    """The mu of the one Gaussian that events without subsampling amount to (zero-out; double it to replace).

    Raises:
        ConfigurationError: if an event is truly subsampled, which no single Gaussian describes.
    """
    releases = _merge(events)
    if releases.subsampled:
        raise ConfigurationError(
            "Gaussian differential privacy is exact only without subsampling, and an event has a Poisson rate of "
            f"{releases.subsampled[0][0]!r}; use sampling='full-batch' or 'single-pass', or ask for epsilon()."
        )
    return releases.mu


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon with ``gaussian_delta(mu, epsilon) <= delta``, on the feasible side."""
    _check_delta(delta)
    return _solve(lambda at: _log_gaussian_delta(mu, at), delta, "zero-out")


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2) (Balle and Wang 2018, Theorem 8)."""
    _check_epsilon(epsilon)
    return math.exp(_log_gaussian_delta(mu, epsilon))


def gaussian_mu_for(epsilon: float, delta: float) -> float:
    """The largest mu with ``gaussian_delta(mu, epsilon) <= delta``, on the feasible side."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    upper = 1.0
    while gaussian_delta(upper, epsilon) < delta:
        upper *= 2
    lower = upper
    while gaussian_delta(lower, epsilon) >= delta:
        lower /= 2
    mu = _root(lambda mu: _log_gaussian_delta(mu, epsilon) - math.log(delta), lower, upper)
    back = mu * 2**-50
    while gaussian_delta(mu, epsilon) > delta:
        mu, back = mu - back, 2 * back
    return mu


def accountant_name(events: Sequence[Event]) -> str:
    """How the statement names what accounted for these events."""
    return ACCOUNTANT if _merge(events).subsampled else CLOSED_FORM


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigurationError(
            f"delta={delta!r}: it must lie strictly between 0 and 1; a tenth of 1/records is usual."
        )


def _check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ConfigurationError(f"epsilon={epsilon!r}: it must be a finite number, at least 0.")


def _check_neighbours(neighbours: Neighbours) -> Neighbours:
    if neighbours not in get_args(Neighbours):
        raise ConfigurationError(f"neighbours={neighbours!r}: choose one of {', '.join(get_args(Neighbours))}.")
    return neighbours


def _merge(events: Sequence[Event]) -> _Releases:
    squared_mu = 0.0
    subsampled: Counter[tuple[float, float]] = Counter()
    for event in events:
        rate, multiplier = float(event.rate), float(event.noise_multiplier)
        if event.sampling not in get_args(Sampling):
            raise ConfigurationError(f"sampling={event.sampling!r}: choose one of {', '.join(get_args(Sampling))}.")
        if not 0 < rate <= 1:
            raise ConfigurationError(f"rate={rate!r}: a sampling rate lies in (0, 1], such as 256/60000.")
        if not multiplier > 0:
            raise ConfigurationError(f"noise_multiplier={multiplier!r}: it must be positive; inf is no release.")
        if event.steps < 0 or event.steps != int(event.steps):
            raise ConfigurationError(f"steps={event.steps!r}: it must be a whole number, at least 0.")
        if event.steps == 0 or math.isinf(multiplier):
            continue
        if event.sampling == "poisson" and rate < 1:
            subsampled[rate, multiplier] += int(event.steps)
        else:
            meetings = 1 if event.sampling == "single-pass" else int(event.steps)
            squared_mu += meetings * (1 / multiplier) * (1 / multiplier)
    return _Releases(math.sqrt(squared_mu), tuple(sorted((r, z, n) for (r, z), n in subsampled.items())))


def _log_gaussian_delta(mu: float, epsilon: float) -> float:
    if mu == 0 or math.isinf(mu):
        return 0.0 if mu else -math.inf
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if near < -5:  # then mu > 10, and the two terms are far apart
        upper = float(log_ndtr(-near))
        return upper + math.log1p(-math.exp(epsilon + float(log_ndtr(-far)) - upper))
    # exp(epsilon - far^2 / 2) is exp(-near^2 / 2), which leaves a difference of scaled error functions.
    difference = float(erfcx(near / math.sqrt(2))) - float(erfcx(far / math.sqrt(2)))
    return math.log(difference / 2) - near * near / 2 if difference > 0 else -math.inf


@lru_cache(maxsize=1024)
def _epsilon(releases: _Releases, delta: float, neighbours: Neighbours) -> float:
    replace = neighbours == "replace-one"
    if not releases.subsampled:
        return gaussian_epsilon(2 * releases.mu if replace else releases.mu, delta)
    log_mass = math.log(delta) - math.log(releases.count) - 12  # 6e-6 of delta
    if replace:
        log_mass = min(log_mass, -50.0)  # delta(e) may have to be far below delta
    curve, result = _refined_curve(releases, lambda curve: _solve(curve, delta, neighbours), log_mass)
    if math.isinf(result) or math.log(_floor(releases) / 0.3) > curve(result / (1 + replace)):
        result = min(result, _solve(_renyi_curve(releases), delta, neighbours))
    return result


def _solve(curve: _Curve, delta: float, neighbours: Neighbours) -> float:
    """The smallest epsilon at which a curve of zero-out deltas meets delta; infinite if it never does."""
    replace = neighbours == "replace-one"

    def excess(at: float) -> float:
        # The 1e-13 is for the rounding of the logarithms: the result must hold in float64 too.
        return curve(at) + (float(np.logaddexp(0, at)) if replace else 0.0) - math.log(delta) + 1e-13

    if excess(0.0) <= 0:
        return 0.0
    lower, upper = 0.0, 1.0
    while excess(upper) > 0:
        lower, upper = upper, 2 * upper
        if upper > 1e12:
            return math.inf
    at = _root(excess, lower, upper)
    forward = at * 2**-50
    while excess(at) > 0:
        at, forward = at + forward, 2 * forward
    return 2 * at if replace else at


def _root(function: Callable[[float], float], lower: float, upper: float) -> float:
    """A sign change; -inf is a value like others."""
    finite: Callable[[float], float] = lambda x: max(function(x), -1e300)  # noqa: E731
    return float(brentq(finite, lower, upper, xtol=1e-16, rtol=1e-13))


def _finest(releases: _Releases, log_mass: float) -> float:
    """The interval at which the grid reaches what memory and float64 bear; coarser is safe, only less tight."""
    reach = math.sqrt(-2 * log_mass)
    widest = releases.mu * (releases.mu + 2 * reach)
    for rate, multiplier, _ in releases.subsampled:
        largest = (0.5 / multiplier + reach) / multiplier + math.log(rate)
        widest = max(widest, float(np.logaddexp(math.log1p(-rate), largest)) - math.log1p(-rate))
    return max(_FINEST_INTERVAL, widest / _MOST_CELLS)


def _refined_curve(releases: _Releases, choose: Callable[[_Curve], float], log_mass: float) -> tuple[_Curve, float]:
    """The curve on a grid fine enough at the epsilon that ``choose`` reads off it, and that reading.

    Connecting the dots splits a loss between its two neighbours on the grid, so it multiplies the moment of order
    s of the loss by at most 1 + s (s + 1) interval^2 / 8. In n steps and at the slope s of -log(delta), this moves
    epsilon by about n (s + 1) interval^2 / 8 at most.
    """
    count = releases.count
    finest = _finest(releases, log_mass)
    spread = max(releases.limit_mu, 0.2) / math.sqrt(count)
    interval = max(finest, min(0.25, 0.5 * spread))
    while True:
        curve = _curve(releases, interval, log_mass)
        chosen = choose(curve)
        at = chosen / 2 if False else chosen
        if math.isinf(at):
            return curve, chosen
        width = max(2 * interval, 0.01 * at)
        slope = max((curve(at) - curve(at + width)) / width, 1e-3)
        wanted = math.sqrt(8 * _GRID_SHARE * max(at, 1 / slope) / (count * (1 + slope)))
        if interval <= max(finest, 1.4 * wanted):
            return curve, chosen
        interval = max(finest, wanted)
