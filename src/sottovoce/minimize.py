"""``minimize``: a private black-box minimiser, in the manner of ``scipy.optimize.minimize``."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sottovoce.estimators import Smoothed
from sottovoce.gradient_estimators import Sampled
from sottovoce.inputs import as_records
from sottovoce.methods.o2nc import O2NC, Walked
from sottovoce.methods.oracles import FreshMultiPass, FreshSinglePass, MultiPassDifferences, Oracle, Questions, Running
from sottovoce.minimize_arguments import (
    Bounds,
    arrays_of,
    asked_of,
    box_around,
    check_kinds,
    check_plan,
    positive,
    seed_of,
    slope_of,
    start_of,
)
from sottovoce.objective.box_probe import box_of
from sottovoce.objective.caller import warn_caller
from sottovoce.objective.evaluation import from_seed
from sottovoce.objective.function import Function
from sottovoce.overlap import refuse_private_as_public
from sottovoce.planning import NonsmoothProblem, Schedule, schedule
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.curator import Batch, Curator
from sottovoce.privacy.errors import ConfigurationError, PrivacyWarning
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.statement import Statement, state
from sottovoce.privacy.tree import Factorisation
from sottovoce.tracking import ledger_for

Floats = NDArray[np.float64]
MethodName = Literal["single-pass", "tree", "multi-pass", "multi-pass-differences", "first-order"]


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What theory says about the point that was returned.

    Attributes:
        radius: there is a convex combination of gradients within this distance of the point, and
        bound: its norm is at most this, in expectation over everything random; NaN where there is no guarantee: the run
            was stopped early, the last window was taken, or the schedule is one's own.
        gap: what F(x0) - inf F was taken to be at most: the bound holds if it is.
        of: the function that this is about.
        vacuous: whether the bound says no more than that the function is Lipschitz.
    """

    radius: float
    bound: float
    gap: float
    of: str
    vacuous: bool

    def __str__(self) -> str:
        if math.isnan(self.bound):
            return "no certificate: it is for a random one of all windows of the schedule that minimize finds"
        said = f"E |Goldstein gradient of {self.of} within {self.radius:g}| <= {self.bound:.3g}"
        said += f" if F(x0) - inf F <= {self.gap:g}"
        return said + (self.vacuous * " (vacuous: no more than the Lipschitz constant)")


@dataclass(frozen=True, kw_only=True)
class MinimizeResult:
    """What a private minimisation gives; all of it is public.

    Attributes:
        x: the average of the window that was chosen.
        candidates: the averages of all finished windows, ``[K, d]``, in order: choose among them on public records.
        certificate: what is guaranteed about x.
        statement: what is guaranteed about the records.
        schedule: the numbers of the run.
        history: the norm of every released estimate.
        nfev: values of f that the plan asks for; what padding adds is not counted.
        nit: steps taken.
        success: whether all steps were taken.
        message: in words.
    """

    x: Floats
    candidates: Floats
    certificate: Certificate
    statement: Statement
    schedule: Schedule
    history: Floats
    nfev: int
    nit: int
    success: bool
    message: str


def minimize(
    f: Function | None,
    x0: ArrayLike,
    records: Any,
    *,
    budget: Budget,
    radius: float,
    lipschitz: float | None = None,
    clip: float | None = None,
    method: MethodName = "single-pass",
    gap: float | None = None,
    jac: Function | None = None,
    bounds: Bounds | None = None,
    vectorized: bool | None = None,
    bases: int = 1,
    plan: Schedule | None = None,
    most_steps: int = 1_000,
    noise: Factorisation = "toeplitz",
    choose: Literal["random", "last"] = "random",
    callback: Callable[[Walked], object] | None = None,
    executor: Executor | None = None,
    example: Any = None,
    dataset: str | None = None,
    ledger: Ledger | None = None,
    seed: int = 0,
) -> MinimizeResult:
    """Minimise the mean of ``f(x, record)`` over private records, f nonsmooth, nonconvex, a black box.

    Args:
        f: ``f(x, record)``, one point ``[d]`` and one record, one number; or vectorised ``f(points, records)``,
            ``[N, d]`` and N records, N numbers, value i from point i and record i alone. NumPy in and out; a record has
            the form of ``records`` without the leading dimension. Not used, and may be None, with
            ``method="first-order"``. An evaluation that raises or is not finite makes its
            record count as zero, and nothing tells.
        x0: where to start, ``[d]``.
        records: the private records: an array with one row for each, or a tuple or dict of them.
        budget: the guarantee.
        radius: the smoothing radius, and that of a window: changes of x this small should not matter to you.
        lipschitz: how much f(., record) can change per unit of x, for every record.
        clip: where no Lipschitz constant is known: slopes are cut off here, which takes its place. Privacy does not
            depend on it; what is certified then is not about f. Give exactly one of the two.
        method: ``"single-pass"`` (the default: fresh estimates, every record once), ``"tree"`` (differences under a
            running sum, every record once), ``"multi-pass"`` (all records at every step; certifies the records at hand,
            not the population), ``"multi-pass-differences"``, or ``"first-order"`` (gradients, every record once).
        gap: how much there is to gain, F(x0) - inf F: a guess that the schedule follows; by default the Lipschitz
            constant times the diameter of the bounds, else times ten radii.
        jac: the gradient of f, ``[d]`` for a point and a record, or ``[N, d]``: for ``method="first-order"`` alone.
        bounds: for each coordinate the least and the largest value (None for none), or scipy's ``Bounds``; f is taken
            at the nearest point within.
        vectorized: whether f takes batches; found out on the example by default.
        bases: orthonormal bases of directions for each record and step. One costs 2 d values; more reduce variance.
        plan: a schedule of your own, in place of the one with the least bound for so many records.
        most_steps: the most steps of the multi-pass methods: each evaluates every record.
        noise: of running sums, ``"toeplitz"`` or ``"fenwick"``.
        choose: which window's average is returned: a ``"random"`` one, of which the theorem speaks, or the ``"last"``,
            which is often better and not certified.
        callback: called after every step with what was released. Return True, or raise StopIteration, to stop.
        executor: where calls of f run, such as a ``ProcessPoolExecutor``. What f prints in its workers is not held
            back, and a worker that an evaluation kills takes the other records of the run with it.
        example: one public record, on which f is tried first; by default zeros.
        dataset: the owner's name for the records, under which a ledger keeps their budget.
        ledger: another ledger than the default one.
        seed: of public randomness. Noise and batches cannot be seeded.

    Returns:
        The point, what is certified about it, and the privacy statement.
    """
    check_kinds(
        budget=budget, executor=executor, callback=callback, ledger=ledger, dataset=dataset, plan=plan, choose=choose,
        vectorized=vectorized,
    )  # fmt: skip
    start, slope, radius = start_of(x0), slope_of(lipschitz, clip), positive("radius", radius)
    if method not in get_args(MethodName):
        raise ConfigurationError(f"method={method!r}: choose one of {', '.join(map(repr, get_args(MethodName)))}.")
    key, box, arrays = seed_of(seed), box_around(bounds, len(start)), arrays_of(records)
    if example is not None:
        refuse_private_as_public(records, example, "example=")
    plain = as_records(arrays, example)
    data = as_records((arrays, torch.arange(plain.count)), (plain.example, torch.tensor(0)))
    asked = asked_of(f, jac, method, bounded=box is not None)
    width = math.inf if box is None else float(np.linalg.norm(box[1] - box[0]))
    problem = NonsmoothProblem(
        dimension=len(start), lipschitz=slope, radius=radius, budget=budget,
        gap=slope * (width if math.isfinite(width) else 10 * radius) if gap is None else positive("gap", gap),
    )  # fmt: skip
    check_plan(plan, method, plain.count)
    chosen = plan or schedule(
        problem, records=plain.count, oracle=method, bases=bases, most_steps=most_steps, noise=noise
    )
    if chosen is None:
        raise ConfigurationError(f"{plain.count} records are too few for two steps of {method!r}: nothing would move.")
    first_order = method == "first-order"
    function = box_of(
        asked, start, plain.example, vectorised=vectorized, executor=executor, gradient=first_order,
        stands_in=example is None,
    )  # fmt: skip
    smoothed = Smoothed(
        box=function, radius=radius, bases=chosen.bases, limit=slope,
        project=(lambda points: points) if box is None else (lambda points: np.clip(points, box[0], box[1])),
    )  # fmt: skip
    walk = O2NC(windows=chosen.windows, window_length=chosen.window_length, radius=radius, length=chosen.length)
    oracle = _oracle(chosen, Sampled(box=function) if first_order else smoothed, problem, walk)
    curator = Curator(data, oracle.plan(), budget, ledger=ledger_for(dataset, ledger), dataset=dataset)
    handed: list[Batch] = []
    rehearsal = walk.walk(start, oracle, iter(handed.pop, None), key.fold("rehearsal"))
    with from_seed(torch.device("cpu")):  # the user's own generators stay where they are
        for _ in range(min(2, walk.steps)):  # the second asks for a difference, where there are any
            curator.rehearse(lambda batch: (handed.append(batch), next(rehearsal)))
    for text in state(curator).warnings:
        warn_caller(text, PrivacyWarning)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices are small here: threads would wait for each other
    try:
        steps, stopped = _run(walk.walk(start, oracle, curator.batches(), key.fold("walk")), callback)
    finally:
        torch.set_num_threads(threads)
        curator.close()
    assumed = [] if example is None else ["the record given as example= is public"]
    assumed += [] if lipschitz is not None else [f"no Lipschitz constant: slopes are cut off at clip={slope:g} instead"]
    if executor is not None:
        assumed.append(
            "no evaluation ends a worker of the executor, workers carry nothing from one record to the next, and in "
            "threads the function draws no random numbers"
        )
    averages = [step.average for step in steps if step.average is not None]
    candidates = np.stack(averages) if averages else np.mean([step.point for step in steps], axis=0)[None]
    if box is not None:
        candidates = np.clip(candidates, box[0], box[1])
    certified = not stopped and choose == "random" and plan is None
    certificate = _certificate(chosen, problem, known=lipschitz is not None, bounded=box is not None, whole=certified)
    return MinimizeResult(
        x=candidates[-1 if choose == "last" else key.fold("choice").generator().integers(len(candidates))],
        candidates=candidates,
        certificate=certificate,
        statement=state(curator, assumed=assumed),
        schedule=chosen,
        history=np.asarray([float(step.estimate.norm()) for step in steps]),
        nfev=replace(chosen, windows=1, window_length=len(steps)).evaluations(len(start)),
        nit=len(steps),
        success=not stopped,
        message=f"{'stopped by the callback after' if stopped else 'took'} {len(steps)} of {walk.steps} steps; "
        f"{certificate}",
    )


def _run(walk: Any, callback: Callable[[Walked], object] | None) -> tuple[list[Walked], bool]:
    """The steps taken, and whether the callback stopped them."""
    steps: list[Walked] = []
    for step in walk:
        steps.append(step)
        try:
            if callback is not None and _is_true(callback(step)) and step.number < step.of:
                return steps, True
        except StopIteration:
            return steps, step.number < step.of
    return steps, False


def _oracle(chosen: Schedule, ask: Questions, problem: NonsmoothProblem, walk: O2NC) -> Oracle:
    difference = math.sqrt(problem.dimension) * problem.lipschitz * 2 * walk.longest_step / problem.radius
    match chosen.oracle:
        case "single-pass" | "first-order":
            return FreshSinglePass(questions=ask, steps=walk.steps, batch=chosen.batch, clip=chosen.clip)
        case "tree":
            return Running(
                questions=ask, steps=walk.steps, period=chosen.period, batch=chosen.batch, clip=chosen.clip,
                difference_batch=max(1, chosen.difference_batch), difference_clip=difference, noise=chosen.noise,
            )  # fmt: skip
        case "multi-pass":
            return FreshMultiPass(questions=ask, steps=walk.steps, records=chosen.batch, clip=chosen.clip)
        case "multi-pass-differences":
            return MultiPassDifferences(
                questions=ask, steps=walk.steps, period=chosen.period, records=chosen.batch, clip=chosen.clip,
                difference_clip=difference,
            )  # fmt: skip


def _is_true(answer: object) -> bool:
    return isinstance(answer, bool | np.bool_) and bool(answer)


def _certificate(
    chosen: Schedule, problem: NonsmoothProblem, *, known: bool, bounded: bool, whole: bool
) -> Certificate:
    of = "the mean over these records" if chosen.oracle.startswith("multi") else "the population's mean"
    of += (
        " of f" + bounded * " at the nearest point within the bounds" + (not known) * ", were it Lipschitz at the clip"
    )
    return Certificate(
        radius=(2 if chosen.bases else 1) * problem.radius, bound=chosen.bound if whole else math.nan,
        gap=problem.gap, of=of,
        vacuous=whole and chosen.vacuous(problem.lipschitz),
    )  # fmt: skip
