"""Seconds of one step of every method, beside DP-SGD in its fastest forms without our exact grid.

    python benchmarks/method_speed.py --setting fashion-mnist --out results/method-speed/2026-11-19

All contestants take their steps in turn in one process (medians of the repetitions). Ours are whole steps of a session:
Poisson draw, padded evaluation, exact clip, exact noise, lease, update. The forms of DP-SGD that they are compared with
clip in float32 and draw torch's noise on a ready batch of the expected size: torch.func's per-example gradients,
Opacus' hooks, and Opacus' ghost clipping (``pip install -e '.[dev]'``).
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import sottovoce as sv
from sottovoce.bench.contestants import CONTESTANTS
from sottovoce.bench.starts import load

MANY = 100_000
METHODS = ("DP-SGD", "DPMD", "DOPE-SGD", "GEP", "DPZero", "PAZO-M", "PAZO-P", "PAZO-S", "MeZO", "SGD")
BATCH, CLIP, NOISE, RATE = 64, 1.0, 1.0, 1e-3
COLUMNS = ("setting", "device", "parameters", "queries", "method", "milliseconds", "fastest_rival_over_it")
Step = Callable[[], Any]


def line(text: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def ours(setting: Any, name: str, device: torch.device, queries: int) -> Step:
    """One step of a session."""
    contestant = CONTESTANTS[name]
    options: dict[str, Any] = {"lr": RATE}
    if contestant.uses_public:
        options["public_batch"] = 32
    if name in ("DPZero", "PAZO-M", "PAZO-P", "MeZO"):
        options["queries"] = queries
    if name == "PAZO-P":
        options["subspace"] = 3
    if name == "GEP":
        options["bases"] = 32
    model = setting.make_model(0).to(device)
    session = sv.Session(
        model, setting.loss, private=setting.private, public=setting.public if contestant.uses_public else None,
        method=contestant.method(options), steps=MANY, batch_size=BATCH, example=setting.example,
        budget=sv.Budget(epsilon=50.0, delta=1e-5) if contestant.private else None,
    )  # fmt: skip
    return lambda: next(session.__iter__())


def by_torch_func(setting: Any, batch: Any, device: torch.device) -> Step:
    """DP-SGD by vmap over grad, float32 throughout."""
    model = setting.make_model(0).to(device).eval()
    values = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    inputs, targets = batch

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, one: Tensor, target: Tensor) -> Tensor:
            return setting.loss(self.model, (one[None], target[None]))[0]

    wrapped = Wrapped()

    def loss(at: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        return functional_call(wrapped, {f"model.{name}": value for name, value in at.items()}, (one, target))

    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")

    def step() -> None:
        found = each(values, inputs, targets)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in found.values()]).norm(dim=0)
        factors = (CLIP / (norms + 1e-6)).clamp(max=1.0)
        for name, gradients in found.items():
            total = torch.einsum("b,b...->...", factors, gradients)
            values[name] -= RATE * (total + NOISE * CLIP * torch.randn_like(total)) / BATCH

    return step


def by_opacus(setting: Any, batch: Any, device: torch.device, *, ghost: bool) -> Step:
    """DP-SGD by Opacus, with hooks or with ghost clipping."""
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from opacus.validators import ModuleValidator

    model = setting.make_model(0).train()  # their hooks work on modules that train
    model = ModuleValidator.fix(model).to(device)
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    inputs, targets = batch
    optimizer_class = DPOptimizerFastGradientClipping if ghost else DPOptimizer
    wrapped = (
        GradSampleModuleFastGradientClipping(model, max_grad_norm=CLIP, use_ghost_clipping=True)
        if ghost
        else GradSampleModule(model)
    )
    optimizer = optimizer_class(
        torch.optim.SGD(wrapped.parameters(), lr=RATE), noise_multiplier=NOISE, max_grad_norm=CLIP,
        expected_batch_size=BATCH,
    )  # fmt: skip

    def hooks() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(wrapped(inputs), targets).backward()
        optimizer.step()

    if not ghost:
        return hooks
    criterion = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss(reduction="mean"))

    def ghosts() -> None:
        optimizer.zero_grad()
        criterion(wrapped(inputs), targets).backward()
        optimizer.step()

    return ghosts


def main() -> None:
    """Measure what can be built, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--setting", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--queries", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device, setting = torch.device(arguments.device), load(arguments.setting)
    batch = tuple(leaf[:BATCH].to(device) for leaf in setting.private)
    makers: dict[str, Callable[[], Step]] = {
        name: lambda name=name: ours(setting, name, device, arguments.queries) for name in METHODS
    }
    makers["DP-SGD, torch.func"] = lambda: by_torch_func(setting, batch, device)
    makers["DP-SGD, Opacus hooks"] = lambda: by_opacus(setting, batch, device, ghost=False)
    makers["DP-SGD, Opacus ghost"] = lambda: by_opacus(setting, batch, device, ghost=True)
    steps: dict[str, Step] = {}
    for name, make in makers.items():
        try:
            step = make()
            step()
            steps[name] = step
        except Exception as error:
            line(f"{name}: not measured ({type(error).__name__}: {str(error).splitlines()[0][:120]})")
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repetition in range(-2, arguments.repetitions):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if repetition >= 0:
                times[name].append(time.perf_counter() - started)
    median = {name: statistics.median(values) for name, values in times.items()}
    rivals = {name: value for name, value in median.items() if name.startswith("DP-SGD, ")}
    fastest = min(rivals, key=lambda name: rivals[name]) if rivals else "DP-SGD"
    numel = sum(p.numel() for p in setting.make_model(0).parameters() if p.requires_grad)
    machine = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    line(f"{arguments.setting}: d = {numel:,}, batch {BATCH}, q = {arguments.queries}, {arguments.device}; {machine}")
    line(f"fastest DP-SGD without our grid: {fastest}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    table = arguments.out / "speed.csv"
    new = not table.exists()
    with table.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(COLUMNS)
        for name, value in median.items():
            ratio = median[fastest] / value
            line(f"  {name:22} {1000 * value:9.2f} ms   {ratio:6.2f} x as fast as {fastest}")
            where = [arguments.setting, arguments.device, numel, arguments.queries]
            writer.writerow([*where, name, f"{1000 * value:.3f}", f"{ratio:.3f}"])
    with (arguments.out / "command.txt").open("a") as file:
        file.write(" ".join(["python", "benchmarks/method_speed.py", *sys.argv[1:]]) + f"\n{machine}\n")


if __name__ == "__main__":
    main()
