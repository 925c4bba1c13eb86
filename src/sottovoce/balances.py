"""What is left of each data set's budget, read off the ledger's journal, and how a person is told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sottovoce.privacy.accounting import gaussian_epsilon, rounded_down
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

    @property
    def epsilon_spent(self) -> float:
        """What all runs so far amount to, live reservations included, at the data set's delta."""
        if self.mu_spent is None:
            return self.epsilon * self.spent
        return gaussian_epsilon(self.mu_spent, self.delta) if self.mu_spent else 0.0

    @property
    def epsilon_left(self) -> float:
        """The epsilon of the largest single run that still fits, at the data set's delta; never above it."""
        if self.mu_limit is None or self.remaining in (0, 1):
            return self.epsilon * self.remaining
        return rounded_down(gaussian_epsilon(self.mu_limit * math.sqrt(self.remaining), self.delta), digits=6)

    @property
    def terms(self) -> str:
        """The budget in words."""
        return f"epsilon {self.epsilon:g}, delta {self.delta:g}, {self.neighbours}, per {self.unit}"

    @property
    def spent_in_words(self) -> str:
        """What is spent, as a table shows it."""
        if self.mu_spent is None:
            return "all" if self.spent else "nothing"
        return f"epsilon {self.epsilon_spent:.4g} ({self.spent:.1%})"

    @property
    def left_in_words(self) -> str:
        """What is left, as a table shows it."""
        if self.spent >= 1:
            return "nothing"
        share = f" ({math.floor(self.remaining * 1000) / 1000:.1%})" if self.mu_limit else ""
        return f"a run of epsilon {rounded_down(self.epsilon_left):.4g}{share}"


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
