"""The privacy statement: what every result prints and saves."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sottovoce.privacy.accounting import accountant_name
from sottovoce.privacy.curator import Curator

SCHEMA = 1

NOT_COVERED = (
    "time and memory: they can show how many micro-batches a batch filled",
    "choices made by looking at the private records outside this run (hyper-parameters tuned on them, say)",
    "what the user's own code prints, stores or sends while it holds private records",
    "a loss that kills the process, device asserts",
)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What is guaranteed, about whom, under which assumptions, and what is not covered."""

    private: bool
    epsilon: float
    epsilon_spent: float
    delta: float
    neighbours: str
    unit: str
    relation: str
    sampler: tuple[dict[str, Any], ...]
    steps_planned: int
    steps_run: int
    noise_multiplier: float
    grids: tuple[dict[str, float], ...]
    noise: str
    accountant: str
    dataset: str
    public: tuple[str, ...]
    assumed: tuple[str, ...]
    not_covered: tuple[str, ...]
    warnings: tuple[str, ...]
    schema: int = SCHEMA

    def to_json(self) -> str:
        """The statement as JSON; numbers that are infinite or absent are null."""
        values = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }
        return json.dumps(values, indent=2)

    def __str__(self) -> str:
        lines = [*self._headline(), ""]
        for title, entries in (
            ("Public", self.public),
            ("Assumed", self.assumed),
            ("Not covered", self.not_covered),
            ("Warnings", self.warnings),
        ):
            if entries:
                lines.append(f"{title}:")
                lines += [
                    textwrap.fill(entry, 100, initial_indent="  - ", subsequent_indent="    ") for entry in entries
                ]
        return "\n".join(lines)

    def _headline(self) -> list[str]:
        if not self.private:
            return ["NOT PRIVATE", *textwrap.wrap(self.relation, 100)]
        rows = [
            ("guarantee", f"({self.epsilon:g}, {self.delta:g})-differential privacy, per {self.unit}"),
            ("spent", f"epsilon {self.epsilon_spent:.4g} after {self.steps_run} of {self.steps_planned} steps"),
            ("neighbours", f"{self.neighbours}: {self.relation}"),
            ("sampler", "; ".join(_describe(event) for event in self.sampler)),
            ("noise", f"multiplier {self.noise_multiplier:.6g}, {self.noise}"),
            ("grid", ", ".join(f"{g['grid']:g} for clip {g['bound']:g}" for g in self.grids) or "nothing released"),
            ("accountant", self.accountant),
            ("data set", self.dataset),
        ]
        lines = ["PRIVACY STATEMENT"]
        for name, text in rows:
            lines.append(textwrap.fill(text, 100, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14))
        return lines


def state(
    curator: Curator, *, public: Iterable[str] = (), assumed: Iterable[str] = (), warnings: Iterable[str] = ()
) -> Statement:
    """The statement of a run so far. Everything in it is public."""
    budget = curator.budget
    events = curator.plan.events(curator.noise_multiplier)
    return Statement(
        private=not curator.switches,
        epsilon=math.inf if curator.switches else budget.epsilon,
        epsilon_spent=curator.epsilon(),
        delta=budget.delta,
        neighbours=budget.neighbours,
        unit=budget.unit,
        relation=_relation(curator),
        sampler=tuple(event.to_json() for event in events),
        steps_planned=curator.plan.steps,
        steps_run=curator.steps_run,
        noise_multiplier=curator.noise_multiplier,
        grids=tuple({"bound": bound, "grid": grid} for bound, grid in sorted(curator.grids.items())),
        noise=_noise(curator),
        accountant=accountant_name(events),
        dataset=(
            f"{curator.dataset!r}, tracked in the ledger over runs"
            if curator.dataset
            else "not named: this run is accounted alone, not tracked across runs"
        ),
        public=(
            "every record's shape and type",
            *(() if budget.neighbours == "add-remove" else (f"the number of records, {curator.record_count}",)),
            "the plan (sampler, steps, clips), the initial model and every released answer",
            *public,
        ),
        assumed=(
            "the operating system's entropy is uniform and secret",
            "a row of a query depends on its own record alone",
            *assumed,
        ),
        not_covered=NOT_COVERED,
        warnings=(*_warnings(curator), *warnings),
    )


def _relation(curator: Curator) -> str:
    if curator.switches:
        return (
            f"made under the testing switches {', '.join(curator.switches)}: nothing is guaranteed. Accounting "
            "figures are those of the plan, not of what was done."
        )
    return {
        "zero-out": "one record is replaced by one that contributes nothing; the number of records is public",
        "add-remove": "one record is added or removed; rate, steps and divisor were given independently of the data",
        "replace-one": "one record takes any other value; the number of records is public",
    }[curator.budget.neighbours]


def _noise(curator: Curator) -> str:
    if "no_noise" in curator.switches:
        return "NONE (testing switch)"
    if curator.plan.exact:
        return "exact: the ideal continuous Gaussian rounded to the grid, from the operating system's entropy"
    return (
        "approximate: running sums use a float64 combination of exact normals, rounded once (square-root Toeplitz); "
        "direct releases are exact"
    )


def _warnings(curator: Curator) -> Iterable[str]:
    if curator.budget.neighbours != "add-remove" and curator.budget.delta > 1 / curator.record_count:
        yield (
            f"delta {curator.budget.delta:g} is above 1/records = {1 / curator.record_count:.3g}: a mechanism that "
            "publishes a random record whole would satisfy it. Take a tenth of 1/records or less."
        )


def _describe(event: dict[str, Any]) -> str:
    if event["sampling"] == "poisson":
        return f"Poisson, rate {event['rate']:.6g}, {event['steps']} steps"
    if event["sampling"] == "single-pass":
        return f"single pass over disjoint blocks, {event['steps']} steps, each record at most once"
    return f"full batch, {event['steps']} steps"
