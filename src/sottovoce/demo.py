"""The demonstration: five private methods on real images, at two epsilons, beside three runs without privacy.

MNIST is public data, treated as private here, but for a small part of its training images that the methods with public
data may see. Hyper-parameters were chosen on training images too, which a real private data set would have to pay for;
the demonstration shows the machinery, not a benchmark.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import platform
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor

from sottovoce.fit import fit
from sottovoce.losses import accuracy, cross_entropy
from sottovoce.methods import DPSGD, SGD, DPZero, Method, MeZO, PazoM, PazoP, PazoS, PlainMethod
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.report.entries import Entry, TrainsOn
from sottovoce.report.page import write
from sottovoce.tasks import data, models, settings
from sottovoce.update import Update

Examples = tuple[Tensor, Tensor]

BUDGET = Budget(epsilon=1.0, delta=1e-6)


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One run of the demonstration."""

    method: Method | PlainMethod
    note: str
    steps: int
    batch_size: int
    update: Update = field(default_factory=Update)
    trains_on: TrainsOn = "private"


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
        "PAZO-M": Contestant(
            method=PazoM(lr=0.5, mix=0.75, public_batch=64),
            note="a public gradient, mixed with a private slope along one random direction",
            steps=400,
            batch_size=256,
            trains_on="private and public",
        ),
        "PAZO-P": Contestant(
            method=PazoP(lr=0.5, subspace=2, clip=5.0, queries=2, public_batch=64),
            note="private slopes in the plane of two public gradients",
            steps=400,
            batch_size=256,
            trains_on="private and public",
        ),
        "PAZO-S": Contestant(
            method=PazoS(lr=0.2, clip=2.0, public_batch=64),
            note="private losses choose among three public gradients",
            steps=400,
            batch_size=256,
            trains_on="private and public",
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
        "public only": Contestant(
            method=SGD(lr=0.05),
            note="SGD on the public images alone",
            steps=300,
            batch_size=64,
            update=Update(momentum=0.9, schedule="linear"),
            trains_on="public",
        ),
    }
)
"""The runs that the learning curves show; those that are private, at the epsilon of `BUDGET`."""

OTHER_EPSILONS: Mapping[str, Mapping[float, Contestant]] = MappingProxyType(
    {
        "DP-SGD": {0.1: replace(CONTESTANTS["DP-SGD"], method=DPSGD(lr=1.0, clip=1.0), steps=50)},
        "DPZero": {0.1: replace(CONTESTANTS["DPZero"], steps=250)},
        "PAZO-M": {0.1: replace(CONTESTANTS["PAZO-M"], steps=200)},
        "PAZO-P": {0.1: replace(CONTESTANTS["PAZO-P"], steps=200)},
        "PAZO-S": {0.1: replace(CONTESTANTS["PAZO-S"], steps=200)},
    }
)
"""The private methods once more, for the figure of accuracy against epsilon; only their ends are measured."""


@dataclass(frozen=True)
class Parts:
    """MNIST in three: what is treated as private, what the methods with public data may see, what measures."""

    private: Examples
    public: Examples
    test: Examples


_MARKS = 10
"""Points of a learning curve: each costs two passes over the test images."""

_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
"""For glibc in the processes of the runs: what a step frees, the next one has again, without asking the system for it
page by page. Where page faults are dear, a step of DP-SGD, whose gradients fill hundreds of megabytes, takes up to half
as long again without it."""


def parts() -> Parts:
    """As in the setting "mnist", whose validation part chose the hyper-parameters and is left out here."""
    setting = settings.load("mnist", seed=0)
    return Parts(*(cast(Examples, part) for part in (setting.private, setting.public, setting.test)))


def run_demo(out: Path, *, seed: int = 0, progress: bool | None = None) -> list[Entry]:
    """Train every contestant and write the report.

    Each has a process of its own, so that peak memory can be told; its runs at other epsilons follow in the same one.

    Raises:
        DatasetMissing: if MNIST was not fetched; nothing is downloaded behind the user's back.
        ConfigurationError: if the report cannot be written to ``out``, which is found out before the training.
    """
    data.path("mnist")
    _claim(Path(out))
    threads = torch.get_num_threads()
    entries: list[Entry] = []
    added = [name for name in _KEEP_MEMORY if name not in os.environ]
    os.environ |= {name: _KEEP_MEMORY[name] for name in added}
    context = multiprocessing.get_context("spawn")
    try:
        for name in CONTESTANTS:
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                entries += pool.submit(train_all, name, seed=seed, progress=progress, threads=threads).result()
    finally:
        for name in added:
            del os.environ[name]
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


def train_all(name: str, *, seed: int = 0, progress: bool | None = None, threads: int | None = None) -> list[Entry]:
    """A contestant's runs: that of the learning curves, then those at other epsilons."""
    if threads is not None:
        torch.set_num_threads(threads)
    contestant, known = CONTESTANTS[name], parts()
    entries = [train_one(name, contestant, known, BUDGET, seed=seed, progress=progress)]
    for epsilon, other in OTHER_EPSILONS.get(name, {}).items():
        budget = replace(BUDGET, epsilon=epsilon)
        entries.append(train_one(name, other, known, budget, seed=seed, progress=progress, curve=False))
    return entries


def train_one(
    name: str,
    contestant: Contestant,
    known: Parts,
    budget: Budget,
    *,
    seed: int = 0,
    progress: bool | None = None,
    curve: bool = True,
) -> Entry:
    """One run. A reference without privacy leaves the budget aside."""
    inputs, targets = known.test
    model = models.build("small-cnn", shape=_shape(inputs), classes=int(targets.max()) + 1, seed=seed)
    forget_peak()
    before = peak_memory()
    run = fit(
        model,
        cross_entropy,
        private=known.public if contestant.trains_on == "public" else known.private,
        public=known.public if contestant.trains_on == "private and public" else None,
        method=contestant.method,
        budget=budget if contestant.method.private else None,
        steps=contestant.steps,
        batch_size=contestant.batch_size,
        update=contestant.update,
        validate=known.test,
        metrics={"accuracy": accuracy, "loss": cross_entropy},
        evaluate_every=-(-contestant.steps // _MARKS) if curve else contestant.steps,
        progress=progress,
        seed=seed,
    )
    return Entry(
        name=name,
        note=contestant.note,
        accuracy=run.final["accuracy"],
        seconds=run.final["seconds"],
        peak_memory=peak_memory() - before if curve else math.nan,
        history=run.history,
        statement=run.statement,
        settings=_settings(contestant),
        trains_on=contestant.trains_on,
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


def forget_peak() -> None:
    """Count the peak from now on, so that reading the data does not hide what training takes; on Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _shape(inputs: Tensor) -> models.Shape:
    return cast(models.Shape, tuple(inputs.shape[1:]))


def _settings(contestant: Contestant) -> dict[str, Any]:
    update = {name: value for name, value in asdict(contestant.update).items() if value not in (0.0, None, "constant")}
    method: Any = contestant.method
    return {"steps": contestant.steps, "batch size": contestant.batch_size, **asdict(method), **update}


_INTRO = (
    "A small convolutional network learns to read digits from 56,000 images that are treated as private. Three methods "
    "also see 2,000 public ones; what these teach alone is shown beside them. Curves are of the 10,000 test images, "
    "which are public."
)


def _facts(seed: int, threads: int) -> dict[str, str]:
    return {
        "Data": "MNIST, public data. Of its 60,000 training images 56,000 are treated as private, 2,000 are the public "
        "data of PAZO-M, PAZO-P, PAZO-S and “public only” (a fixed cut; zeros a little more frequent than nines), "
        "and 2,000 are left out: settings were chosen on them",
        "Model": "small-cnn, 102,314 parameters",
        "Public": "those 2,000 images, the test images, the initial model, and the published mean and deviation that "
        "scale the pixels",
        "Hyper-parameters": "chosen outside the guarantee, at epsilon 1 unless a run says otherwise: those of the "
        "methods with public data, and all at other epsilons, on the 2,000 images left out; the others on 10,000 "
        "training images",
        "At other epsilons": "some methods take fewer steps: more noise lets fewer of them count",
        "Machine": f"{platform.system()} {platform.machine()}, {threads} threads, torch {torch.__version__}",
        "Seed of public randomness": f"{seed} (noise and batches cannot be seeded)",
        "To reproduce": "make demo",
    }
