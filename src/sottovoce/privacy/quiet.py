"""Where user code meets private records: whatever it does there, nothing outside can tell."""

from __future__ import annotations

import random
import warnings
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def quiet(device: torch.device, seed: int) -> Generator[None]:
    """No warnings inside, and the global generators are as if nothing had been drawn from them.

    Inside, torch's generator starts from a public number: a loss that draws gives a record the same value
    whether its batch is asked together or record by record. How much was drawn would tell how many records were there.
    """
    states = random.getstate(), np.random.get_state()
    try:
        with (
            torch.random.fork_rng([device] if device.type == "cuda" else []),  # pyright: ignore[reportUnknownMemberType]
            warnings.catch_warnings(),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
