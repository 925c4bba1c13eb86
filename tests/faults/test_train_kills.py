"""Kills of whole ``sottovoce train`` processes at random instants: the ledger is never below what was released.

The loss appends one byte to a file whenever it is evaluated, so the file counts the steps whose records were looked at,
which are at least those released. Two evaluations make a step of DPZero.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sottovoce.balances import balances
from sottovoce.privacy.ledger import Ledger

LARGEST_LEASE = 256

TOY = """
import os
import torch
from sottovoce import losses

def data():
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return {"private": (inputs, (inputs[:, 0] > 0).long())}

def model():
    return torch.nn.Linear(4, 2)

counter = os.open(os.environ["COUNTER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

def loss(model, batch):
    os.write(counter, b".")
    return losses.cross_entropy(model, batch)
"""

CONFIG = """
[data]
name = "toy:data"
[model]
name = "toy:model"
[loss]
name = "toy:loss"
[method]
name = "DPZero"
lr = 0.001
[budget]
epsilon = 1.0
delta = 1e-4
[run]
name = "NAME"
steps = STEPS
batch_size = 8
dataset = "NAME"
"""


def start(folder: Path, name: str, steps: int) -> tuple[subprocess.Popen[bytes], Path]:
    config, counter = folder / f"{name}.toml", folder / f"{name}.count"
    config.write_text(CONFIG.replace("NAME", name).replace("STEPS", str(steps)))
    environment = os.environ | {
        "COUNTER": str(counter),
        "SOTTOVOCE_LEDGER": str(folder / "ledger.db"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "sottovoce", "train", str(config), "--quiet"]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ), counter


def count(counter: Path) -> int:
    return counter.stat().st_size if counter.exists() else 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_fifty_kills_of_train_never_leave_the_ledger_below_what_was_released(tmp_path: Path):
    (tmp_path / "toy.py").write_text(TOY)
    process, counter = start(tmp_path, "whole", 1)
    assert process.wait(120) == 0, process.stderr.read().decode() if process.stderr else ""
    before_the_run = count(counter) - 2  # the probe's and the rehearsal's evaluations, always the same
    chance = random.Random(5)  # when to kill; nothing protective
    charged_late = 0
    for number in range(50):
        process, counter = start(tmp_path, f"run-{number}", 200_000)
        deadline = time.monotonic() + 120
        while count(counter) <= before_the_run and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        ledger = Ledger.open(tmp_path / "ledger.db")  # verifies the file
        settled = {run.dataset: run for run in ledger.settle_dead()}
        looked_at = max(0, count(counter) - before_the_run)
        run = settled.get(f"run-{number}")
        charged = 0 if run is None or run.steps_charged is None else run.steps_charged
        assert charged >= -(-looked_at // 2), f"kill {number}: charged {charged} steps, {looked_at} evaluations"
        assert charged <= looked_at // 2 + LARGEST_LEASE + 1
        charged_late += charged > 0
        ledger.close()
    assert charged_late > 25, "most kills should hit a run at work"
    ledger = Ledger.open(tmp_path / "ledger.db")
    assert len(balances(ledger)) >= charged_late
    shown = subprocess.run(
        [sys.executable, "-m", "sottovoce", "ledger", "show", "--json"], check=True, capture_output=True,
        env=os.environ | {"SOTTOVOCE_LEDGER": str(tmp_path / "ledger.db")},
    )  # fmt: skip
    assert json.loads(shown.stdout)
