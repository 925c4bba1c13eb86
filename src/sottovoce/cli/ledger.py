"""The commands ``sottovoce ledger show | settle | open``: what was spent on each data set, over all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sottovoce.balances import Balance, balances
from sottovoce.binding import nearest
from sottovoce.cli.support import AsJson, Output, command
from sottovoce.places import ledger_path
from sottovoce.privacy.budget import Budget, Neighbours
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.ledger import Grant, Ledger, RunRecord

app = typer.Typer(
    help="The record of what was spent on each data set: show it, settle dead runs, open a budget.",
    no_args_is_help=True,
)

LedgerFile = Annotated[
    Path | None,
    typer.Option("--path", metavar="FILE", help="Another ledger than $SOTTOVOCE_LEDGER or the default one."),
]


@app.command("show")
def show(
    *,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="Only this data set and its runs.")] = None,
    path: LedgerFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the budget of each data set, what is spent and what is left, and every run."""
    with command(as_json=as_json) as output:
        if (ledger := _existing(path, output)) is None:
            return
        datasets, runs = balances(ledger), ledger.runs(dataset)
        if dataset is not None:
            chosen = [each for each in datasets if each.name == dataset]
            if not chosen:
                known = [each.name for each in datasets]
                raise ConfigurationError(f"the ledger has no data set {dataset!r}: {nearest(dataset, known)}")
            datasets = chosen
        output.document = {
            "path": ledger.path,
            "exists": True,
            "datasets": [_dataset_document(each) for each in datasets],
            "runs": runs,
        }
        if not as_json:
            _print(ledger, datasets, runs)


@app.command("settle")
def settle(*, path: LedgerFile = None, as_json: AsJson = False) -> None:
    """Charge the runs whose process is gone for every step that they may have released, and for no more.

    What they had reserved beyond that returns, unless the data set was granted to a single run. Runs that are alive are
    left alone.
    """
    with command(as_json=as_json) as output:
        if (ledger := _existing(path, output)) is None:
            return
        settled = ledger.settle_dead()
        output.document = {"path": ledger.path, "exists": True, "settled": settled}
        for run in settled:
            output.text(
                f"run {run.run_id} on {run.dataset!r}: charged {run.steps_charged} of {run.steps_planned} steps, all "
                "that it may have released."
            )
        if not settled:
            output.text("No dead runs: there is nothing to settle.")


@app.command("open")
def open_dataset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Your name for the data set, as in [run] dataset.")],
    *,
    epsilon: Annotated[float, typer.Option(help="The budget for everything ever released about it.")],
    delta: Annotated[float, typer.Option(help="The probability mass outside of it; a tenth of 1/records is usual.")],
    neighbours: Annotated[
        str, typer.Option(help=f"What must look alike: {', '.join(get_args(Neighbours))}.")
    ] = "zero-out",
    grant: Annotated[
        str,
        typer.Option(
            help="single: one planned run has it all; unsubsampled: runs on full batches or single passes share it."
        ),
    ] = "single",
    path: LedgerFile = None,
    as_json: AsJson = False,
) -> None:
    """Fix the privacy budget of a data set, once and for good."""
    with command(as_json=as_json) as output:
        relation, kind = _choice("--neighbours", neighbours, Neighbours), _choice("--grant", grant, Grant)
        budget = Budget(epsilon=epsilon, delta=delta, neighbours=relation)
        ledger = Ledger.open(path or ledger_path())
        ledger.open_dataset(name, budget, kind)
        record = next(each for each in balances(ledger) if each.name == name)
        output.document = {"path": ledger.path, "dataset": _dataset_document(record)}
        output.text(f"data set {name!r}: {record.terms}, grant {record.grant}; {record.left_in_words} is left.")


def _existing(path: Path | None, output: Output) -> Ledger | None:
    """The ledger, or None if there is no file: looking does not make one."""
    place = Path(path or ledger_path()).expanduser()
    if place.exists():
        return Ledger.open(place, create=False)
    output.document = {"path": place.absolute(), "exists": False, "datasets": [], "runs": [], "settled": []}
    output.text(
        f"There is no ledger at {place}: nothing was recorded there. The first run with a named data set "
        "([run] dataset) makes it, or `sottovoce ledger open`."
    )
    return None


def _choice(option: str, given: str, alias: Any) -> Any:
    if given not in get_args(alias):
        raise ConfigurationError(f"{option} {given}: {nearest(given, get_args(alias))}")
    return given


def _dataset_document(record: Balance) -> dict[str, Any]:
    return {**vars(record), "epsilon_spent": record.epsilon_spent, "epsilon_left": record.epsilon_left}


def _print(ledger: Ledger, datasets: list[Balance], runs: list[RunRecord]) -> None:
    console = Console(highlight=False, soft_wrap=False)
    budgets = Table(title=f"Data sets ({escape(str(ledger.path))})", title_justify="left")
    for column in ("data set", "budget", "grant", "spent", "left"):
        budgets.add_column(column, overflow="fold")
    for each in datasets:
        budgets.add_row(escape(each.name), each.terms, each.grant, each.spent_in_words, each.left_in_words)
    console.print(budgets if datasets else "The ledger has no data sets.")
    table = Table(title="Runs", title_justify="left")
    for column in ("run", "data set", "state", "steps", "own budget", "started"):
        table.add_column(column, overflow="fold")
    for run in runs:
        table.add_row(
            run.run_id[:8],
            escape(run.dataset or "-"),
            _STATES[run.state],
            _steps(run),
            f"epsilon {run.epsilon:g}",
            run.started[:16].replace("T", " "),
        )
    if runs:
        console.print(table)
    if any(run.state == "dead" for run in runs):
        console.print(
            "Dead runs were cut off: they hold their whole reservation until `sottovoce ledger settle` charges the "
            "steps that they may have released. The rest returns under grant unsubsampled; under grant single the data "
            "set stays closed, unless nothing was released."
        )


_STATES = {"live": "[green]live[/]", "dead": "[red]dead[/]", "settled": "settled"}


def _steps(run: RunRecord) -> str:
    if run.steps_charged is not None:
        return f"{run.steps_charged} of {run.steps_planned} charged"
    return f"up to {run.mark} of {run.steps_planned} released"
