"""Where user code meets private records: what it warns of, logs through ``logging`` or draws, nothing outside tells."""

from __future__ import annotations

import logging
import random
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch

_ALONE = threading.RLock()


@contextmanager
def quiet(device: torch.device, seed: int) -> Generator[None]:
    """No warnings and no log records inside, and the global generators are as if nothing had been drawn from them.

    One thread at a time, as all this is the process's. The default type and the number of threads are put back as well.

    How much was drawn would tell how many records were there. Inside, the generators start from ``seed``: a loss that
    draws gives a record the same value whether its batch is asked together or record by record.
    """
    with _ALONE:
        states, logged_from = (random.getstate(), np.random.get_state()), logging.root.manager.disable
        dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
        logging.disable(2**31)  # of other threads too, for the time
        try:
            with (
                torch.random.fork_rng([device] if device.type == "cuda" else []),  # pyright: ignore[reportUnknownMemberType]
                warnings.catch_warnings(),
                np.errstate(all="ignore"),
            ):
                warnings.simplefilter("ignore")
                # Only the generators that are put back: torch.manual_seed would seed those of every other device too.
                random.seed(seed)
                np.random.seed(seed % 2**32)
                torch.default_generator.manual_seed(seed)
                if device.type == "cuda":
                    torch.cuda.default_generators[torch.empty(0, device=device).device.index].manual_seed(seed)
                yield
        finally:
            logging.disable(logged_from)
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
            random.setstate(states[0])
            np.random.set_state(states[1])
