"""Plausible runs, made without training."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from sottovoce.privacy.statement import NOT_COVERED, Statement
from sottovoce.report import Entry

INFINITE = math.inf
NAN = math.nan


def private_statement(**changes: Any) -> Statement:
    statement = Statement(
        private=True,
        epsilon=1.0,
        epsilon_spent=0.99871,
        delta=1e-5,
        neighbours="zero-out",
        unit="record",
        relation="one record is replaced by one that contributes nothing; the number of records is public",
        sampler=({"sampling": "poisson", "rate": 0.064, "steps": 600, "noise_multiplier": 3.2},),
        steps_planned=600,
        steps_run=600,
        noise_multiplier=3.2,
        grids=({"bound": 1.0, "grid": 2.0**-24},),
        noise="exact",
        accountant="PLD",
        dataset="not named",
        public=("the number of records, 4000",),
        assumed=("the operating system's entropy is uniform and secret",),
        not_covered=NOT_COVERED,
        warnings=(),
    )
    return replace(statement, **changes)


def plain_statement(**changes: Any) -> Statement:
    return private_statement(
        **{
            "private": False,
            "epsilon": INFINITE,
            "epsilon_spent": INFINITE,
            "delta": 0.0,
            "neighbours": "none",
            "relation": "SGD is a reference without privacy: it read the records directly.",
            "sampler": (),
            "grids": (),
            **changes,
        }
    )


def curve(final: float, *, steps: int = 600, seconds: float = 50.0) -> list[dict[str, float]]:
    return [
        {"step": steps * i // 10, "seconds": seconds * i / 10, "loss": 1.0, "accuracy": final * (1 - 0.5**i)}
        for i in range(1, 11)
    ]


def entry(name: str, accuracy: float, *, private: bool = True, **changes: Any) -> Entry:
    made = Entry(
        name=name,
        note=f"what {name} is",
        accuracy=accuracy,
        seconds=50.0,
        peak_memory=240.0,
        history=curve(accuracy if math.isfinite(accuracy) else 0.5),
        statement=private_statement() if private else plain_statement(),
        settings={"lr": 0.05, "batch size": 256},
    )
    return replace(made, **changes)


def comparison() -> list[Entry]:
    """As in the demo, in no order."""
    return [
        entry("SGD", 0.98, private=False, seconds=14.2, peak_memory=188.0),
        entry("DPZero", 0.802, seconds=100.0, peak_memory=80.0, note="zeroth-order, two forward passes a direction"),
        entry("MeZO", 0.842, private=False, peak_memory=58.0),
        entry("DP-SGD", 0.931),
    ]


def at(name: str, epsilon: float, accuracy: float, **changes: Any) -> Entry:
    """A private run at this epsilon."""
    statement = private_statement(epsilon=epsilon, epsilon_spent=0.999 * epsilon)
    return entry(name, accuracy, statement=statement, **changes)


def sweep() -> list[Entry]:
    """Methods at several epsilons, one of them with public data, in no order."""
    return [
        at("DP-SGD", 0.1, 0.881),
        at("PAZO-P", 0.1, 0.912, trains_on="private and public"),
        entry("SGD", 0.978, private=False),
        at("DP-SGD", 3.0, 0.952),
        at("PAZO-P", 1.0, 0.935, trains_on="private and public"),
        entry("public only", 0.93, private=False, trains_on="public"),
        at("DP-SGD", 1.0, 0.941),
    ]
