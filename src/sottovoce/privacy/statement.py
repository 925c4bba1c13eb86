"""The privacy statement: what every result prints and saves. Everything in it is public."""

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

RELATIONS = {
    "zero-out": "one record is replaced by one that contributes nothing; the number of records is public",
    "add-remove": "one record is added or removed; rate, steps and divisor were given independently of the data",
    "replace-one": "one record takes any other value; the number of records is public",
}
NOT_COVERED = (
    "time and memory: they can show how many micro-batches a batch filled, and whether a record made the loss raise",
    "choices made by looking at the private records outside this run, such as hyper-parameters tuned on them",
    "what the user's own code prints, stores or sends while it holds private records",
    "a loss that kills or interrupts the process, device asserts",
)
UNNAMED = "not named: this run is accounted alone, not tracked across runs"
WIDE_DELTA = "delta {:g} is above 1/records = {:.3g}: publishing a random record whole would satisfy it"
UNFINISHED = ", had just these been planned; the run may have been stopped for what it released: see the guarantee"
ASSUMED = (
    "the operating system's entropy is uniform and secret",
    "a row of a query depends on its own record alone",
    "IEEE arithmetic, and log, sin and cos within 4 units in the last place",
)
EXACT = "exact: the ideal continuous Gaussian, rounded to the grid, from the operating system's entropy"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What is guaranteed, about whom, under which assumptions, and what is not covered.

    The guarantee is ``epsilon``, that of the whole plan, and holds whenever and for whatever reason a run ended.
    ``epsilon_spent`` is what the steps that were run cost if their number was fixed beforehand: it is no guarantee of
    a run that was stopped because of what it had released.
    """

    private: bool
    epsilon: float
    epsilon_spent: float
    delta: float
    neighbours: str
    unit: str
    relation: str
    sampler: tuple[dict[str, Any], ...] = ()
    steps_planned: int
    steps_run: int
    noise_multiplier: float = 0.0
    grids: tuple[dict[str, float], ...] = ()
    noise: str = "none"
    accountant: str = "none"
    dataset: str
    public: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = NOT_COVERED
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA

    def to_json(self) -> str:
        """The statement as JSON; an epsilon that does not exist is null."""
        finite = {key: None if value in (math.inf, -math.inf) else value for key, value in asdict(self).items()}
        return json.dumps(finite, indent=2)

    def __str__(self) -> str:
        rows = {
            "guarantee": f"({self.epsilon:g}, {self.delta:g})-differential privacy, per {self.unit}",
            "spent": f"epsilon {self.epsilon_spent:.4g} after {self.steps_run} of {self.steps_planned} steps"
            + (self.steps_run < self.steps_planned) * UNFINISHED,
            "neighbours": f"{self.neighbours}: {self.relation}",
            "sampler": "; ".join("{sampling}, rate {rate:.6g}, {steps} steps".format(**part) for part in self.sampler),
            "noise": f"multiplier {self.noise_multiplier:.6g}, {self.noise}",
            "grid": ", ".join("{grid:g} for clip {bound:g}".format(**part) for part in self.grids) or "none yet",
            "accountant": self.accountant,
            "data set": self.dataset,
        }
        lines = ["PRIVACY STATEMENT"] if self.private else ["NOT PRIVATE", *textwrap.wrap(self.relation, 100)]
        for name, text in rows.items() if self.private else ():
            lines.append(textwrap.fill(text, 100, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14))
        for title in ("public", "assumed", "not_covered", "warnings"):
            entries: tuple[str, ...] = getattr(self, title)
            lines += ["", title.replace("_", " ").capitalize() + ":"] if entries else []
            lines += [textwrap.fill(e, 100, initial_indent="  - ", subsequent_indent="    ") for e in entries]
        return "\n".join(lines)


def state(curator: Curator, assumed: Iterable[str] = ()) -> Statement:
    """The statement of a run so far."""
    budget, count, tested = curator.budget, curator.record_count, ", ".join(curator.switches)
    events = curator.plan.events(curator.noise_multiplier)
    known = getattr(curator.plan.stages[0].sampler, "records", count)  # public under add-remove too
    return Statement(
        private=not tested,
        epsilon=math.inf if tested else budget.epsilon,
        epsilon_spent=curator.epsilon(),
        delta=budget.delta,
        neighbours=budget.neighbours,
        unit=budget.unit,
        relation=f"made under the testing switches {tested}" if tested else RELATIONS[budget.neighbours],
        sampler=tuple(asdict(event) for event in events),
        steps_planned=curator.plan.steps,
        steps_run=curator.steps_run,
        noise_multiplier=curator.noise_multiplier,
        grids=tuple({"bound": bound, "grid": grid} for bound, grid in sorted(curator.grids.items())),
        noise="NONE" if "no_noise" in tested else EXACT,
        accountant=accountant_name(events),
        dataset=f"{curator.dataset!r}, tracked over runs in the ledger" if curator.dataset else UNNAMED,
        public=(
            "every record's shape and type"
            + (budget.neighbours != "add-remove") * f", and the number of records, {count}",
            "the plan (sampler, steps, clips), the initial model and every released answer",
        ),
        assumed=() if tested else (*ASSUMED, *assumed),
        warnings=(WIDE_DELTA.format(budget.delta, 1 / known),) if budget.delta > 1 / known else (),
    )
