"""Train a model in one call."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from safetensors.torch import save_model
from torch import nn

from sottovoce.arguments import whole
from sottovoce.inputs import as_public, form_of, forms_of
from sottovoce.methods.base import Method
from sottovoce.methods.plain import PlainMethod
from sottovoce.objective.caller import warn_caller
from sottovoce.objective.evaluation import evaluating
from sottovoce.objective.gradients import Loss
from sottovoce.objective.records import batch_size as count_of
from sottovoce.objective.records import move, select
from sottovoce.objective.strategies import ObjectiveWarning
from sottovoce.overlap import refuse_private_as_public
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.statement import Statement
from sottovoce.privacy.trees import Tree
from sottovoce.session import Session

History = list[dict[str, float]]
"""Rows of the step, the seconds, and the metrics on the public validation set.

All is released or public but the seconds: how long steps take is not protected, so whoever publishes a history leaves
them out, as ``Run.save`` does.
"""


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
        """Write statement.json, statement.txt, history.csv and model.safetensors into a folder.

        All of it may be published, so the history is written without the seconds if records were protected: a record on
        which the loss raises, say, slows down the steps it is in.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "statement.json").write_text(self.statement.to_json() + "\n")
        (folder / "statement.txt").write_text(f"{self.statement}\n")
        with (folder / "history.csv").open("w", newline="") as file:
            names = list(self.history[0]) if self.history else ["step"]
            if self.statement.private:
                names = [name for name in names if name != "seconds"]
            writer = csv.DictWriter(file, fieldnames=names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(self.history)
        save_model(self.model, str(folder / "model.safetensors"))
        # safetensors lets its owner alone read a file; this one is as open as those beside it.
        (folder / "model.safetensors").chmod((folder / "statement.json").stat().st_mode & 0o777)
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
    salvage: Callable[[Run], None] | None = None,
    **options: Any,
) -> Run:
    """Train ``model`` in place on private records, within a budget.

    The model is always run in evaluation mode: dropout does nothing, and batch normalisation uses its running
    statistics.

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
        validate: records that the caller declares PUBLIC, in any form that ``private`` may have; exact metrics on them
            are shown and saved, so private records among them would be published; those that can be found are
            refused. They are read into memory once.
        metrics: per-example functions like the loss, whose means over ``validate`` are reported; the loss by default.
        evaluate_every: steps between evaluations; a twentieth of the run by default.
        salvage: called with the run so far if it is cut off, by an exception or an interruption, after steps were paid
            for: what was released is public, and so is the model. What cut it off is raised afterwards.
        progress: show a progress bar on standard error; by default only on a terminal.
        options: the other arguments of `Session`, such as ``update=``, ``sampling=``, ``seed=``, and ``dataset=``, the
            data set's name in the ledger: the first run under a name closes it to others, unless a budget that runs
            share was opened before (`sottovoce ledger open NAME --grant unsubsampled --epsilon E --delta D`).

    Returns:
        The run: the model, its privacy statement and the history of the public metrics.
    """
    measured = _checked_metrics(metrics, loss, validate)
    every = None if evaluate_every is None else whole("evaluate_every", evaluate_every)
    if salvage is not None and not callable(salvage):
        raise ConfigurationError(
            f"salvage={salvage!r}: give a function of a run, such as lambda run: run.save(folder)."
        )
    if validate is not None and getattr(method, "private", True):
        refuse_private_as_public(private, validate, "validate=")
    known = None if validate is None else as_public(validate, "validate=")
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
    every = every or max(1, session.steps // 20)
    if known is not None:
        _try(measured, model, known, session)
    history: History = []
    try:
        with session, _bar(progress, session) as advance:
            training, started = 0.0, time.perf_counter()
            for step in session:
                if known is not None and (step.number % every == 0 or step.number == step.of):
                    training += time.perf_counter() - started
                    with session.averaged():
                        row = {name: evaluate(model, metric, known) for name, metric in measured.items()}
                    history.append({"step": step.number, "seconds": round(training, 3), **row})
                    started = time.perf_counter()
                advance(history[-1] if history else {})
    except BaseException:
        if salvage is not None and session.statement.steps_run:
            salvage(Run(model, _statement(session, known), history))
        raise
    measurable = all(map(math.isfinite, history[-1].values())) if history else True
    if not (measurable and all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())):
        warn_caller("the model or its metrics are no longer finite: the run has diverged; lower lr=.", ObjectiveWarning)
    return Run(model, _statement(session, known), history)


def _statement(session: Session, known: Tree | None) -> Statement:
    """The session's, with what is assumed of the history."""
    statement = session.statement
    if known is None or not statement.private:
        return statement
    text = f"the {count_of(known)} records given as validate= are public; exact metrics on them are in the history"
    return replace(statement, assumed=(*statement.assumed, text))


def evaluate(model: nn.Module, metric: Loss, public: Any, *, rows: int = 1024) -> float:
    """The mean of a per-example metric over PUBLIC records; exact, hence not private.

    Raises:
        DataError: there are no records, or they are not of one form.
        ConfigurationError: the metric does not give one value for each record.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    public = as_public(public, "the public data")
    rows = whole("rows", rows)
    total, count = 0.0, count_of(public)
    with evaluating(model), torch.no_grad():
        for start in range(0, count, rows):
            batch = move(select(public, slice(start, start + rows)), device)
            total += float(_one_for_each(metric(model, batch), count_of(batch)).to(torch.float64).sum())
    return total / count


def _one_for_each(values: Any, size: int) -> torch.Tensor:
    if not isinstance(values, torch.Tensor) or values.shape != (size,):
        given = f"shape {tuple(values.shape)}" if isinstance(values, torch.Tensor) else f"a {type(values).__name__}"
        raise ConfigurationError(
            f"a metric returned {given} for a batch of {size}: it must give one value for each record, a tensor of "
            f"shape ({size},)."
        )
    return values


def _checked_metrics(metrics: Any, loss: Loss, validate: Any) -> dict[str, Loss]:
    """The metrics by name, which heads their column in the history."""
    if metrics is None:
        return {"loss": loss}
    if validate is None:
        raise ConfigurationError("metrics= was given without validate=: give the PUBLIC records to measure them on.")
    if not isinstance(metrics, Mapping) or not metrics:
        raise ConfigurationError(
            f"metrics={metrics!r}: give a dict from names to functions, such as {{'accuracy': losses.accuracy}}."
        )
    for name, metric in metrics.items():
        if not isinstance(name, str) or name in ("step", "seconds"):
            raise ConfigurationError(
                f"metrics= has the name {name!r}: give it another, as text; the history's own columns are 'step' and "
                "'seconds'."
            )
        if not callable(metric):
            raise ConfigurationError(
                f"the metric {name!r} is {metric!r}: a function metric(model, batch) is needed, with one value for "
                "each record."
            )
    return dict(metrics)


def _try(metrics: Mapping[str, Loss], model: nn.Module, public: Tree, session: Session) -> None:
    """Compute every metric on all of the public records, so that what is wrong shows before the first step."""
    for name, metric in metrics.items():
        try:
            evaluate(model, metric, public)
        except Exception as error:
            own, other = forms_of(public), form_of(session.objective.example)
            differs = "" if own == other else f" Its records are {own}, those of private= are {other}."
            raise ConfigurationError(
                f"the metric {name!r} cannot be computed on validate= ({type(error).__name__}: {error}).{differs}"
            ) from error


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
