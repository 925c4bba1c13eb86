"""The measured claims with wide margins; benchmarks/objective_speed.py measures them properly."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from objective_models import cross_entropy

from sottovoce.objective.directions import Key, sphere
from sottovoce.objective.module import ModuleObjective
from sottovoce.tasks.models import build

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "objective_speed.py"


@pytest.mark.timing
def test_a_two_point_evaluation_costs_little_more_than_two_forwards():
    """The aim is 1.5 on a quiet machine; four forwards, or directions drawn for each sign, would exceed 2."""
    torch.manual_seed(0)
    model = build("small-cnn", shape=(1, 28, 28), classes=10).eval()
    batch = (torch.randn(320, 1, 28, 28), torch.zeros(320, dtype=torch.int64))
    objective = ModuleObjective(model, cross_entropy)
    ratios = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a second thread waits for other programs, which is not what is measured here
    try:
        for repetition in range(12):
            start = time.perf_counter()
            with torch.inference_mode():
                cross_entropy(model, batch)
                cross_entropy(model, batch)
            middle = time.perf_counter()
            u = sphere(objective.parameters.layout, count=1, key=Key(repetition))
            for scale in (1e-3, -1e-3):
                objective.losses_along(batch, u, 0, scale)
            ratios.append((time.perf_counter() - middle) / (middle - start))
    finally:
        torch.set_num_threads(threads)
    assert statistics.median(ratios[2:]) < 2.0


@pytest.mark.slow
def test_the_lean_strategy_needs_one_layer_beyond_inference():
    """Peak resident memory of 25 million parameters in six equal layers, each measurement in its own process."""

    def peak(what: str) -> float:
        command = [sys.executable, str(SCRIPT), "--measure", what, "--repetitions", "2"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["peak"]

    layer = 4 * (2048 * 2048 + 2048)
    inference = peak("inference")
    assert peak("lean") - inference <= 1.1 * layer
    assert peak("fast") - inference > 5 * layer
