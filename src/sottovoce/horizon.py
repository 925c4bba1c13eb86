"""How long a run is and how it draws its batches, settled from a user's words before any data is read."""

from __future__ import annotations

import math
from typing import Literal, get_args

from sottovoce.arguments import is_finite, is_whole
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.sampling import FullBatch, Poisson, Sampler, SinglePass

Sampling = Literal["poisson", "single-pass", "full-batch"]

MOST_STEPS = 1_000_000
"""Every step is planned before the first, which takes some seconds for so many."""


def resolve(
    sampling: Sampling | str,
    *,
    records: int,
    batch_size: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
) -> Sampler:
    """The sampler of a run over so many records: rate = batch_size / records, steps = ceil(epochs / rate).

    Args:
        sampling: ``"poisson"``, ``"single-pass"`` or ``"full-batch"``.
        records: the public number of records.
        batch_size: the expected (Poisson) or exact (single-pass) number of records in a step.
        epochs: passes over the data; give exactly one of epochs and steps.
        steps: the number of steps.
    """
    if sampling not in get_args(Sampling):
        raise ConfigurationError(f"sampling={sampling!r}: choose one of {', '.join(map(repr, get_args(Sampling)))}.")
    if (epochs is None) == (steps is None):
        raise ConfigurationError(f"epochs={epochs!r} and steps={steps!r}: give exactly one of the two.")
    if epochs is not None and not (is_finite(epochs) and epochs > 0):
        raise ConfigurationError(f"epochs={epochs!r}: it must be a positive, finite number.")
    if steps is not None and not (is_whole(steps) and steps >= 1):
        raise ConfigurationError(f"steps={steps!r}: a run needs a whole number of steps, at least one.")
    if sampling == "full-batch":
        if batch_size is not None and batch_size != records:
            raise ConfigurationError(
                f"batch_size={batch_size!r} with sampling='full-batch': every step sees all {records} records; leave "
                "batch_size out, or choose sampling='poisson'."
            )
        return FullBatch(steps=_steps(1.0, epochs, steps), records=records)
    size = _check_batch_size(batch_size, records)
    if sampling == "poisson":
        return Poisson(rate=size / records, steps=_steps(records / size, epochs, steps), records=records)
    if epochs is not None and epochs > 1:
        raise ConfigurationError(f"epochs={epochs} with sampling='single-pass': no record is used twice, so at most 1.")
    blocks = int(steps or 0) if epochs is None else int(epochs * records / size)
    if not blocks:
        raise ConfigurationError(f"epochs={epochs} is less than one batch of {size}: more epochs or smaller batches.")
    sampler = SinglePass(sizes=(size,) * blocks)
    sampler.check(records)
    return sampler


def _steps(batches_per_epoch: float, epochs: float | None, steps: int | None) -> int:
    wanted = int(steps) if steps is not None else math.ceil((epochs or 0) * batches_per_epoch)
    if wanted > MOST_STEPS:
        raise ConfigurationError(f"{wanted:,} steps: at most {MOST_STEPS:,} can be planned; take larger batches.")
    return wanted


def _check_batch_size(batch_size: int | None, records: int) -> int:
    if batch_size is None:
        raise ConfigurationError("batch_size is needed: the expected number of records in a step.")
    if not is_whole(batch_size) or not 1 <= batch_size <= records:
        raise ConfigurationError(
            f"batch_size={batch_size!r}: it must be a whole number from 1 to the number of records, {records} (the "
            "sampling rate batch_size / records lies in (0, 1])."
        )
    return int(batch_size)
