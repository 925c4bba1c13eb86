"""What is left of each data set's budget, read off the ledger's journal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sottovoce.privacy.budget import Budget
from sottovoce.privacy.ledger import Grant, Ledger


@dataclass(frozen=True, kw_only=True)
class Balance(Budget):
    """The budget of a data set and what is left of it, live reservations counted as spent.

    Attributes:
        mu_limit: the Gaussian-DP parameter of (epsilon, delta); None, as mu_spent, under grant "single".
        spent: the part of the budget that is gone: of mu_limit^2, or, under grant "single", 0 or (closed) 1.
    """

    name: str
    grant: Grant
    mu_limit: float | None
    mu_spent: float | None
    spent: float
    remaining: float


def balances(ledger: Ledger) -> list[Balance]:
    """All data sets, in the order they were opened."""
    found: list[Balance] = []
    for entry in ledger.entries():
        if entry["kind"] != "open":
            continue
        name, terms = entry["subject"], entry["payload"]
        runs, limit = ledger.runs(name), terms["mu_limit"]
        squares = sum((Fraction(run.mu) ** 2 for run in runs), Fraction(0))
        held = any(run.ended is None or bool(run.steps_charged) for run in runs)
        spent = float(squares / Fraction(limit) ** 2) if limit else float(held)
        mu_spent = math.sqrt(squares) if limit else None
        found.append(Balance(name=name, **terms, mu_spent=mu_spent, spent=spent, remaining=1 - spent))
    return found
