"""NF-ResNet-18 at full size, 11.2 million parameters: private zeroth-order steps, and their memory beyond inference.

    python benchmarks/full_size.py --out results/full-size/2026-11-19 --batch-size 16

Every method takes its steps on CIFAR-10 in a process of its own. So does plain inference over the same padded
micro-batches; what a method's peak resident memory is above that one's is what its step needs beyond inference.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from objective_speed import line, peak_memory

import sottovoce as sv
from sottovoce.privacy.evaluation import physical_batch
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.sampling import Poisson
from sottovoce.tasks import settings

METHODS: dict[str, Any] = {
    "DPZero": sv.DPZero(lr=1e-3),
    "PAZO-M": sv.PazoM(lr=1e-3),
    "PAZO-P": sv.PazoP(lr=1e-3, subspace=3, public_batch=32),
    "PAZO-S": sv.PazoS(lr=1e-3, candidates=3),
}
INFERENCE = "inference"
STEPS = 20
COLUMNS = (
    "what",
    "strategy",
    "batch_size",
    "parameters",
    "steps",
    "seconds_a_step",
    "peak_mib",
    "beyond_inference_mib",
)


def measure(what: str, strategy: str, batch_size: int) -> dict[str, float]:
    """Seconds a step and peak memory of one method, or of inference, in this process."""
    setting = settings.load("cifar-10", model="nf-resnet-18")
    model = setting.make_model(0).eval()
    sampler = Poisson(rate=batch_size / len(setting.private[0]), steps=STEPS, records=len(setting.private[0]))
    rows = physical_batch(Plan((Stage(sampler=sampler),)), 512)  # the padded micro-batch of the methods
    started = time.perf_counter()
    if what == INFERENCE:
        inputs = setting.private[0][:rows]
        with torch.inference_mode():
            for _ in range(3):
                model(inputs)
        seconds = (time.perf_counter() - started) / 3
    else:
        method = METHODS[what]
        run = sv.fit(
            model, setting.loss, private=setting.private, method=method,
            public=setting.public if what.startswith("PAZO") else None, example=setting.example,
            budget=sv.Budget(epsilon=1.0, delta=1e-5), steps=STEPS, batch_size=batch_size, strategy=strategy,
            progress=False,
        )  # fmt: skip
        if run.statement.steps_run != STEPS:
            raise SystemExit(f"{what} took {run.statement.steps_run} steps")
        seconds = (time.perf_counter() - started) / STEPS
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"seconds": seconds, "peak": peak_memory(), "parameters": count}


def main() -> None:
    """Measure each in a process of its own, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--strategies", default="lean,fast")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--strategy", default="lean", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.measure:
        line(json.dumps(measure(arguments.measure, arguments.strategy, arguments.batch_size)))
        return

    def apart(what: str, strategy: str) -> dict[str, float]:
        command = [sys.executable, __file__, "--out", str(arguments.out), "--measure", what, "--strategy", strategy]
        done = subprocess.run(
            [*command, "--batch-size", str(arguments.batch_size)], check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    arguments.out.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    base = apart(INFERENCE, "lean")
    cells = [(INFERENCE, "-", base)] + [
        (name, strategy, apart(name, strategy)) for strategy in arguments.strategies.split(",") for name in METHODS
    ]
    with (arguments.out / "full_size.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for what, strategy, found in cells:
            beyond = (found["peak"] - base["peak"]) / 2**20
            steps = 0 if what == INFERENCE else STEPS
            writer.writerow(
                [what, strategy, arguments.batch_size, found["parameters"], steps, f"{found['seconds']:.2f}",
                 f"{found['peak'] / 2**20:.0f}", f"{beyond:.0f}"]
            )  # fmt: skip
            line(
                f"{what:10} {strategy:5} {found['seconds']:7.2f} s, peak {found['peak'] / 2**20:7.0f} MiB, "
                f"{beyond:+7.0f} MiB beyond inference (the parameters: {4 * found['parameters'] / 2**20:.0f} MiB)"
            )
    command = " ".join(["python", "benchmarks/full_size.py", *sys.argv[1:]])
    (arguments.out / "command.txt").write_text(f"{command}\n{machine}\n")


if __name__ == "__main__":
    main()
