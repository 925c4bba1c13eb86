"""What a run releases, in the only form that accounting and the ledger need to know it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Sampling = Literal["poisson", "full-batch", "single-pass"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A stretch of consecutive steps, each a Gaussian release of one noise multiplier.

    The multiplier is noise standard deviation over zero-out sensitivity: all releases that one step makes on
    its batch count together as one Gaussian of this multiplier.

    Attributes:
        sampling: ``"poisson"``: every record is in each step's batch independently with probability
            ``rate``; ``"full-batch"``: every record is in every step; ``"single-pass"``: the steps'
            batches are disjoint, so a record meets one of them, and the whole stretch is one Gaussian of this
            multiplier.
        noise_multiplier: positive; infinite where nothing is released.
        steps: how many steps, at least 0.
        rate: the sampling probability, in (0, 1]; 1 unless Poisson.
    """

    sampling: Sampling
    noise_multiplier: float
    steps: int
    rate: float = 1.0


def first_steps(events: Iterable[Event], steps: int) -> tuple[Event, ...]:
    """The events of a run that stopped after ``steps`` steps."""
    kept: list[Event] = []
    for event in events:
        if steps > 0:
            kept.append(replace(event, steps=min(event.steps, steps)))
        steps -= event.steps
    return tuple(kept)
