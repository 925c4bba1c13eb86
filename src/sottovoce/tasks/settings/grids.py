"""Where each method looks for its hyper-parameters: the paper's Tables 12 and 13, thinned to at most six points.

The paper trains for 75,000 steps on images and 39,000 on reviews, here a run has some hundreds. So learning rates
start near the top of the paper's ranges and leave them upwards, as its own job scripts do (DP-SGD 2.0 and PAZO-M 1.0 on
CIFAR-10); comments note where. What the paper gives in one value stays: three candidates in PAZO-S, smoothing 1e-2
(1e-1 for PAZO-P on reviews).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from sottovoce.tasks.settings.setting import Grid


def crossed(**values: Any) -> Grid:
    """Every combination of the values given as lists, with the others fixed."""
    ranges = [value if isinstance(value, list) else [value] for value in values.values()]
    return tuple(dict(zip(values, point, strict=True)) for point in itertools.product(*ranges))


def pairs(names: tuple[str, ...], points: Sequence[tuple[Any, ...]], **fixed: Any) -> Grid:
    """The points written out, with the other arguments fixed."""
    return tuple({**dict(zip(names, point, strict=True)), **fixed} for point in points)


IMAGES_FROM_SCRATCH: Mapping[str, Grid] = {
    "SGD": crossed(lr=[0.02, 0.05, 0.1, 0.2, 0.5]),
    "MeZO": crossed(lr=[1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2], smoothing=1e-2, queries=5),
    "DPSGD": crossed(lr=[0.2, 0.5, 1.0], clip=[0.5, 1.0]),  # the paper: lr up to 0.2
    "DPZero": crossed(lr=[2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1], clip=1.0, smoothing=1e-2, queries=5),  # from 0.01
    "DPMD": crossed(lr=[0.1, 0.2, 0.5], clip=[0.5, 1.0], public_batch=32),
    "DopeSGD": crossed(lr=[0.1, 0.2, 0.5], clip=[0.5, 1.0], public_batch=32),  # the paper: lr up to 0.2
    "GEP": tuple(
        {"lr": lr, "clip": 5 * clip, "residual_clip": clip, "bases": 32, "public_batch": 32}
        for lr in (0.1, 0.2, 0.5)
        for clip in (0.1, 0.5)
    ),
    "PazoM": pairs(
        ("lr", "mix"),
        [(0.2, 0.5), (0.2, 0.75), (0.5, 0.25), (0.5, 0.5), (0.5, 0.75), (1.0, 0.5)],  # the paper: lr up to 0.5
        clip=1.0,
        public_batch=32,
    ),
    "PazoP": pairs(
        ("lr", "clip"),
        [(0.2, 0.5), (0.2, 1.0), (0.5, 0.5), (0.5, 1.0), (1.0, 0.5), (2.0, 0.5)],
        subspace=6,
        public_batch=32,
    ),
    "PazoS": crossed(lr=[0.05, 0.1, 0.2], clip=[1.0, 2.0], candidates=3, explore=1e-3, public_batch=32),
}

REVIEWS: Mapping[str, Grid] = {
    "SGD": crossed(lr=[0.2, 0.5, 1.0, 1.5, 5.0]),  # the paper: up to 1.5
    "MeZO": crossed(lr=[2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1], smoothing=1e-2, queries=5),
    "DPSGD": crossed(lr=[0.2, 1.0, 5.0], clip=[0.1, 0.5]),  # the paper: lr up to 0.2
    "DPZero": crossed(lr=[2e-3, 1e-2, 5e-2], clip=[0.1, 1.0], smoothing=1e-2, queries=5),
    "DPMD": crossed(lr=[0.1, 0.5, 2.0], clip=[0.1, 0.5], public_batch=32),  # the paper: lr up to 0.1
    "DopeSGD": crossed(lr=[0.1, 0.5, 2.0], clip=[0.1, 0.5], public_batch=32),  # the paper: lr up to 0.1
    "GEP": tuple(
        {"lr": lr, "clip": 5 * clip, "residual_clip": clip, "bases": 32, "public_batch": 32}
        for lr in (0.1, 0.5, 2.0)  # the paper: lr up to 0.1
        for clip in (0.1, 0.5)
    ),
    "PazoM": pairs(
        ("lr", "mix"),
        [(1.0, 0.5), (1.0, 0.75), (2.0, 0.25), (2.0, 0.5), (2.0, 0.75), (4.0, 0.5)],
        clip=0.5,
        public_batch=32,
    ),
    "PazoP": crossed(lr=[0.2, 1.0, 2.0], clip=[0.5, 1.0], subspace=6, smoothing=0.1, public_batch=32),
    "PazoS": crossed(lr=[0.5, 1.5, 3.0], clip=[0.5, 1.0], candidates=3, explore=1e-2, public_batch=32),
}

FEATURES: Mapping[str, Grid] = {
    "SGD": crossed(lr=[1e-3, 5e-3, 0.01, 0.05, 0.1]),
    "MeZO": crossed(lr=[1e-4, 2e-4, 5e-4, 1e-3, 2e-3], smoothing=1e-2, queries=5),
    "DPSGD": crossed(lr=[0.05, 0.2, 1.0], clip=[0.5, 2.0]),
    "DPZero": crossed(lr=[1e-4, 5e-4, 2e-3], clip=[1.0, 5.0], smoothing=1e-2, queries=5),  # the paper: clip 1
    "DPMD": crossed(lr=[0.02, 0.05, 0.2], clip=[0.5, 2.0], public_batch=32),
    "DopeSGD": crossed(lr=[0.02, 0.05, 0.2], clip=[0.5, 2.0], public_batch=32),
    "GEP": tuple(
        {"lr": lr, "clip": 5 * clip, "residual_clip": clip, "bases": 32, "public_batch": 32}
        for lr in (0.02, 0.1, 0.5)
        for clip in (0.5, 2.0)
    ),
    "PazoM": pairs(
        ("lr", "mix"),
        [(1e-3, 0.5), (5e-3, 0.5), (0.01, 0.25), (0.01, 0.5), (0.02, 0.5), (0.02, 0.75)],  # the paper: up to 5e-4
        clip=1.0,
        public_batch=32,
    ),
    "PazoP": crossed(lr=[0.02, 0.1, 0.5], clip=[0.5, 2.0], subspace=6, public_batch=32),  # the paper: from 0.2
    "PazoS": crossed(lr=[5e-3, 0.01, 0.05], clip=[1.0, 4.0], candidates=3, explore=1e-3, public_batch=32),
}
"""A head on standardised features, whose gradients are tens of times longer than those of a network from scratch."""

WHOLE_NETWORK: Mapping[str, Grid] = {
    "SGD": crossed(lr=[1e-3, 0.01, 0.05]),
    "MeZO": crossed(lr=[1e-5, 1e-4, 1e-3], smoothing=1e-3),
    "DPSGD": crossed(lr=[0.05, 0.2, 1.0], clip=1.0),
    "DPZero": crossed(lr=[1e-5, 1e-4, 1e-3], clip=10.0, smoothing=1e-3),  # the paper's for inference, and upwards
    "DPMD": crossed(lr=[0.02, 0.05, 0.2], clip=1.0, public_batch=32),
    "DopeSGD": crossed(lr=[0.02, 0.05, 0.2], clip=1.0, public_batch=32),
    "GEP": crossed(lr=[0.02, 0.1, 0.5], clip=5.0, residual_clip=1.0, bases=8, public_batch=8),
    "PazoM": crossed(lr=[1e-3, 5e-3, 0.02], clip=1.0, public_batch=32),
    "PazoP": crossed(lr=[0.02, 0.1, 0.5], clip=1.0, subspace=3, public_batch=32),
    "PazoS": crossed(lr=[1e-3, 5e-3, 0.02], clip=4.0, candidates=3, explore=1e-3, public_batch=32),
}
"""Three points each, as a run takes minutes without a GPU."""

PROMPT: Mapping[str, Grid] = {
    "SGD": crossed(lr=[0.02, 0.1, 0.5]),
    "MeZO": crossed(lr=[1e-4, 1e-3, 1e-2], smoothing=1e-2),
    "DPSGD": crossed(lr=[0.02, 0.1, 0.5], clip=1.0),
    "DPZero": crossed(lr=[1e-4, 1e-3, 1e-2], clip=1.0, smoothing=1e-2),
    "DPMD": crossed(lr=[0.02, 0.1], clip=1.0, public_batch=16),
    "DopeSGD": crossed(lr=[0.02, 0.1], clip=1.0, public_batch=16),
    "GEP": crossed(lr=[0.02, 0.1], clip=5.0, residual_clip=1.0, bases=4, public_batch=4),
    "PazoM": crossed(lr=[0.02, 0.1, 0.5], clip=1.0, public_batch=16),
    "PazoP": crossed(lr=[0.02, 0.1], clip=1.0, subspace=3, public_batch=16),
    "PazoS": crossed(lr=[0.02, 0.1], clip=1.0, candidates=3, explore=1e-3, public_batch=16),
}
"""A soft prompt in front of a language model: few points and small public batches, as a step takes seconds."""
