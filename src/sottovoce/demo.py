"""The demonstration: two private methods and their references without privacy, on real images, at epsilon 1.

MNIST is public data, treated as private here. Hyper-parameters were chosen on 10,000 of its training images, which
a real private data set would have to pay for; the demonstration shows the machinery, not a benchmark.
"""

from __future__ import annotations

import math
import multiprocessing
import platform
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from sottovoce.fit import fit
from sottovoce.losses import accuracy, cross_entropy
from sottovoce.methods import DPSGD, SGD, DPZero, Method, MeZO, PlainMethod
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.report.entries import Entry
from sottovoce.report.page import write
from sottovoce.tasks import data, models
from sottovoce.update import Update

BUDGET = Budget(epsilon=1.0, delta=1e-6)


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One run of the demonstration."""

    method: Method | PlainMethod
    note: str
    steps: int
    batch_size: int
    update: Update = field(default_factory=Update)


CONTESTANTS: Mapping[str, Contestant] = MappingProxyType(
    {
        "DP-SGD": Contestant(
            method=DPSGD(lr=2.0, clip=1.0),
            note="first-order: the noisy mean of clipped per-example gradients",
            steps=250,
            batch_size=512,
        ),
        "DPZero": Contestant(
            method=DPZero(lr=8e-3, clip=40.0, queries=4),
            note="zeroth-order: two forward passes for each of four random directions, no gradient",
            steps=1000,
            batch_size=256,
            update=Update(schedule="linear"),
        ),
        "SGD": Contestant(
            method=SGD(lr=0.1),
            note="the first-order reference without privacy",
            steps=300,
            batch_size=512,
            update=Update(momentum=0.9),
        ),
        "MeZO": Contestant(
            method=MeZO(lr=4e-3, queries=4, directions="sphere"),
            note="the zeroth-order reference without privacy",
            steps=1000,
            batch_size=256,
            update=Update(schedule="linear"),
        ),
    }
)


def run_demo(out: Path, *, seed: int = 0, progress: bool | None = None) -> list[Entry]:
    """Train every contestant, each in a process of its own so that peak memory can be told, and write the report.

    Raises:
        DatasetMissing: if MNIST was not fetched; nothing is downloaded behind the user's back.
        ConfigurationError: if the report cannot be written to ``out``, which is found out before the training.
    """
    data.path("mnist")
    _claim(Path(out))
    threads = torch.get_num_threads()
    entries: list[Entry] = []
    context = multiprocessing.get_context("spawn")
    for name in CONTESTANTS:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            entries.append(pool.submit(train_one, name, seed=seed, progress=progress, threads=threads).result())
    write(entries, out, title="Sottovoce: private training on MNIST", intro=_INTRO, facts=_facts(seed, threads))
    return entries


def _claim(folder: Path) -> None:
    """Make the folder and try it, so that minutes of training are not lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written to ({error}): choose another folder.") from None


def train_one(name: str, *, seed: int = 0, progress: bool | None = None, threads: int | None = None) -> Entry:
    """One contestant's run."""
    if threads is not None:
        torch.set_num_threads(threads)
    contestant = CONTESTANTS[name]
    images = data.load("mnist")
    train, test = images.as_tensors("train"), images.as_tensors("test")
    model = models.build("small-cnn", shape=images.shape, classes=images.classes, seed=seed)
    before = peak_memory()
    run = fit(
        model,
        cross_entropy,
        private=train,
        method=contestant.method,
        budget=BUDGET if contestant.method.private else None,
        steps=contestant.steps,
        batch_size=contestant.batch_size,
        update=contestant.update,
        validate=test,
        metrics={"accuracy": accuracy, "loss": cross_entropy},
        progress=progress,
        seed=seed,
    )
    return Entry(
        name=name,
        note=contestant.note,
        accuracy=run.final["accuracy"],
        seconds=run.final["seconds"],
        peak_memory=peak_memory() - before,
        history=run.history,
        statement=run.statement,
        settings=_settings(contestant),
    )


def peak_memory() -> float:
    """The most memory that this process has held so far, in megabytes; not a number where that cannot be told.

    Linux's ``ru_maxrss`` would not do: a process starts with the peak of the one that started it.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return math.nan
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(fields["VmHWM"].split()[0]) * 1024 / 1e6


def _settings(contestant: Contestant) -> dict[str, Any]:
    update = {name: value for name, value in asdict(contestant.update).items() if value not in (0.0, None, "constant")}
    method: Any = contestant.method
    return {"steps": contestant.steps, "batch size": contestant.batch_size, **asdict(method), **update}


_INTRO = (
    "A small convolutional network learns to read digits from 60,000 images, twice under a privacy guarantee and twice "
    "without, for comparison. Curves are of the 10,000 test images, which are public."
)


def _facts(seed: int, threads: int) -> dict[str, str]:
    return {
        "Data": "MNIST, 60,000 training and 10,000 test images: public data, treated as private",
        "Model": "small-cnn, 102,314 parameters",
        "Public": "the test images, the initial model, and the published mean and deviation that scale the pixels",
        "Hyper-parameters": "chosen on 10,000 training images outside the guarantee",
        "Machine": f"{platform.system()} {platform.machine()}, {threads} threads, torch {torch.__version__}",
        "Seed of public randomness": f"{seed} (noise and batches cannot be seeded)",
        "To reproduce": "make demo",
    }
