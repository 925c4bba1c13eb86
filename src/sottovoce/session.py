"""A run as a loop of the user's own: ``for step in session``."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor, nn

from sottovoce.arguments import whole
from sottovoce.horizon import resolve
from sottovoce.inputs import as_records
from sottovoce.methods.base import Method, Moment, uses_public, with_plain_numbers
from sottovoce.methods.plain import PlainMethod
from sottovoce.objective.caller import warn_caller
from sottovoce.objective.directions import Key
from sottovoce.objective.gradients import Loss
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.probe import probe
from sottovoce.objective.strategies import Strategy
from sottovoce.overlap import refuse_private_as_public
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.curator import Curator
from sottovoce.privacy.errors import ConfigurationError, PlanViolation, PrivacyWarning
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.statement import Statement, state
from sottovoce.privacy.trees import Tree, leaves_of
from sottovoce.public import PublicData
from sottovoce.reference import plain_batches, plain_statement
from sottovoce.tracking import check_tracking, ledger_for
from sottovoce.update import Estimate, Update, Updater


@dataclass(frozen=True)
class Step:
    """One step that was taken. Everything in it is released or public, and may be logged."""

    number: int
    of: int
    released: Tensor
    """The noisy numbers that the step was made from: slopes, or a gradient."""


class Session:
    """A private training run, step by step.

    Everything is checked when the session is made, on the public example and before any budget is spent. The
    plan is reserved at the first step, and settled when the last step is done, at `close`, at the end of a
    ``with`` block, or when the session is collected. A loop that was left between two steps, by a ``break`` or an
    exception of its own, may go on where it was; whatever is raised inside a step ends the run, and a run that ended
    before its last step says so when it is asked for more.

    The model is always run in evaluation mode, whatever mode it is in: dropout does nothing, and batch normalisation
    uses its running statistics. Its own mode is back afterwards.

    Attributes:
        steps: the number of steps.
        steps_run: steps whose update was applied. The statement counts those that were paid for, which is one more
            where the run ended inside a step; it says so then.

    Args:
        model: the module to train, in place.
        loss: ``loss(model, batch) -> Tensor[B]``, one value for each record; see `sottovoce.losses`.
        private: the private records: a tree of tensors or arrays, or a map-style data set of fixed-shape items.
        method: which question is asked at each step, such as ``DPZero(lr=1e-2)``.
        budget: the guarantee; None for the references without privacy, SGD and MeZO, and only for them.
        public: records that everybody may see, for the methods that use them; of the same form as the private ones.
        steps: the number of steps; give exactly one of steps and epochs.
        epochs: passes over the data.
        batch_size: the expected number of records in a batch.
        sampling: ``"poisson"``, ``"single-pass"`` (every record at most once) or ``"full-batch"``.
        records: the public number of records that rate and divisor are made from. It defaults to the data's
            length; under ``neighbours="add-remove"`` it must be given, independently of the data.
        update: momentum, weight decay, schedule and averaging.
        example: one public record, for padding and every check; by default zeros. Where ``private`` is a data set of
            the user's own it is needed (unless ``public`` is there, whose first record then serves), and alone says
            what form a record has: an item that cannot be converted to it counts as zero.
        dataset: the owner's name for the data set, under which a durable ledger keeps its budget over all runs. The
            first run with a new name has the data set to itself: whatever it releases, another is refused, and a run
            that is killed after it released something closes the data set too. For a budget that several full-batch
            or single-pass runs share, open it before the first of them: ``sottovoce ledger open NAME --grant
            unsubsampled --epsilon E --delta D``.
        ledger: another ledger than the default one; only with ``dataset=``.
        seed: the seed of public randomness (directions). Noise and batches cannot be seeded.
        strategy: how the model is evaluated near x: ``"fast"``, ``"lean"`` (inference memory) or ``"auto"``.
        max_physical_batch: the most records evaluated at once.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        *,
        private: Any,
        method: Method | PlainMethod,
        budget: Budget | None = None,
        public: Any = None,
        steps: int | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        sampling: str = "poisson",
        records: int | None = None,
        update: Update | None = None,
        example: Any = None,
        dataset: str | None = None,
        ledger: Ledger | None = None,
        seed: int = 0,
        strategy: Strategy = "auto",
        max_physical_batch: int = 512,
    ) -> None:
        method = _checked_method(method, budget)
        _check_tracking(method, dataset, ledger)
        if update is not None and not isinstance(update, Update):
            raise ConfigurationError(f"update={update!r}: give Update(momentum=..., schedule=..., ...).")
        max_physical_batch = whole("max_physical_batch", max_physical_batch)
        if method.private and example is not None:
            refuse_private_as_public(private, example, "example=")
        data = as_records(private, example, public)
        sampler = resolve(
            sampling,
            records=_public_count(data.count, records, budget),
            batch_size=batch_size,
            epochs=epochs,
            steps=steps,
        )
        self.method = method
        self.steps = sampler.steps
        self.steps_run = 0
        self.objective = ModuleObjective(model, loss, strategy=strategy, example=data.example)
        self._example_was_given = example is not None
        self._key = _key_of(seed)
        self._ended: str | None = None
        self._updater = Updater(update or Update(), self.objective.parameters, lr=method.lr, steps=self.steps)
        self._public = _public_data(method, public, private, self.objective)
        self._curator: Curator | None = None
        if isinstance(method, Method) and budget is not None:
            method.check(self.objective)
            self._curator = Curator(
                data,
                method.plan(sampler),
                budget,
                ledger=ledger_for(dataset, ledger),
                dataset=dataset,
                device=self.objective.parameters.device,
                max_physical_batch=max_physical_batch,
            )
            self._report = probe(
                self.objective, data.example, self._curator.physical_rows, stands_in=_stands_in(data.example, example)
            )
            rehearsal = self._moment(0, self._key.fold("rehearsal"))
            self._curator.rehearse(lambda batch: method.step(batch, rehearsal))
            self._estimates = self._private_estimates(method, self._curator)
            weakref.finalize(self, self._curator.close)
            for text in self.statement.warnings:
                warn_caller(text, PrivacyWarning)
        else:
            assert isinstance(method, PlainMethod)
            size = int(sampler.largest_expected_batch() if batch_size is None else batch_size)
            rows = min(size, max_physical_batch)
            self._report = probe(self.objective, data.example, rows, stands_in=_stands_in(data.example, example))
            method.check(self.objective)
            device = self.objective.parameters.device
            plain = plain_batches(data, size=size, steps=self.steps, key=self._key, device=device)
            self._estimates = self._plain_estimates(method, plain)

    def __iter__(self) -> Iterator[Step]:
        """The steps that are left; a loop that was broken off between two steps goes on where it was."""
        return self

    def __next__(self) -> Step:
        """Take one step.

        Raises:
            PlanViolation: the run ended before its last step, by `close` or by what was raised inside a step.
        """
        if self.steps_run == self.steps:
            self.close()
            raise StopIteration
        if self._ended is not None:
            raise PlanViolation(
                f"this session ended at step {self.steps_run} of {self.steps} by {self._ended}: it cannot go on. Its "
                "statement holds what was spent, the model what was learnt; a new run needs a new session."
            )
        try:
            estimate = next(self._estimates)
            self._updater.apply(estimate, self.steps_run)
        except BaseException as error:
            with contextlib.suppress(Exception):  # of the two errors, the first is the one to be told
                self._end(f"{type(error).__name__} inside the next step")
            raise
        self.steps_run += 1
        if self.steps_run == self.steps:
            self._updater.finish()
        return Step(self.steps_run, self.steps, estimate.released)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the run here: the steps that were run are charged, and the model holds the average, if one is kept.

        Of the reservation on a named data set the rest returns only under grant "unsubsampled", or if no step was run:
        under grant "single" a run that released anything closes the data set.
        """
        self._end("close()")

    def _end(self, by: str) -> None:
        self._ended = self._ended or by
        self._updater.finish()
        if self._curator is not None:
            self._curator.close()

    def epsilon(self) -> float:
        """What the steps so far cost, at the budget's delta, if their number was fixed beforehand; infinite without
        privacy.

        A run that is stopped because of what it released has the guarantee of its whole plan, which is the budget.
        """
        return math.inf if self._curator is None else self._curator.epsilon()

    @property
    def noise_multiplier(self) -> float:
        """Noise standard deviation over sensitivity, of one step; 0 without privacy."""
        return 0.0 if self._curator is None else self._curator.noise_multiplier

    @property
    def exposed(self) -> list[Tensor]:
        """The exact integer sums of every release, under `testing.expose_answers` alone."""
        return [] if self._curator is None else self._curator.exposed

    @property
    def statement(self) -> Statement:
        """The privacy statement of the run so far. A step is paid for as soon as its batch is drawn."""
        if self._curator is None:
            return plain_statement(self.method, steps=self.steps, steps_run=self.steps_run)
        assumed: list[str] = []
        if self._curator.budget.neighbours == "add-remove":  # always: losses are probed, and on made-up records
            seen = "the example's losses " + ("do" if self._report.row_position_rounding else "do not")
            assumed.append(
                f"row-position rounding: a row's last bits may depend on its slot in the padded batch ({seen}), and "
                "records move between slots when one is added or removed"
            )
        if self.objective.strategy == "lean":
            assumed.append("the loss writes into no trainable parameter: the lean strategy keeps no copy to put back")
        if self._example_was_given:
            assumed.append("the record given as example= is public")
        if self._public is not None:
            assumed.append(
                f"the {self._public.count} records given as public= are public, and chosen without the private ones"
            )
        statement = state(self._curator, assumed=assumed)
        if self._ended is None or statement.steps_run == self.steps_run:
            return statement
        unapplied = (
            f"step {statement.steps_run} is paid for and was not applied to the model: the run ended inside it, by "
            f"{self._ended.split()[0]}"
        )
        return replace(statement, warnings=(*statement.warnings, unapplied))

    def averaged(self) -> Any:
        """A context in which the model holds the average of the iterates, where ``update=`` keeps one."""
        return self._updater.averaged()

    def _moment(self, number: int, key: Key) -> Moment:
        return Moment(
            objective=self.objective,
            key=key,
            number=number,
            of=self.steps,
            rate=self._updater.rate(number),
            public_data=self._public,
        )

    def _private_estimates(self, method: Method, curator: Curator) -> Generator[Estimate]:
        for number, batch in enumerate(curator.batches()):
            yield method.step(batch, self._moment(number, self._key.fold(number)))

    def _plain_estimates(self, method: PlainMethod, batches: Iterator[Any]) -> Generator[Estimate]:
        for number, records in enumerate(batches):
            yield method.plain_step(records, self.objective, self._key.fold(number))


def _stands_in(used: Tree, given: Any) -> bool:
    """Whether the example in use is but a record of zeros: none was given, and no public record serves."""
    return given is None and not any(bool(leaf.any()) for leaf in leaves_of(used))


def _key_of(seed: Any) -> Key:
    try:
        return Key(seed)
    except ConfigurationError:
        raise ConfigurationError(
            f"seed={seed!r}: a whole number is needed, from which the public randomness starts."
        ) from None


def _checked_method(method: Any, budget: Budget | None) -> Method | PlainMethod:
    if isinstance(method, type) or not isinstance(method, Method | PlainMethod):
        given = f"the class {method.__name__}" if isinstance(method, type) else repr(method)
        raise ConfigurationError(f"method={given} is not a method: give one such as DPZero(lr=1e-2) or DPSGD(lr=0.1).")
    if method.private and budget is None:
        raise ConfigurationError(f"{type(method).__name__} is private and needs budget=Budget(epsilon=..., delta=...).")
    if not method.private and budget is not None:
        raise ConfigurationError(
            f"{type(method).__name__} is a reference WITHOUT PRIVACY and cannot keep a budget: leave out budget=, or "
            "take DPSGD or DPZero."
        )
    if budget is not None and not isinstance(budget, Budget):
        raise ConfigurationError(f"budget={budget!r}: give Budget(epsilon=..., delta=...).")
    return with_plain_numbers(method)


def _check_tracking(method: Method | PlainMethod, dataset: str | None, ledger: Ledger | None) -> None:
    """What names a data set, and where its runs are recorded."""
    check_tracking(dataset, ledger)
    if dataset is not None and not method.private:
        raise ConfigurationError(
            f"dataset={dataset!r} with {type(method).__name__}, a reference WITHOUT PRIVACY: what it does to a data "
            "set cannot be entered in the ledger. Leave out dataset=, or take DPZero or DPSGD."
        )


def _public_data(method: Any, public: Any, private: Any, objective: ModuleObjective) -> PublicData | None:
    """The public records, where the method uses some; they must not be the private ones."""
    used, name = uses_public(method), type(method).__name__
    if used != (public is not None):
        raise ConfigurationError(
            f"{name} does not use public data: leave out public=."
            if not used
            else f"{name} needs public=: records that everybody may see, of the form of the private ones."
        )
    if not used:
        return None
    refuse_private_as_public(private, public)
    data = PublicData(public, objective)
    data.check_batch(method.public_batch)
    return data


def _public_count(actual: int, given: int | None, budget: Budget | None) -> int:
    if budget is not None and budget.neighbours == "add-remove":
        if given is None:
            raise ConfigurationError(
                "neighbours='add-remove' needs records=: a public number, fixed independently of the data, from which "
                "rate and divisor are made (the data's own length would tell neighbours apart)."
            )
        return whole("records", given)
    if given is not None and given != actual:
        raise ConfigurationError(
            f"records={given!r} and the data set has {actual}: under neighbours='zero-out' and 'replace-one' the "
            "number of records is public and is taken from the data; leave out records=."
        )
    return actual
