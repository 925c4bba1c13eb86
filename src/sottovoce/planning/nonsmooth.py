"""The best schedule of every oracle for a problem: for so many records, or for a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from sottovoce.arguments import is_finite, whole
from sottovoce.planning import multipass, naive, tree
from sottovoce.planning.problem import NonsmoothProblem, Options
from sottovoce.planning.schedule import OracleName, Schedule
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.tree import Factorisation

ROOM_IN_CLIP = 1.5
"""A record's estimate is clipped at so many Lipschitz constants; a gradient, at one."""
MOST_STEPS = 20_000
"""Passes over the whole data set that a plan may make, by default."""


def schedule(
    problem: NonsmoothProblem,
    *,
    records: int | None = None,
    target: float | None = None,
    oracle: OracleName = "single-pass",
    bases: int = 64,
    most_steps: int = MOST_STEPS,
    noise: Factorisation = "toeplitz",
) -> Schedule | None:
    """The best schedule of one oracle under its explicit bound (ALGORITHMS, section 8).

    Args:
        problem: what is to be minimised, and under which guarantee.
        records: the least bound that so many records allow; or
        target: the fewest records whose bound is at most this. Give exactly one of the two.
        oracle: how gradients are estimated.
        bases: orthonormal bases of directions for each record and step: what the clip costs in bias falls with them,
            what a run costs in evaluations rises.
        most_steps: steps of the oracles that read all records at every step.
        noise: the factorisation of running sums.

    Returns:
        The schedule; or None where there is none: too few records for one step, or a target below what the clip's bias
        alone allows.
    """
    if oracle not in get_args(OracleName):
        raise ConfigurationError(f"oracle={oracle!r}: choose one of {', '.join(map(repr, get_args(OracleName)))}.")
    if (records is None) == (target is None):
        raise ConfigurationError(f"records={records!r} and target={target!r}: give exactly one of the two.")
    bases, most_steps = whole("bases", bases), whole("most_steps", most_steps)
    records = None if records is None else whole("records", records)
    if target is not None and not (is_finite(target) and target > 0):
        raise ConfigurationError(f"target={target!r}: a positive, finite stationarity is needed.")
    if noise not in get_args(Factorisation):
        raise ConfigurationError(f"noise={noise!r}: 'toeplitz' or 'fenwick'.")
    ask = Options(
        bases=0 if oracle == "first-order" else bases,
        clip=problem.lipschitz * (1.0 if oracle == "first-order" else ROOM_IN_CLIP),
        most_steps=most_steps,
        noise=noise,
    )
    if records is not None:
        return _for_records(problem, records, oracle, ask)
    assert target is not None
    return _for_target(problem, target, oracle, ask)


def every(
    problem: NonsmoothProblem,
    *,
    records: int | None = None,
    target: float | None = None,
    oracles: Sequence[OracleName] = get_args(OracleName),
    bases: int = 64,
    most_steps: int = MOST_STEPS,
    noise: Factorisation = "toeplitz",
) -> dict[OracleName, Schedule | None]:
    """`schedule` for each of these oracles."""
    return {
        oracle: schedule(
            problem, records=records, target=target, oracle=oracle, bases=bases, most_steps=most_steps, noise=noise
        )
        for oracle in oracles
    }


def _for_records(problem: NonsmoothProblem, records: int, oracle: OracleName, options: Options) -> Schedule | None:
    if oracle == "tree":
        return tree.best(problem, records, options)
    if oracle in ("multi-pass", "multi-pass-differences"):
        return multipass.best(problem, records, options, differences=oracle == "multi-pass-differences")
    return naive.best(problem, records, options)


def _for_target(problem: NonsmoothProblem, target: float, oracle: OracleName, options: Options) -> Schedule | None:
    if oracle == "tree":
        return tree.required(problem, target, options)
    if oracle in ("multi-pass", "multi-pass-differences"):
        return multipass.required(problem, target, options, differences=oracle == "multi-pass-differences")
    return naive.required(problem, target, options)
