"""What stands behind a run, as rows of a name and its text: the privacy statement and the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sottovoce.privacy.statement import UNFINISHED, Statement
from sottovoce.report import words
from sottovoce.report.entries import Entry

Rows = list[tuple[str, tuple[str, ...]]]
"""Names, each with one text or a list of them."""


def statement_rows(entry: Entry) -> Rows:
    """The privacy statement. Of a run without privacy: what it says, and no figure that could be taken for a bound."""
    statement = entry.statement
    if not entry.private:
        public = entry.kind == "public"
        guarantee = "none is needed: no private record was read" if public else "none: this run is NOT PRIVATE"
        rows: Rows = [
            ("guarantee", (guarantee,)),
            ("why", ("trained on public records alone" if public else statement.relation,)),
            ("steps", (f"{statement.steps_run:,} of {statement.steps_planned:,}",)),
            ("warnings", statement.warnings),
        ]
    else:
        rows = [
            ("guarantee", (_guarantee(statement),)),
            ("spent", (_spent(statement),)),
            ("neighbours", (f"{statement.neighbours}: {statement.relation}",)),
            ("warnings", statement.warnings),
            ("sampling", tuple(_sampling(event) for event in statement.sampler)),
            ("noise", (f"multiplier {_figure(statement.noise_multiplier)}; {statement.noise}",)),
            ("grid", tuple(f"{_figure(grid['grid'])} for clip {_figure(grid['bound'])}" for grid in statement.grids)),
            ("accountant", (statement.accountant,)),
            ("data set", (statement.dataset,)),
            ("public", statement.public),
            ("assumed", statement.assumed),
            ("not covered", statement.not_covered),
        ]
    return [(name, texts) for name, texts in rows if texts]


def setting_rows(settings: Mapping[str, object]) -> Rows:
    """The settings, numbers in short form."""
    return [
        (str(name), (_figure(value) if isinstance(value, float) else str(value),)) for name, value in settings.items()
    ]


def _guarantee(statement: Statement) -> str:
    return (
        f"({words.at_most(statement.epsilon)}, {words.at_most(statement.delta)})-differential privacy, "
        f"per {statement.unit}"
    )


def _spent(statement: Statement) -> str:
    return (
        f"epsilon {words.at_most(statement.epsilon_spent)} after {statement.steps_run:,} of "
        f"{statement.steps_planned:,} steps" + (statement.steps_run < statement.steps_planned) * UNFINISHED
    )


def _sampling(event: Mapping[str, Any]) -> str:
    steps = f"{event.get('steps', 0):,} steps"
    match event.get("sampling"):
        case "poisson":
            return f"Poisson, rate {_figure(event.get('rate', math.nan))}, {steps}"
        case "single-pass":
            return f"single pass over disjoint blocks, {steps}, each record at most once"
        case "full-batch":
            return f"full batch, {steps}"
        case other:
            return f"{other}, {steps}"


def _figure(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "no number"
