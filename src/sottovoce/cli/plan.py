"""The command group ``sottovoce plan``: what a run will cost and how noisy it will be, without its data."""

from __future__ import annotations

import math
import shlex
from typing import Annotated, Any

import torch
import typer

from sottovoce import config as configuration
from sottovoce import horizon
from sottovoce.balances import balances
from sottovoce.cli.plan_nonsmooth import plan_nonsmooth
from sottovoce.cli.support import AsJson, command, rows
from sottovoce.cli.train import ConfigFile
from sottovoce.config import Config
from sottovoce.inputs import as_records
from sottovoce.methods import DPMD, DPSGD, GEP, DopeSGD, DPZero, Method, PazoM, PazoP, PazoS
from sottovoce.places import ledger_path
from sottovoce.privacy.curator import Curator
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.sampling import Sampler
from sottovoce.privacy.statement import state

app = typer.Typer(help="What a run will cost and how noisy it will be, before it is run.", no_args_is_help=True)


app.command("nonsmooth")(plan_nonsmooth)


@app.callback()
def plan() -> None:
    """What a run will cost and how noisy it will be, before it is run."""


@app.command("training")
def plan_training(
    config: ConfigFile,
    *,
    records: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The number of private records; known for built-in data.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show steps, sampling rate, noise and epsilon of a run. No data is read and nothing is spent.

    For your own data, the number of records is taken from --records, or from the key records in [data]. With dataset in
    [run], what the ledger has left of that data set's budget is shown too.
    """
    with command(as_json=as_json) as output:
        settings = configuration.read(config)
        planned = plan_of(settings, records)
        if (dataset := settings.run.dataset) is not None:
            planned["dataset"] = {"name": dataset, "ledger": _left_of(dataset)}
        output.document = planned
        output.text(_table(planned))


def plan_of(settings: Config, records: int | None = None) -> dict[str, Any]:
    """The figures of a run, by name.

    They are read off a curator like that of the run, over stand-in records, so that they cannot differ from it.
    """
    count = settings.known_records(records)
    own = settings.known_records()
    if not settings.data.is_factory and not settings.add_remove and count != own:
        raise ConfigurationError(f"--records {records}: {settings.data.name} has {own}; leave it out.")
    if count is None:
        where = "[run]" if settings.add_remove else "[data]"
        raise ConfigurationError(
            f"the number of records is not known: give --records N, or records = N in {where} (a public number)."
        )
    run, method = settings.run, settings.method
    sampler = horizon.resolve(
        run.sampling, records=count, batch_size=run.batch_size, epochs=run.epochs, steps=run.steps
    )
    sampler.check(count)
    shared = {
        "method": type(method).__name__,
        "private": isinstance(method, Method),
        "records": count,
        "sampling": run.sampling,
        "batch_size": sampler.divisor(0),
        "steps": sampler.steps,
        "epochs": math.fsum(sampler.divisor(step) for step in range(sampler.steps)) / count,
    }
    if settings.budget is None or not isinstance(method, Method):
        return shared
    return shared | _costs(settings, method, sampler, count)


def _left_of(dataset: str) -> str:
    """What the ledger has left of a data set's budget, in words."""
    place = ledger_path()
    known = balances(Ledger.open(place, create=False)) if place.exists() else []
    for each in known:
        if each.name == dataset:
            return f"{each.left_in_words} is left of {each.terms}, grant {each.grant}"
    return (
        "not in the ledger yet: this run would have it all, and every other run be refused; `sottovoce ledger open "
        f"{shlex.quote(dataset)} --grant unsubsampled --epsilon E --delta D` lets full-batch and single-pass runs share"
    )


def _costs(settings: Config, method: Method, sampler: Sampler, count: int) -> dict[str, Any]:
    budget, event = settings.budget, sampler.event(1.0)
    assert budget is not None
    curator = Curator(
        as_records(torch.zeros(1).expand(count)),
        method.plan(sampler),
        budget,
        max_physical_batch=settings.run.max_physical_batch,
    )
    statement = state(curator)
    bound = _bound(method)
    return {
        "rate": event.rate if event.sampling == "poisson" else None,
        "epsilon": curator.epsilon(sampler.steps),
        "budget_epsilon": budget.epsilon,
        "delta": budget.delta,
        "neighbours": budget.neighbours,
        "unit": budget.unit,
        "accountant": statement.accountant,
        "noise_multiplier": curator.noise_multiplier,
        "bound": bound,
        "noise_on_mean": curator.noise_multiplier * bound / sampler.divisor(0),
        "physical_batch": curator.physical_rows,
        "warnings": list(statement.warnings),
    }


def _bound(method: Method) -> float:
    """The l2 bound on all that a record answers in a step: its noise is the multiplier times this, on each number."""
    match method:
        case DPZero(clipping="per-query"):
            return math.sqrt(method.queries) * method.clip
        case PazoS():
            return math.sqrt(method.candidates + (method.explore > 0)) * method.clip
        case GEP():  # of the embedding, beside the rest of the gradient with the other half of the budget
            return math.sqrt(2) * method.clip
        case DPZero() | DPSGD() | PazoM() | PazoP() | DPMD() | DopeSGD():
            return method.clip
        case _:
            raise ConfigurationError(f"{type(method).__name__} states no bound.")


def _table(plan: dict[str, Any]) -> str:
    steps = f"{plan['steps']:,} of {plan['batch_size']:g} records each, {plan['epochs']:g} epochs"
    lines = {"method": plan["method"], "records": f"{plan['records']:,}", "steps": steps}
    lines["sampling"] = plan["sampling"]
    if not plan["private"]:
        return "\n".join(["PLAN (NOT PRIVATE: a reference without noise)", rows(lines)])
    if plan["rate"] is not None:
        lines["sampling"] += f", rate {plan['rate']:.6g}"
    lines |= {
        "guarantee": f"epsilon {plan['epsilon']:.6g} (of {plan['budget_epsilon']:g}) at delta {plan['delta']:g}",
        "neighbours": f"{plan['neighbours']}, per {plan['unit']}",
        "accountant": plan["accountant"],
        "noise multiplier": f"{plan['noise_multiplier']:.6g}",
        "bound": f"{plan['bound']:g}",
        "noise on the mean": f"{plan['noise_on_mean']:.6g} (standard deviation of each released number)",
        "evaluated at once": f"{plan['physical_batch']} records",
    }
    if "dataset" in plan:
        lines[f"data set {plan['dataset']['name']!r}"] = plan["dataset"]["ledger"]
    return "\n".join(["PLAN", rows(lines), *(f"warning: {text}" for text in plan["warnings"])])
