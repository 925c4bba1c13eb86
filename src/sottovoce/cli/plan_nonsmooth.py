"""The command ``sottovoce plan nonsmooth``: what each oracle guarantees, or how many records a target needs."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Annotated, Any, get_args

import typer

from sottovoce.cli.support import AsJson, Output, command
from sottovoce.objective.bases import haar_bases
from sottovoce.objective.directions import Key
from sottovoce.planning import NonsmoothProblem, OracleName, Schedule, every, records_for_gap, uniform_gap
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError


def plan_nonsmooth(
    *,
    n: Annotated[int | None, typer.Option("--n", help="Records: find the least bound for so many.")] = None,
    target: Annotated[float | None, typer.Option(help="Find the fewest records whose bound is at most this.")] = None,
    d: Annotated[int, typer.Option("--d", help="The dimension.")],
    lipschitz: Annotated[float, typer.Option(help="How much the loss of a record changes per unit of x.")] = 1.0,
    gap: Annotated[float, typer.Option(help="F(start) less the infimum of F.")] = 1.0,
    radius: Annotated[float, typer.Option(help="Of smoothing and of a window; twice this is certified.")] = 0.1,
    epsilon: Annotated[float, typer.Option(help="The budget.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The budget.")] = 1e-6,
    neighbours: Annotated[str, typer.Option(help="zero-out or replace-one.")] = "zero-out",
    bases: Annotated[int, typer.Option(help="Orthonormal bases for each record and step.")] = 64,
    most_steps: Annotated[int, typer.Option(help="Steps of the multi-pass oracles, at most.")] = 20_000,
    noise: Annotated[str, typer.Option(help="Of running sums: toeplitz or fenwick.")] = "toeplitz",
    as_json: AsJson = False,
) -> None:
    """Show the best schedule of every oracle for nonsmooth, nonconvex losses. No data is read and nothing is spent.

    Give --n for the least bound on the Goldstein gradient that so many records allow, or --target for the fewest
    records whose bound is at most that. The bounds are proven and cautious: runs are often several times better.
    """
    with command(as_json=as_json) as output:
        if neighbours not in ("zero-out", "replace-one"):
            raise ConfigurationError(
                f"--neighbours {neighbours}: zero-out or replace-one; add-remove has no meaning for disjoint blocks."
            )
        if noise not in ("toeplitz", "fenwick"):
            raise ConfigurationError(f"--noise {noise}: toeplitz or fenwick.")
        problem = NonsmoothProblem(
            dimension=d, lipschitz=lipschitz, gap=gap, radius=radius,
            budget=Budget(epsilon=epsilon, delta=delta, neighbours=neighbours),
        )  # fmt: skip
        found = every(problem, records=n, target=target, bases=bases, most_steps=most_steps, noise=noise)
        _tell(output, problem, found, target)


def _tell(
    output: Output, problem: NonsmoothProblem, found: dict[OracleName, Schedule | None], target: float | None
) -> None:
    loop = _seconds_of_a_basis(problem.dimension)
    document = {name: _described(problem, plan, loop) for name, plan in found.items()}
    output.document = {"problem": dataclasses.asdict(problem), "target": target, "oracles": document}
    asked = "fewest records for" if target is not None else "least bound at"
    output.text(
        f"PLAN, {problem.dimension} dimensions, L = {problem.lipschitz:g}, gap {problem.gap:g}, "
        f"radius {problem.radius:g}: {asked} the budget ({problem.mu:.4g}-Gaussian differential privacy)"
    )
    for name in get_args(OracleName):
        output.text("\n" + "\n".join(_lines(name, document[name])))


def _described(problem: NonsmoothProblem, plan: Schedule | None, loop: float) -> dict[str, Any] | None:
    if plan is None:
        return None
    values = plan.evaluations(problem.dimension)
    bases = values / (2 * problem.dimension) if plan.bases else 0.0
    reach = 2 * problem.radius * plan.windows * plan.window_length / (plan.window_length + 1)
    multi = plan.oracle.startswith("multi")
    sizes: dict[str, Any] = {
        "dimension": problem.dimension, "lipschitz": problem.lipschitz, "radius": problem.radius, "reach": reach,
    }  # fmt: skip
    return {
        **dataclasses.asdict(plan),
        "steps": plan.steps,
        "evaluations": values,
        "seconds_of_the_loop": bases * loop,
        "vacuous": plan.vacuous(problem.lipschitz),
        "within": 2 * problem.radius if plan.bases else problem.radius,
        "gap_to_the_population": uniform_gap(records=plan.records, **sizes) if multi else 0.0,
        "records_for_a_population_gap_of_half_the_bound": records_for_gap(plan.bound / 2, **sizes) if multi else None,
    }


def _lines(name: OracleName, plan: dict[str, Any] | None) -> list[str]:
    if plan is None:
        return [f"{name}: no schedule: too few records for one step, or a target below what clipping costs in bias"]
    said = "VACUOUS: no more than the Lipschitz constant" if plan["vacuous"] else ""
    what = "gradients" if not plan["bases"] else "values of f"
    certified = f"E |Goldstein gradient within {plan['within']:g}| <= {plan['bound']:.4g}"
    walk = f"{plan['windows']:,} windows of {plan['window_length']:,} steps"
    later = f", {plan['difference_batch']:,} for a difference, period {plan['period']:,}" if plan["period"] > 1 else ""
    lines = [
        f"{name}: {plan['records']:,} records, {certified} {said}".rstrip(),
        f"  {walk}; {plan['batch']:,} records for a fresh estimate{later}",
        f"  {plan['evaluations']:.3g} {what}; the loop itself takes {_duration(plan['seconds_of_the_loop'])} here",
    ]
    if plan["gap_to_the_population"]:
        lines.append(
            f"  about these records; the population's is at most {plan['gap_to_the_population']:.3g} more (95 %)"
        )
    return lines


def _seconds_of_a_basis(dimension: int) -> float:
    """Drawing a record's directions, measured on this machine: the most that the loop does beside f."""
    if dimension > 2_000:
        return math.nan
    count = max(1, 200 // dimension)
    haar_bases(dimension, Key(0), range(count))
    started = time.perf_counter()
    haar_bases(dimension, Key(1), range(count))
    return (time.perf_counter() - started) / count


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "(not measured)"
    for unit, size in (("years", 3.15e7), ("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} seconds"
