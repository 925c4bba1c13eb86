"""The one door to private records.

A `Curator` owns the records, the sampler, the clip, the noise, the plan and the reservation in the ledger.
What leaves it is public: answers with noise, and numbers fixed before any record was read. Whether a method is
private can therefore be read here, given one property of each query: row i depends on record i alone.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.privacy import accounting
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.clip import LARGEST_COUNT
from sottovoce.privacy.entropy import Entropy, switches
from sottovoce.privacy.errors import ConfigurationError, LedgerConflict, PlanViolation, PrivacyError
from sottovoce.privacy.evaluation import Evaluator, Query, physical_batch
from sottovoce.privacy.events import first_steps
from sottovoce.privacy.ledger import Ledger, Reservation
from sottovoce.privacy.noise import add_noise, grid_for
from sottovoce.privacy.plan import Plan, Stage
from sottovoce.privacy.records import Records
from sottovoce.privacy.sampling import Indices
from sottovoce.privacy.secret import Secret
from sottovoce.privacy.window import Window

_LARGEST_LEASE = 256
_LEASE_UNDER_FIXED_ENTROPY = 16  # two replayed runs are compared, and timings must not tell them apart

_UP = 1 + 2.0**-48  # noise is never below the real number that is accounted, whatever its computation rounded

Answer = Callable[..., Tensor]


class Batch(Secret):
    """An opaque handle on the records of one step. It answers bounded questions, with noise."""

    __slots__ = ("_release", "_running_sum")

    def __init__(self, release: Answer, running_sum: Answer) -> None:
        self._release = release
        self._running_sum = running_sum

    def release(self, query: Query, *, bound: float, share: float = 1.0) -> Tensor:
        """The noisy mean of the query over the batch: ``[query.width]``, float64, on the CPU.

        Every record's row is clipped to ``bound`` in l2; the noise on the sum has standard deviation
        ``bound * multiplier / sqrt(share)`` in every coordinate; the divisor is the public expected size.
        """
        return self._release(query, float(bound), float(share))

    def running_sum(self, query: Query, *, bound: float) -> Tensor:
        """The noisy sum of the query's batch means over this window, this batch included.

        The exact sum and the past noise stay inside. A batch of the window that did not ask counts as zero.
        """
        return self._running_sum(query, float(bound))

    def skip(self) -> None:
        """Ask nothing: the answer is known to be zero. The step is paid for all the same."""


class Curator(Secret):
    """Holds private records and lets out what a frozen plan allows, with noise calibrated to a budget.

    Args:
        records: the private data set.
        plan: everything that the run may release.
        budget: the guarantee that the whole plan is calibrated to.
        ledger: where the run is reserved; a fresh one in memory by default.
        dataset: the owner's name for the data set; without it the run is accounted alone.
        device: where queries run.
        max_physical_batch: the most rows that a query sees at once; it bounds memory.
    """

    __slots__ = (
        "_draws", "_entropy", "_evaluator", "_indices", "_ledger", "_lock", "_records", "_reservation", "_step",
        "_steps", "_switches", "_taken", "_window", "budget", "closed", "dataset", "exposed", "grids", "lease_block",
        "noise_multiplier", "physical_rows", "plan", "record_count", "steps_run", "switches",
    )  # fmt: skip

    def __init__(
        self,
        records: Records,
        plan: Plan,
        budget: Budget,
        *,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        device: torch.device | str = "cpu",
        max_physical_batch: int = 512,
    ) -> None:
        self._switches = switches.get()
        _check(records, plan, budget, max_physical_batch)
        if dataset is not None and self._switches.active:
            named = f"dataset={dataset!r} refuses the testing switches {', '.join(self._switches.active)}"
            raise LedgerConflict(f"{named}: such a run is not private. Leave out dataset=.")
        if dataset is not None and (ledger is None or ledger.path is None):
            raise LedgerConflict(f"dataset={dataset!r}: tracking it over runs needs a ledger in a file.")
        self.plan, self.budget, self.dataset = plan, budget, dataset
        self.switches = self._switches.active  # any testing switch makes the run NOT PRIVATE
        self.record_count = records.count  # public under every relation but add/remove
        self.physical_rows = physical_batch(plan, max_physical_batch)
        self.noise_multiplier = accounting.calibrate(plan.events, budget)
        self.lease_block = 1 if self._switches.fixed_entropy is None else _LEASE_UNDER_FIXED_ENTROPY
        self.steps_run, self.closed = 0, False
        self.grids: dict[float, float] = {}  # the bounds that were released under, each with its grid: public
        self.exposed: list[Tensor] = []  # the exact sums, under `testing.expose_answers` alone
        self._records = records
        self._evaluator = Evaluator(records, self.physical_rows, torch.device(device))
        self._ledger = Ledger.in_memory() if ledger is None else ledger
        self._entropy: Entropy = self._switches.entropy
        self._reservation: Reservation | None = None
        self._steps = [(stage, step) for stage in plan.stages for step in range(stage.sampler.steps)]
        self._step = -1
        self._draws: Iterator[Indices] = iter(())
        self._indices: Indices = np.empty(0, dtype=np.int64)  # who is in the batch
        self._taken: list[float] = []
        self._window: Window | None = None
        self._lock = threading.Lock()

    def epsilon(self, steps: int | None = None) -> float:
        """What so many steps (by default those run so far) cost, had just these been planned; see the statement.

        Whoever decides to stop by what was released has the guarantee of the whole plan: the budget. Infinite under a
        testing switch.
        """
        if self.switches:
            return math.inf
        events = first_steps(self.plan.events(self.noise_multiplier), self.steps_run if steps is None else steps)
        return accounting.epsilon(events, self.budget.delta, self.budget.neighbours)

    def rehearse(self, step: Callable[[Batch], object]) -> float:
        """Run one step of a method on the public example alone; returns its seconds.

        Whatever is wrong with the user's code shows here, with its own traceback, before anything is reserved.
        The answers are zeros and nothing is released; the plan is enforced as in the run.
        """
        if self._reservation is not None:
            raise PlanViolation("a rehearsal comes before the first batch.")
        self._taken = []
        started = time.perf_counter()
        step(Batch(self._rehearsed, self._rehearsed))
        seconds = time.perf_counter() - started
        if self._switches.fixed_entropy is None:  # about a second's work between two durable marks
            self.lease_block = max(1, min(_LARGEST_LEASE, int(1 / max(seconds, 1e-9))))
        return seconds

    def batches(self) -> Iterator[Batch]:
        """Reserve the whole plan, and hand out its batches in order, once.

        Each exists only under a lease that was durable before it.
        """
        with self._one_at_a_time():
            if self._reservation is not None or self.closed:
                raise PlanViolation("this run's batches were handed out already: a new run needs a new session.")
            events = self.plan.events(self.noise_multiplier)
            self._reservation = self._ledger.reserve(budget=self.budget, events=events, dataset=self.dataset)
        for step, (stage, within) in enumerate(self._steps):
            self._lease(step)
            if within == 0:
                self._draws = stage.sampler.batches(self._records.count, self._entropy.fork("sampler", step))
            with self._one_at_a_time():
                self._indices, self._taken, self._step = next(self._draws), [], step
                self.steps_run = step + 1
            alone = self._one_at_a_time()
            yield Batch(alone(partial(self._release, step)), alone(partial(self._running_sum, step)))
        self.close()

    def close(self) -> None:
        """Settle: the steps really run are charged, the rest of the reservation returns. Idempotent."""
        if not self.closed:
            self.closed = True
            self._indices, self._draws, self._window = np.empty(0, dtype=np.int64), iter(()), None
            if self._reservation is not None:
                self._reservation.settle(self.steps_run)

    def _lease(self, step: int) -> None:
        """Make it durable that ``step`` may have been released, before its batch exists."""
        assert self._reservation is not None
        if step >= self._reservation.mark:
            self._reservation.lease(min(step + self.lease_block, self.plan.steps))

    def _enter(self, step: int, bound: float) -> Stage:
        """What every answer checks before it looks at data."""
        if self.closed or step != self._step:
            raise PlanViolation("this batch is over: a batch answers only until the next one is drawn.")
        if self._reservation is None or not self._reservation.covers(step):
            raise LedgerConflict("no live lease covers this step; nothing was released.")
        grid_for(bound)  # refuses a bound that has no grid, before anything is paid for
        return self._steps[step][0]

    def _take_share(self, stage: Stage, share: float) -> None:
        """Each planned share is released once."""
        left = list(stage.shares)
        for taken in self._taken:
            left.remove(taken)
        if share not in left:
            asked = f"a release of share {share} is not in the plan (left on this batch: {left or 'nothing'})"
            raise PlanViolation(f"{asked}; the data was not looked at. A method declares its releases in its plan.")
        self._taken.append(share)

    def _release(self, step: int, query: Query, bound: float, share: float) -> Tensor:
        stage = self._enter(step, bound)
        self._take_share(stage, share)
        self._evaluator.probe(query)
        return _sealed(self._release_sealed, stage, step, query, bound, share)

    def _release_sealed(self, stage: Stage, step: int, query: Query, bound: float, share: float) -> Tensor:
        grid = self.grids[bound] = grid_for(bound)
        sigma = self.noise_multiplier * stage.relative_noise * bound / math.sqrt(share)
        sums = self._evaluator.sums(query, self._indices, self._seed(), bound=bound, grid=grid)
        self._expose(sums)
        if not self._switches.no_noise:
            noise = self._entropy.fork("noise", step, len(self._taken))
            sums = add_noise(sums, sigma * _UP / grid, noise)
        return torch.as_tensor(sums.astype(np.float64)) * grid / stage.sampler.divisor(self._steps[step][1])

    def _running_sum(self, step: int, query: Query, bound: float) -> Tensor:
        stage = self._enter(step, bound)
        if stage.running_sum is None:
            raise PlanViolation("the plan has no running sum here; the data was not looked at.")
        leaf = self._steps[step][1] % stage.running_sum.length
        if self._window is None or self._window.first_step != step - leaf:
            sigma = self.noise_multiplier * stage.relative_noise * stage.running_sum.sensitivity()
            scaled = sigma * _UP / math.sqrt(stage.running_sum.share)
            entropy = self._entropy.fork("running sum", step - leaf)
            self._window = Window(step - leaf, stage.running_sum, query.width, scaled, entropy)
        divisor = stage.sampler.divisor(self._steps[step][1])
        self._evaluator.probe(query)
        self._window.take(leaf, query.width, bound / divisor)
        return _sealed(self._running_sum_sealed, self._window, query, bound, divisor)

    def _running_sum_sealed(self, window: Window, query: Query, bound: float, divisor: float) -> Tensor:
        self.grids[bound := bound / divisor] = window.grid
        seed, scale = self._seed(), 1 / divisor
        sums = self._evaluator.sums(query, self._indices, seed, bound=bound, grid=window.grid, prescale=scale)
        noisy = window.add(sums, noiseless=self._switches.no_noise)
        self._expose(window.exact_sum)
        return torch.as_tensor(noisy) * window.grid

    def _seed(self) -> int:
        """For what the user's code draws: secret and new for every answer, so that slots are exchangeable."""
        return int(self._entropy.fork("draws", self._step, len(self._taken)).words(1)[0] >> np.uint64(2))

    @contextmanager
    def _one_at_a_time(self) -> Generator[None]:
        """An answer is about one batch: no other is drawn, and no other question asked, while it is made."""
        if not self._lock.acquire(blocking=False):
            raise PlanViolation("a curator answers one question at a time.")
        try:
            yield
        finally:
            self._lock.release()

    def _expose(self, sums: NDArray[np.int64]) -> None:
        if self._switches.expose_answers:
            self.exposed.append(torch.as_tensor(sums.copy()))

    def _rehearsed(self, query: Query, bound: float, share: float | None = None) -> Tensor:
        grid_for(bound)  # refuses a bound that has no grid, before anything is paid for
        stage = self.plan.stages[0]
        if share is not None:
            self._take_share(stage, share)
        elif stage.running_sum is None:
            raise PlanViolation("the plan has no running sum.")
        self._evaluator.probe(query)
        return torch.zeros(query.width, dtype=torch.float64)


def _sealed(answer: Answer, *arguments: object) -> Tensor:
    """Nothing that goes wrong while records are handled leaves with its words, its cause or the room's variables."""
    failure: BaseException = PrivacyError("answering failed; why is withheld, because it could speak of a record.")
    try:
        return answer(*arguments)
    except KeyboardInterrupt:
        failure = KeyboardInterrupt()
    except BaseException:
        pass
    raise failure


def _check(records: Records, plan: Plan, budget: Budget, max_physical_batch: int) -> None:
    for stage in plan.stages:  # first: other messages count the records
        if budget.neighbours == "add-remove" and stage.sampler.event(1.0).sampling == "single-pass":
            why = "all later blocks would shift; use neighbours='zero-out'"
            raise ConfigurationError(f"neighbours='add-remove' has no meaning for disjoint blocks: {why}.")
        stage.sampler.check(records.count)
    if records.count > LARGEST_COUNT or max_physical_batch < 1:
        asked = f"max_physical_batch={max_physical_batch}"
        raise ConfigurationError(f"{asked}: at most 2^28 records are summed exactly; a batch holds at least one.")
