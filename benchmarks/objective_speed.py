"""What an evaluation at x + lambda u costs above plain inference: time of both strategies, and memory of the lean one.

    python benchmarks/objective_speed.py                    # everything
    python benchmarks/objective_speed.py cnn --repetitions 50

Times are medians of interleaved repetitions: two plain inference forwards with their per-example losses, then the
two-point evaluation x + lambda u, x - lambda u over the same batch, the drawing of a new direction included.

Peak memory is the kernel's high-water mark of resident memory, each measurement in a process of its own. Every process
first evaluates a tiny model by the lean strategy: the pages of torch's and numpy's own code, about 5 MiB whatever the
model, are then in both sides of the comparison; the process "bare inference" does without, and shows them.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.objective.directions import Key, draw
from sottovoce.objective.module import ModuleObjective
from sottovoce.tasks.models import build

CASES: dict[str, tuple[str, tuple[int, int, int], int, float]] = {
    # name: model, image shape, batch size, highest ratio wanted
    "cnn": ("small-cnn", (1, 28, 28), 320, 1.5),
    "resnet": ("resnet", (3, 32, 32), 64, 1.2),
}
WIDTH, DEPTH, ROWS = 2048, 6, 32
MEASURED = ("inference", "bare inference", "lean", "fast")


def cross_entropy(model: Any, batch: Any) -> Tensor:
    """One loss for each record."""
    inputs, targets = batch
    return functional.cross_entropy(model(inputs), targets, reduction="none")


def line(text: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def interleaved(functions: dict[str, Callable[[int], Any]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each function, all of them in each repetition, after two that do not count."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for repetition in range(-2, repetitions):
        for name, function in functions.items():
            start = time.perf_counter()
            function(repetition)
            if repetition >= 0:
                times[name].append(time.perf_counter() - start)
    return times


def time_case(name: str, kind: str, repetitions: int) -> None:
    """Two-point evaluations against two inference forwards."""
    model_name, shape, rows, wanted = CASES[name]
    model = build(model_name, shape=shape, classes=10).eval()
    torch.manual_seed(0)
    batch = (torch.randn(rows, *shape), torch.randint(0, 10, (rows,)))
    example = (torch.zeros(shape), torch.tensor(0))
    functions: dict[str, Callable[[int], Any]] = {}

    def forwards(_: int) -> None:
        with torch.inference_mode():
            cross_entropy(model, batch)
            cross_entropy(model, batch)

    functions["two forwards"] = forwards
    for strategy in ("fast", "lean"):
        objective = ModuleObjective(model, cross_entropy, strategy=strategy, example=example)

        def two_point(step: int, objective: ModuleObjective = objective) -> None:
            u = draw(kind, objective.parameters.layout, count=1, key=Key(0).fold(step + 2))  # pyright: ignore[reportArgumentType]
            objective.losses_along(batch, u, 0, 1e-3)
            objective.losses_along(batch, u, 0, -1e-3)

        functions[strategy] = two_point
    layout = ModuleObjective(model, cross_entropy).parameters.layout

    def drawing(step: int) -> None:
        draw(kind, layout, count=1, key=Key(1).fold(step + 2)).vector(0)  # pyright: ignore[reportArgumentType]

    functions["drawing a direction"] = drawing
    times = interleaved(functions, repetitions)
    base = times["two forwards"]
    line(f"{name}: {layout.numel:,} parameters, batch {rows} of {shape}, {kind} directions")
    for label, seconds in times.items():
        ratio = statistics.median(seconds) / statistics.median(base)
        paired = statistics.median(s / b for s, b in zip(seconds, base, strict=True))
        bound = f"   (wanted: at most {wanted})" if label == "fast" else ""
        milliseconds = 1e3 * statistics.median(seconds)
        line(f"  {label:20} {milliseconds:8.2f} ms   ratio {ratio:5.3f}   paired {paired:5.3f}{bound}")


def large_model() -> nn.Module:
    """Equal layers, so that the largest is a known share: 25 million parameters."""
    torch.manual_seed(0)
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10)).eval()


def peak_memory() -> float:
    """Peak resident bytes of this program.

    Linux's ru_maxrss would not do: it survives exec, so that a child starts from its parent's peak.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (peak,) = [row for row in status.read_text().splitlines() if row.startswith("VmHWM")]
        return 1024.0 * int(peak.split()[1])
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # bytes on macOS


def load_code(kind: str) -> None:
    """Bring what an evaluation runs into memory, with a model of 33 parameters."""
    tiny = ModuleObjective(nn.Linear(10, 3), cross_entropy, strategy="lean")
    u = draw(kind, tiny.parameters.layout, count=1, key=Key(0))  # pyright: ignore[reportArgumentType]
    tiny.losses_along((torch.randn(ROWS, 10), torch.zeros(ROWS, dtype=torch.int64)), u, 0, 1e-3)


def measure(what: str, kind: str, repetitions: int) -> dict[str, float]:
    """Peak memory and median seconds of one kind of evaluation in this process."""
    if what != "bare inference":
        load_code(kind)
    model = large_model()
    objective = ModuleObjective(model, cross_entropy, strategy="fast" if what == "fast" else "lean")
    batch = (torch.randn(ROWS, WIDTH), torch.zeros(ROWS, dtype=torch.int64))
    layout = objective.parameters.layout
    resting = peak_memory()

    def run(step: int) -> None:
        if what.endswith("inference"):
            with torch.inference_mode():
                cross_entropy(model, batch)
        else:
            u = draw(kind, layout, count=1, key=Key(0).fold(step + 2))  # pyright: ignore[reportArgumentType]
            objective.losses_along(batch, u, 0, 1e-3)

    times = interleaved({what: run}, repetitions)[what]
    return {"peak": peak_memory(), "resting": resting, "seconds": statistics.median(times)}


def memory(kind: str, repetitions: int) -> None:
    """Each strategy in its own process, against one that does inference only."""
    found: dict[str, list[dict[str, float]]] = {what: [] for what in MEASURED}
    for _ in range(3):
        for what, results in found.items():
            command = [sys.executable, __file__, "--measure", what, "--directions", kind]
            output = subprocess.run(
                [*command, "--repetitions", str(repetitions)], check=True, capture_output=True, text=True
            ).stdout
            results.append(json.loads(output))
    parameters = DEPTH * (WIDTH * WIDTH + WIDTH) + 10 * (WIDTH + 1)
    layer = 4 * (WIDTH * WIDTH + WIDTH)
    inference = statistics.median(result["peak"] for result in found["inference"])
    line(f"memory: {parameters:,} parameters ({4 * parameters / 2**20:.1f} MiB), {kind} directions, batch {ROWS};")
    line(f"  largest layer {layer / 2**20:.2f} MiB")
    for what, results in found.items():
        peak = statistics.median(result["peak"] for result in results)
        seconds = statistics.median(result["seconds"] for result in results)
        above = peak - inference
        wanted = f"   (wanted: at most 1 layer + 10 % = {1.1 * layer / 2**20:.2f} MiB)" if what == "lean" else ""
        line(
            f"  {what:14} peak {peak / 2**20:7.1f} MiB   above inference {above / 2**20:6.2f} MiB = "
            f"{above / layer:5.3f} layers   {1e3 * seconds:7.1f} ms an evaluation{wanted}"
        )


def main() -> None:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", nargs="?", choices=["all", "memory", *CASES], default="all")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--directions", choices=["sphere", "gaussian", "rademacher"], default="sphere")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--measure", choices=MEASURED, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.measure:
        line(json.dumps(measure(arguments.measure, arguments.directions, arguments.repetitions)))
        return
    line(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}, {platform.system()}")
    for name in CASES:
        if arguments.what in ("all", name):
            time_case(name, arguments.directions, arguments.repetitions)
    if arguments.what in ("all", "memory"):
        memory(arguments.directions, max(3, arguments.repetitions // 4))


if __name__ == "__main__":
    main()
