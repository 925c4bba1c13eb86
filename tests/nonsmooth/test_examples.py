"""The worked examples run, get better, and draw their picture."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PICTURES = {"triage": "triage.png", "robust_regression": "robust_regression.png", "reminders": "reminders.png"}


def load(name: str):
    path = EXAMPLES / f"minimize_{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PICTURES)
def test_an_example_runs_as_a_script_and_draws(name, tmp_path):
    command = [sys.executable, str(EXAMPLES / f"minimize_{name}.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "PRIVACY STATEMENT" in done.stdout
    assert done.stderr == ""
    assert (tmp_path / PICTURES[name]).stat().st_size > 5_000


@pytest.mark.parametrize(("name", "least"), [("triage", 0.85), ("robust_regression", 0.7), ("reminders", 0.85)])
def test_what_is_found_costs_less(name, least):
    module = load(name)
    measure = getattr(
        module, {"triage": "mean_cost", "robust_regression": "mean_error", "reminders": "mean_loss"}[name]
    )
    assert measure(module.private().x) < least * measure(module.START)
