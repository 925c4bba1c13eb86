"""Train a model in one call."""

from __future__ import annotations

import csv
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from safetensors.torch import save_model
from torch import nn

from sottovoce.methods.base import Method
from sottovoce.methods.plain import PlainMethod
from sottovoce.objective.evaluation import evaluating
from sottovoce.objective.gradients import Loss
from sottovoce.objective.records import batch_size as count_of
from sottovoce.objective.records import move, select
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.statement import Statement
from sottovoce.privacy.trees import map_leaves
from sottovoce.session import Session

History = list[dict[str, float]]
"""Rows of released and public values only: the step, the seconds, the metrics on the public validation set."""


@dataclass(frozen=True)
class Run:
    """A finished training run. The model was trained in place and is here again."""

    model: nn.Module
    statement: Statement
    history: History

    @property
    def final(self) -> dict[str, float]:
        """The last row of the history."""
        return self.history[-1] if self.history else {}

    def save(self, folder: Path | str) -> Path:
        """Write statement.json, statement.txt, history.csv and model.safetensors into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "statement.json").write_text(self.statement.to_json() + "\n")
        (folder / "statement.txt").write_text(f"{self.statement}\n")
        with (folder / "history.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.history[0]) if self.history else ["step"])
            writer.writeheader()
            writer.writerows(self.history)
        save_model(self.model, str(folder / "model.safetensors"))
        return folder


def fit(
    model: nn.Module,
    loss: Loss,
    *,
    private: Any,
    method: Method | PlainMethod,
    budget: Budget | None = None,
    public: Any = None,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    validate: Any = None,
    metrics: Mapping[str, Loss] | None = None,
    evaluate_every: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run:
    """Train ``model`` in place on private records, within a budget.

    Args:
        model: the module to train.
        loss: ``loss(model, batch) -> Tensor[B]``, one value for each record.
        private: the private records; the only argument that is protected.
        method: ``DPZero(...)``, ``DPSGD(...)``; or ``SGD(...)``, ``MeZO(...)`` without privacy and budget.
        budget: ``Budget(epsilon=..., delta=...)``.
        public: records that everybody may see, for PazoM, PazoP, PazoS, DPMD, DopeSGD and GEP.
        epochs: passes over the data; give exactly one of epochs and steps.
        steps: the number of steps.
        batch_size: the expected number of records in a step.
        validate: a data set in memory that the caller declares PUBLIC: exact metrics on it are shown and saved.
        metrics: per-example functions like the loss, whose means over ``validate`` are reported; the loss by default.
        evaluate_every: steps between evaluations; a twentieth of the run by default.
        progress: show a progress bar on standard error; by default only on a terminal.
        options: the other arguments of `Session`, such as ``update=``, ``dataset=``, ``sampling=``, ``seed=``.

    Returns:
        The run: the model, its privacy statement and the history of the public metrics.
    """
    session = Session(
        model,
        loss,
        private=private,
        method=method,
        budget=budget,
        public=public,
        epochs=epochs,
        steps=steps,
        batch_size=batch_size,
        **options,
    )
    every = max(1, session.steps // 20) if evaluate_every is None else evaluate_every
    if every < 1:
        raise ConfigurationError(f"evaluate_every={evaluate_every}: at least 1.")
    measured = dict(metrics or {"loss": loss})
    if validate is not None:
        _check_public(validate, measured, model)
    history: History = []
    training = 0.0
    with session, _bar(progress, session) as advance:
        started = time.perf_counter()
        for step in session:
            if validate is not None and (step.number % every == 0 or step.number == step.of):
                training += time.perf_counter() - started
                with session.averaged():
                    row = {name: evaluate(model, metric, validate) for name, metric in measured.items()}
                history.append({"step": step.number, "seconds": round(training, 3), **row})
                started = time.perf_counter()
            advance(history[-1] if history else {})
    return Run(model, session.statement, history)


def evaluate(model: nn.Module, metric: Loss, public: Any, *, rows: int = 1024) -> float:
    """The mean of a per-example metric over a PUBLIC data set held in memory; exact, hence not private."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    public = map_leaves(torch.as_tensor, public)
    total, count = 0.0, count_of(public)
    with evaluating(model), torch.no_grad():
        for start in range(0, count, rows):
            batch = move(select(public, slice(start, start + rows)), device)
            total += float(metric(model, batch).to(torch.float64).sum())
    return total / count


def _check_public(validate: Any, metrics: Mapping[str, Loss], model: nn.Module) -> None:
    """A metric that cannot be computed is found before the first step, not after hours."""
    public = map_leaves(torch.as_tensor, validate)
    if count_of(public) == 0:
        raise ConfigurationError("validate= is empty: leave it out, or give at least one public record.")
    for name, metric in metrics.items():
        values = metric(model, move(select(public, slice(0, 2)), next(model.parameters()).device))
        if values.shape != (min(2, count_of(public)),):
            raise ConfigurationError(
                f"metric {name!r} returned shape {tuple(values.shape)} for a batch of {min(2, count_of(public))}: it "
                "must give one value for each record."
            )


@contextmanager
def _bar(wanted: bool | None, session: Session) -> Generator[Any]:
    """A progress bar that shows the step, the time and public metrics, and nothing else."""
    console = Console(stderr=True)
    if not (console.is_terminal if wanted is None else wanted):
        yield lambda row: None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[metrics]}"),
    )  # fmt: skip
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(type(session.method).__name__, total=session.steps, metrics="")

        def advance(row: dict[str, float]) -> None:
            text = "  ".join(f"{name} {value:.4f}" for name, value in row.items() if name not in ("step", "seconds"))
            shown.update(task, advance=1, metrics=text)

        yield advance
