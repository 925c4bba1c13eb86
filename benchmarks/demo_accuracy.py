"""What privacy costs on the demonstration's data, and whether DP-SGD here trains as well as Opacus' does.

    python benchmarks/demo_accuracy.py --out results/demo-accuracy/2026-11-19

Every contestant of the demonstration with several seeds; the private ones also under ``testing.no_noise()``, which
leaves the clip, so that the cost of the clip and that of the noise can be told apart. Then DP-SGD with Opacus' hooks
and optimiser: the same model, data, sampling rate, clip, noise multiplier, learning rate and steps. Runs that are in
the table already are not repeated. Opacus comes with ``pip install -e '.[dev]'``.

Methods that use no public data train on all 60,000 training images here, as they always did in the committed results;
in the demonstration, where they stand beside methods with public data, on the 56,000 that are private to all. The
methods with public data, and that on public data alone, train here as they do there.
"""

from __future__ import annotations

import argparse
import csv
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import sottovoce as sv
from sottovoce.demo import BUDGET, CONTESTANTS, Contestant, parts
from sottovoce.fit import evaluate
from sottovoce.losses import accuracy, cross_entropy
from sottovoce.privacy import accounting, sampling
from sottovoce.tasks import data, models

COLUMNS = ("method", "variant", "seed", "accuracy", "seconds")
NOISY, NOISELESS, OPACUS, REFERENCE = "epsilon 1", "no noise, clip kept", "Opacus, epsilon 1", "without privacy"
PUBLIC = "no private record"
MULTIPLIER_OF = "DP-SGD"


def line(text: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def train(name: str, variant: str, seed: int) -> float:
    """The test accuracy of one contestant."""
    contestant, images = CONTESTANTS[name], data.load("mnist")
    model = models.build("small-cnn", shape=images.shape, classes=images.classes, seed=seed)
    if contestant.trains_on == "private":
        private, public = images.as_tensors("train"), None
    elif contestant.trains_on == "public":
        private, public = parts().public, None
    else:
        private, public = parts().private, parts().public
    with sv.testing.no_noise() if variant == NOISELESS else nullcontext():
        run = sv.fit(
            model, cross_entropy, private=private, public=public, method=contestant.method,
            budget=BUDGET if contestant.method.private else None, steps=contestant.steps,
            batch_size=contestant.batch_size, update=contestant.update, seed=seed, progress=False,
        )  # fmt: skip
    return evaluate(run.model, accuracy, images.as_tensors("test"))


def train_opacus(seed: int) -> float:
    """The same run as DP-SGD's, by Opacus' per-sample gradients and optimiser on Poisson batches."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    contestant, images = CONTESTANTS[MULTIPLIER_OF], data.load("mnist")
    inputs, targets = images.as_tensors("train")
    rate = contestant.batch_size / len(inputs)
    events = sv.DPSGD(lr=1.0).plan(_sampler(rate, contestant.steps, len(inputs))).events
    multiplier = accounting.calibrate(events, BUDGET)
    model = models.build(
        "small-cnn", shape=images.shape, classes=images.classes, seed=seed
    ).train()  # their hooks see modules that train
    wrapped = GradSampleModule(model)
    method = contestant.method
    assert isinstance(method, sv.DPSGD)
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=method.lr), noise_multiplier=multiplier, max_grad_norm=method.clip,
        expected_batch_size=contestant.batch_size,
    )  # fmt: skip
    membership = np.random.default_rng()
    for _ in range(contestant.steps):
        chosen = torch.as_tensor(np.flatnonzero(membership.random(len(inputs)) < rate))
        optimizer.zero_grad()
        functional.cross_entropy(wrapped(inputs[chosen]), targets[chosen]).backward()
        optimizer.step()
    return evaluate(model, accuracy, images.as_tensors("test"))


def _sampler(rate: float, steps: int, records: int) -> sampling.Poisson:
    return sampling.Poisson(rate=rate, steps=steps, records=records)


def read(path: Path) -> list[dict[str, str]]:
    """The rows so far."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def variants(contestant: Contestant) -> tuple[str, ...]:
    """In which ways a contestant is run."""
    if contestant.method.private:
        return NOISY, NOISELESS
    return (PUBLIC,) if contestant.trains_on == "public" else (REFERENCE,)


def wanted(seeds: int, duels: int) -> list[tuple[str, str, int, Callable[[], float]]]:
    """All runs: method, variant, seed, and how."""
    kinds = [
        (name, variant, duels if (name, variant) == (MULTIPLIER_OF, NOISY) else seeds)
        for name, contestant in CONTESTANTS.items()
        for variant in variants(contestant)
    ]
    runs: list[tuple[str, str, int, Callable[[], float]]] = [
        (name, variant, seed, partial(train, name, variant, seed))
        for name, variant, count in kinds
        for seed in range(count)
    ]
    runs += [(MULTIPLIER_OF, OPACUS, seed, partial(train_opacus, seed)) for seed in range(duels)]
    return runs


def summary(rows: list[dict[str, str]]) -> list[str]:
    """Mean and standard deviation of each group, and the duel in pooled standard errors."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["variant"]), []).append(100 * float(row["accuracy"]))
    lines = [
        f"{method:8} {variant:20} {statistics.mean(found):6.2f} % +- {statistics.stdev(found):5.2f}, {len(found)} seeds"
        for (method, variant), found in groups.items()
        if len(found) > 1
    ]
    ours, theirs = groups.get((MULTIPLIER_OF, NOISY), []), groups.get((MULTIPLIER_OF, OPACUS), [])
    if min(len(ours), len(theirs)) > 1:
        error = math.sqrt(statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs))
        gap = statistics.mean(ours) - statistics.mean(theirs)
        lines.append(f"ours - Opacus: {gap:+.3f} points = {gap / error:+.2f} pooled standard errors")
    return lines


def main() -> None:
    """Run what is missing, append to the table, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--duels", type=int, default=5, help="runs of DP-SGD here and by Opacus")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    table = arguments.out / "runs.csv"
    for method, variant, seed, run in wanted(arguments.seeds, arguments.duels):
        if any((r["method"], r["variant"], r["seed"]) == (method, variant, str(seed)) for r in read(table)):
            continue
        started = time.perf_counter()
        row = (method, variant, seed, f"{run():.4f}", f"{time.perf_counter() - started:.1f}")
        new = not table.exists()
        with table.open("a", newline="") as file:
            csv.writer(file).writerows([COLUMNS, row] if new else [row])
        line("  ".join(map(str, row)))
    machine = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    command = (
        f"python benchmarks/demo_accuracy.py --out {arguments.out} --seeds {arguments.seeds} --duels {arguments.duels}"
    )
    text = "\n".join([command, machine, "", *summary(read(table))]) + "\n"
    (arguments.out / "summary.txt").write_text(text)
    line(text)


if __name__ == "__main__":
    main()
