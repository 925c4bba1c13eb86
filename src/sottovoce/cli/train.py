"""The command ``sottovoce train``: a configuration file in, a folder with the trained model and its statement out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce import config as configuration
from sottovoce import horizon
from sottovoce.balances import balances
from sottovoce.cli.build import Task, build
from sottovoce.cli.support import AsJson, command, ended_by_sigterm, rows
from sottovoce.fit import Run, fit
from sottovoce.places import ledger_path
from sottovoce.privacy.errors import ConfigurationError, SottovoceError
from sottovoce.privacy.ledger import Ledger

RUNS = Path("runs")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file that describes the run.")]


def train(
    config: ConfigFile,
    *,
    name: Annotated[str | None, typer.Option(help="The run's folder in runs/; by default the file's own name.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older run of this name.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model privately, as a configuration file says.

    The file has the tables `[data] [model] [loss] [method] [budget] [run]`. Data, model and loss are built in or your
    own: `package.module:factory` is imported with the current directory on the path. A data factory returns a dict with
    `private` (the records to protect), and as it likes `public` (records that everybody may see, for the methods that
    use some), `validate` (PUBLIC records, on which results are measured exactly), `example` (one public record; needed
    if `private` is a data set of items), `shape` and `classes`; a model factory returns a torch.nn.Module; a loss is
    itself `loss(model, batch)`, one value for each record. Everything is checked before any of the privacy budget is
    spent.

    Writes runs/NAME with the model, its privacy statement, the history of the public metrics, and the configuration
    with every default filled in; also if it is cut off by Ctrl-C or SIGTERM, as what was released is paid for. Shows
    released and public values only.
    """
    with command(as_json=as_json) as output, ended_by_sigterm():
        settings = configuration.read(config)
        chosen = name if name is not None else settings.run.name or config.stem
        configuration.check_run_name(chosen)
        folder = RUNS / chosen
        _refuse_existing(folder, overwrite=overwrite)
        task = _fill_in(build(settings), chosen)
        with _claimed(folder, task, overwrite=overwrite):
            run = _fit(task, folder, progress=False if quiet else None)
            _save(run, folder, task)
        output.document = {
            "name": chosen,
            "folder": folder.absolute(),
            "final": _publishable(run),
            "statement": json.loads(run.statement.to_json()),
        }
        output.text(_summary(run, folder))


def _fit(task: Task, folder: Path, *, progress: bool | None) -> Run:
    settings, run = task.config, task.config.run

    def salvage(unfinished: Run) -> None:
        _save(unfinished, folder, task)
        typer.echo(_cut_off(unfinished, folder, run.dataset), err=True)

    return fit(
        task.model,
        task.loss,
        private=task.private,
        public=task.public,
        method=settings.method,
        budget=settings.budget,
        epochs=run.epochs,
        steps=run.steps,
        batch_size=run.batch_size,
        validate=task.validate,
        metrics=task.metrics if task.validate is not None else None,
        evaluate_every=run.evaluate_every,
        progress=progress,
        salvage=salvage,
        sampling=run.sampling,
        records=run.records or (None if settings.add_remove else settings.data.options.get("records")),
        update=run.update(),
        example=task.example,
        dataset=run.dataset,
        seed=run.seed,
        strategy=run.strategy,
        max_physical_batch=run.max_physical_batch,
    )


def _fill_in(task: Task, name: str) -> Task:
    """The task with the defaults that depend on the number of records."""
    run = task.config.run
    known = task.config.known_records()
    if known is None and task.config.add_remove:
        raise ConfigurationError(
            "neighbours = 'add-remove' needs records = N in [run]: a public number, fixed independently of the data "
            "(the data's own length would tell neighbours apart)."
        )
    sampler = horizon.resolve(
        run.sampling,
        records=task.records if known is None else known,
        batch_size=run.batch_size,
        epochs=run.epochs,
        steps=run.steps,
    )
    every = run.evaluate_every or math.ceil(sampler.steps / 20)
    run = dataclasses.replace(run, evaluate_every=every, name=name)
    return dataclasses.replace(task, config=task.config.resolved(run=run))


def _refuse_existing(folder: Path, *, overwrite: bool) -> None:
    if folder.exists() and not (overwrite and folder.is_dir()):
        finished = (folder / "statement.json").exists()
        state = "" if finished else " (it has no statement: a run is under way, or was cut off)"
        raise ConfigurationError(
            f"{folder} exists{state}, and a run is not overwritten: choose another --name, or give --overwrite."
        )


@contextlib.contextmanager
def _claimed(folder: Path, task: Task, *, overwrite: bool) -> Generator[None]:
    """The folder, made before any budget is spent, so that nobody else takes it and the results have a place.

    It is removed again if nothing was released. An older run that is to be replaced stays until there are results.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=overwrite)
        if new:
            _write_config(folder, task)
        else:
            (folder / "config.toml").open("a").close()
    except FileExistsError:
        _refuse_existing(folder, overwrite=overwrite)
        raise
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written to: {error}.") from None
    try:
        yield
    except BaseException:
        if new and not (folder / "statement.json").exists():
            with contextlib.suppress(OSError):
                (folder / "config.toml").unlink()
                folder.rmdir()
        raise


def _publishable(run: Run) -> dict[str, float]:
    """The last row of the history, without the seconds if records were protected, as `Run.save` has it."""
    return {name: value for name, value in run.final.items() if name != "seconds" or not run.statement.private}


def _save(run: Run, folder: Path, task: Task) -> None:
    run.save(folder)
    _write_config(folder, task)


def _cut_off(run: Run, folder: Path, dataset: str | None) -> str:
    """What is left of a run that did not reach its end, and of its data set's budget."""
    statement = run.statement
    kept = (
        f"cut off after {statement.steps_run} of {statement.steps_planned} steps, which are paid for: {folder} holds "
        "the model, the history and the statement so far."
    )
    return kept if dataset is None else f"{kept}\n{_what_returns(dataset)}"


def _what_returns(dataset: str) -> str:
    """What a run that has released something leaves of the budget, by the terms that the data set was opened on."""
    named = f"data set {dataset!r}"
    try:
        granted = {each.name: each.grant for each in balances(Ledger.open(ledger_path(), create=False))}
    except SottovoceError as error:
        return f"{named}: the ledger cannot be read ({error}), so nothing is known to have returned."
    if granted.get(dataset) == "unsubsampled":
        return f"{named}: the steps that were run are charged, the rest of what was reserved returns."
    return f"{named} was granted to a single run, and this one has released something: it is closed, nothing returns."


def _write_config(folder: Path, task: Task) -> None:
    (folder / "config.toml").write_text(task.config.dumps(), encoding="utf-8", newline="\n")


def _summary(run: Run, folder: Path) -> str:
    metrics: dict[str, Any] = {name: value for name, value in run.final.items() if name not in ("step", "seconds")}
    measured = rows({name: f"{value:.4f}" for name, value in metrics.items()})
    heading = "ON THE PUBLIC VALIDATION DATA" if metrics else "NOTHING WAS MEASURED: the data has no public part"
    return f"{heading}\n{measured}\n\n{run.statement}\n\nWritten to {folder}"
