"""The durable record of what was spent, per data set, over all runs.

A run reserves its whole plan before its first release, advances a durable high-water mark ("steps below it may
have been released") before it releases a step, and is settled at its end: the steps really run are charged and the
rest returns. A run that died is charged up to its mark. So at every instant, whatever was killed, the record is
never below what was released, and above it by at most one lease.

Between runs on one data set, which may depend on each other's results, either one pre-planned run has the whole
budget (grant "single"), or unsubsampled Gaussian runs share it (grant "unsubsampled"): adaptively chosen
mu_i-Gaussian-DP mechanisms are together mu-GDP as long as the sum of mu_i^2, over what is charged and what is
reserved, stays at most mu^2 (Koskela, Tobaben and Honkela 2023; Smith and Thakurta 2022). That filter is exact.

The truth is an append-only journal in an SQLite file on a local disk. A data set's budget is only as good as its
record: do not edit the file, delete it, or put an old copy back.
"""

# A reservation is the one caller of the ledger's methods that advance and settle a run:
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import sqlite3
import sys
import tempfile
import threading
import uuid
import weakref
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

from sottovoce.privacy import errors, run_lock
from sottovoce.privacy.accounting import epsilon, gaussian_epsilon, gaussian_mu, gaussian_mu_for, rounded_down
from sottovoce.privacy.budget import Budget, Neighbours
from sottovoce.privacy.events import Event, first_steps

Grant = Literal["single", "unsubsampled"]

_APPLICATION = 0x53564C47  # "SVLG" marks the file as a Sottovoce ledger
_FORMAT = 1
_REFUSE = "BEGIN SELECT RAISE(ABORT, 'entries stay as they are; a mark only grows, until its run is settled'); END;"
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_FORMAT};
CREATE TABLE entries (number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, kind TEXT NOT NULL
    CHECK (kind IN ('open', 'reserve', 'settle')), subject TEXT NOT NULL, payload TEXT NOT NULL, UNIQUE(kind, subject));
CREATE TABLE marks (run_id TEXT PRIMARY KEY NOT NULL, mark INTEGER NOT NULL);
CREATE TRIGGER entries_delete BEFORE DELETE ON entries {_REFUSE}
CREATE TRIGGER entries_update BEFORE UPDATE ON entries {_REFUSE}
CREATE TRIGGER marks_delete BEFORE DELETE ON marks {_REFUSE}
CREATE TRIGGER marks_update BEFORE UPDATE ON marks WHEN NEW.mark < OLD.mark OR NEW.run_id <> OLD.run_id
    OR EXISTS (SELECT 1 FROM entries WHERE kind = 'settle' AND subject = OLD.run_id) {_REFUSE}
"""
_TABLES = "SELECT name, sql FROM sqlite_master ORDER BY name"
_TERMS = "epsilon {epsilon:g}, delta {delta:g}, {neighbours}, per {unit}, grant {grant}"


@dataclass(frozen=True, kw_only=True)
class RunRecord(Budget):
    """A run's own budget, which is never summed with those of others, and what the ledger knows of the run.

    All of it is public.

    Attributes:
        plan_epsilon: of the whole plan, at the delta of a data set with grant "single"; None elsewhere.
        mu: what the filter of grant "unsubsampled" counts for the run, reserved or charged; 0 elsewhere.
        mark: steps below it may have been released.
        state: ``"live"``: its process holds its lock; ``"dead"``: it does not, and the run waits to be settled.
        steps_charged: None until the run is settled.
    """

    run_id: str
    dataset: str | None
    events: tuple[Event, ...]
    steps_planned: int
    plan_epsilon: float | None
    mu: float
    mark: int
    started: str
    state: Literal["live", "dead", "settled"] = "live"
    steps_charged: int | None = None
    ended: str | None = None


@dataclass(eq=False, repr=False)
class Reservation:
    """A live claim of one run on its whole plan. Nothing may be released that it does not cover.

    The owner settles it. If it is dropped, or its process dies, the run is found dead and charged up to its mark.
    A forked child has no part in it.

    Attributes:
        steps: how many were reserved.
        mark: steps below it may be released.
    """

    run_id: str
    steps: int
    _ledger: Ledger
    _lock_file: Path | None
    _lock: int | None
    mark: int = 0
    _state: Literal["live", "lost", "settled"] = "live"
    _owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        _not_for_children.add(self)

    def covers(self, step: int) -> bool:
        """Whether this step may be released now. Reads no file."""
        return self._state == "live" and 0 <= step < self.mark and os.getpid() == self._owner

    def lease(self, up_to: int) -> None:
        """Allow the steps below ``up_to``, durably: when this returns, a power failure does not undo it.

        Raises:
            PlanViolation: beyond the reserved number of steps.
            LedgerConflict: the file has vanished or was replaced, the run was settled, its lock is lost, or this
                process is not the one that reserved. Then the run can release nothing more.
        """
        _require_process(self._owner)
        if up_to > self.steps:
            raise errors.PlanViolation(f"a lease up to step {up_to}, but the run reserved {self.steps} steps.")
        if self._state != "live":
            raise errors.LedgerConflict(f"run {self.run_id} is {self._state}; it can release nothing more.")
        if up_to > self.mark:
            self._state = "lost"  # unless all goes well
            if self._lock_file and run_lock.is_free(self._lock_file):
                raise errors.LedgerConflict(f"the lock file of run {self.run_id} is gone; start a new run.")
            self._ledger._advance(self.run_id, self.mark, up_to)
            self._state, self.mark = "live", up_to

    def settle(self, steps_run: int) -> None:
        """Charge ``steps_run`` steps, for good, and return the rest of the reservation. Idempotent."""
        _require_process(self._owner)
        if self._state == "settled":
            return
        if not 0 <= steps_run <= self.mark:
            raise errors.PlanViolation(f"{steps_run} steps to be charged, but {self.mark} were leased.")
        self._state = "lost"
        try:
            self._ledger._charge(self.run_id, steps_run)
            self._state = "settled"
        finally:  # if it could not be charged, it is now found dead, and charged up to its mark
            self._abandon()
            _remove(self._lock_file)

    def _abandon(self) -> None:
        """Close the lock without unlocking it: a forked child must neither hold nor free its parent's."""
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = _abandon


class Ledger:
    """The record of what runs spent: a file that all processes of a user share, or one in memory.

    Made by `Ledger.open` or `Ledger.in_memory`. Threads may share it; a forked child has to open its own.
    """

    def __init__(self, connection: Any, path: Path | None = None) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise errors.ConfigurationError(f"Ledger({connection!r}): use Ledger.open(path), or Ledger.in_memory().")
        self.path, self._owner, self._mutex = path, os.getpid(), threading.RLock()
        self._connection = connection
        connection.row_factory = sqlite3.Row
        # FULL and (on macOS, where fsync stops at the drive's cache) fullfsync: a commit survives a power failure.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "fullfsync=ON"):
            connection.execute(f"PRAGMA {pragma}")
        self._files, self._nested = self._identity(), False
        _not_for_children.add(self)

    @classmethod
    def in_memory(cls) -> Ledger:
        """A ledger that ends with the process, for runs that are not tracked across runs."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(_SCHEMA)
        return cls(connection, None)

    @classmethod
    def open(cls, path: Path | str, *, create: bool = True) -> Ledger:
        """The ledger at ``path``, made with permissions 0600 if there is none.

        Raises:
            LedgerCorrupt: the file is damaged, not a ledger, or of another format; it was not touched.
            LedgerConflict: there is none, and ``create`` is false.
            ConfigurationError: the place cannot be used.
        """
        place = Path(path).expanduser().resolve()
        try:
            lone_log = Path(f"{place}-wal").exists()  # SQLite would replay it into a new ledger
            if not place.exists():
                if lone_log or not create:
                    raise errors.LedgerConflict(f"no ledger at {place}{', only its log; put it back' * lone_log}.")
                _make(place)
            _verify(place)
            return cls(_connect(place, "mode=rw"), place)
        except (OSError, sqlite3.Error) as error:
            raise errors.ConfigurationError(f"no ledger at {place} (SOTTOVOCE_LEDGER sets it): {error}.") from error

    def close(self) -> None:
        """Close the file. Runs that were not settled cannot go on. Does nothing in a forked child."""
        if os.getpid() == self._owner:
            self._connection.close()

    def open_dataset(self, name: str, budget: Budget, grant: Grant) -> None:
        """Fix the budget of a data set, for good. Idempotent.

        Raises:
            LedgerConflict: it has been opened on other terms.
        """
        if grant not in get_args(Grant):
            raise errors.ConfigurationError(f"grant={grant!r}: choose one of {', '.join(get_args(Grant))}.")
        asked = {**asdict(budget), "grant": grant}
        with self._transaction():
            terms = self._terms(name, budget, grant)
        if asked != {key: terms[key] for key in asked}:
            was, asks = f"data set {name!r} was opened for good with {_TERMS.format(**terms)}", _TERMS.format(**asked)
            raise errors.LedgerConflict(f"{was}; asked for: {asks}. Give the same, or give other records a new name.")

    def reserve(self, *, budget: Budget, events: Sequence[Event], dataset: str | None = None) -> Reservation:
        """Reserve a run's whole plan, durably, or refuse it. No data has been looked at when this is called.

        Args:
            budget: the run's own promise. Under a new name it becomes the data set's, with grant "single".
            events: the plan.
            dataset: the owner's name for the data; None: the run is accounted alone.

        Raises:
            BudgetExhausted: the plan costs more than the data set has left.
            LedgerConflict: the data set's terms do not allow the run.
        """
        run_id, steps = uuid.uuid4().hex, sum(event.steps for event in events)
        if dataset is not None:
            # May take a second, and is cached: other runs' leases need not wait for it during the transaction.
            epsilon(events, budget.delta, budget.neighbours)
        with self._transaction():
            costs = {"plan_epsilon": None, "mu": 0.0} if dataset is None else self._admit(dataset, budget, events)
            plan = {"steps_planned": steps, "events": [asdict(event) for event in events], **costs}
            self._append("reserve", run_id, {"dataset": dataset, **asdict(budget), **plan})
            self._connection.execute("INSERT INTO marks VALUES (?, 0)", (run_id,))
            # Locked before the run is committed, so that nobody ever sees it without its lock.
            file = self._lock_file(run_id)
            return Reservation(run_id, steps, self, file, run_lock.take(file) if file else None)

    def settle_dead(self) -> list[RunRecord]:
        """Charge every run whose process is gone, up to its mark. Safe beside live runs and other settlers."""
        charged = [run.run_id for run in self.runs() if run.state == "dead" and self._charge(run.run_id, None)]
        return [run for run in self.runs() if run.run_id in charged]

    def runs(self, dataset: str | None = None) -> list[RunRecord]:
        """All runs, or those on one data set, oldest first."""
        with self._transaction():
            marks = {row["run_id"]: row["mark"] for row in self._connection.execute("SELECT * FROM marks").fetchall()}
            entries = self.entries()
        runs: dict[str, RunRecord] = {}
        for entry in entries:
            run_id, time, fields = entry["subject"], entry["time"], entry["payload"]
            if entry["kind"] == "reserve":
                fields["events"] = tuple(Event(**event) for event in fields["events"])
                runs[run_id] = RunRecord(run_id=run_id, started=time, mark=marks[run_id], **fields)
            elif entry["kind"] == "settle":
                runs[run_id] = replace(runs[run_id], state="settled", ended=time, **fields)
        for run_id, run in runs.items():
            file = self._lock_file(run_id)
            if run.state == "live" and file and run_lock.is_free(file):
                runs[run_id] = replace(run, state="dead")
        return [run for run in runs.values() if dataset in (None, run.dataset)]

    def entries(self) -> list[dict[str, Any]]:
        """The journal, oldest first: number, time, kind, subject (a data set's name or a run's id), payload."""
        with self._transaction():
            rows = self._connection.execute("SELECT * FROM entries ORDER BY number").fetchall()
        return [{**dict(row), "payload": json.loads(row["payload"])} for row in rows]

    def _terms(self, name: str, budget: Budget, grant: Grant) -> dict[str, Any]:
        """The terms of a data set: those it was opened with, or else these, with which it is then opened."""
        for entry in self.entries():
            if (entry["kind"], entry["subject"]) == ("open", name):
                return entry["payload"]
        if not (name.strip() and name.isprintable() and len(name) <= 200):
            raise errors.ConfigurationError(f"dataset={name!r}: a name has 1 to 200 printable characters.")
        limit = gaussian_mu_for(budget.epsilon, budget.delta) if grant == "unsubsampled" else None
        return self._append("open", name, {**asdict(budget), "grant": grant, "mu_limit": limit})

    def _admit(self, name: str, budget: Budget, plan: Sequence[Event]) -> dict[str, float | None]:
        """What a run counts in the filter, and its plan's epsilon, or a refusal."""
        terms = self._terms(name, budget, "single")
        what, others = f"data set {name!r}", self.runs(name)
        relation = "neighbours {neighbours!r} per {unit}".format_map
        if (asked := relation(asdict(budget))) != (owned := relation(terms)):
            raise errors.LedgerConflict(f"{what} has {owned} in all its runs, this one {asked}: change its budget.")
        subsampled = any(event.sampling == "poisson" and event.rate < 1 for event in plan)
        settle = "`sottovoce ledger settle` returns what an interrupted run did not use."
        if terms["grant"] == "single":
            # Whoever has, or may yet have, released something.
            if holder := next((run for run in others if run.ended is None or run.steps_charged), None):
                why = "subsampled runs cannot share a data set yet" if subsampled else "it was granted to one run"
                by = f"{holder.run_id} ({holder.state}, started {holder.started}, {holder.mark} steps)"
                advice = settle if holder.state == "dead" and not holder.mark else "Use another data set."
                shared = "`sottovoce ledger open NAME --grant unsubsampled --epsilon E --delta D`, before the first,"
                advice += (not subsampled) * f" {shared} lets full-batch and single-pass runs share a budget."
                raise errors.BudgetExhausted(f"the budget of {what} is taken by run {by}, and {why}. {advice}")
            cost, limit = epsilon(plan, terms["delta"], terms["neighbours"]), terms["epsilon"]
            if not cost <= limit:
                costs = f"the run costs epsilon = {cost:.6g} at delta = {terms['delta']:g}"
                raise errors.BudgetExhausted(f"{costs}; {what} has {limit:g}. Give the run a budget within it.")
            return {"plan_epsilon": cost, "mu": 0.0}
        if subsampled:
            why = "is shared by unsubsampled runs, whose exact filter cannot count a Poisson-subsampled one"
            raise errors.LedgerConflict(f"{what} {why}. Use full-batch or single-pass sampling.")
        mu, limit = _mu(plan, terms["neighbours"]), terms["mu_limit"]
        left = Fraction(limit) ** 2 - _squares(others)
        if mu > limit or Fraction(mu) ** 2 > left:
            costs = f"the run needs mu = {mu:.6g}, and {what} has {math.sqrt(left):.6g} of {limit:.6g} left"
            fits = f"a run of epsilon {rounded_down(gaussian_epsilon(math.sqrt(left), terms['delta'])):g}"
            advice = settle if any(run.state == "dead" for run in others) else "Give the run a smaller epsilon."
            raise errors.BudgetExhausted(f"{costs}: {fits} at delta {terms['delta']:g}. {advice}")
        return {"plan_epsilon": None, "mu": mu}

    def _advance(self, run_id: str, mark: int, up_to: int) -> None:
        with self._transaction():
            row = (up_to, run_id, mark)
            if self._connection.execute("UPDATE marks SET mark=? WHERE run_id=? AND mark=?", row).rowcount != 1:
                raise errors.LedgerConflict(f"the ledger at {self.path} does not know run {run_id} at step {mark}.")
        self._require_file()  # the commit went into the file that stands at the path

    def _charge(self, run_id: str, steps: int | None) -> bool:
        """Settle a run with ``steps`` charged (None: up to its mark); False if somebody has settled it."""
        with self._transaction():
            run = next(run for run in self.runs() if run.run_id == run_id)
            if run.state == "settled":
                return False
            charged = run.mark if steps is None else steps
            mu = min(run.mu, _mu(first_steps(run.events, charged), run.neighbours)) if run.mu else 0.0
            self._append("settle", run_id, {"steps_charged": charged, "mu": mu})
        if steps is None:
            _remove(self._lock_file(run_id))
        return True

    def _append(self, kind: str, subject: str, payload: dict[str, Any]) -> dict[str, Any]:
        row = (datetime.now(UTC).isoformat(timespec="milliseconds"), kind, subject, json.dumps(payload))
        self._connection.execute("INSERT INTO entries (time, kind, subject, payload) VALUES (?, ?, ?, ?)", row)
        return payload

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        """All or nothing, alone among all processes and threads; durable at the end if something was written."""
        _require_process(self._owner)
        with self._mutex:
            nested = self._nested
            try:
                if self._nested:
                    yield
                    return
                self._require_file()
                with self._connection:  # commits, or rolls back, also when an interrupt comes between two lines
                    self._connection.execute("BEGIN IMMEDIATE")
                    self._nested = True
                    yield
            except sqlite3.Error as error:
                kind = errors.LedgerCorrupt if type(error) is sqlite3.DatabaseError else errors.LedgerConflict
                raise kind(f"the ledger at {self.path} refuses: {error}. Nothing was recorded.") from error
            finally:
                self._nested = nested

    def _lock_file(self, run_id: str) -> Path | None:
        return self.path.with_name(f"{self.path.name}.runs") / f"{run_id}.lock" if self.path else None

    def _identity(self) -> list[tuple[int, int]]:
        """Which files stand at the ledger's path and at that of its log."""
        files = [file.stat() for file in (self.path, Path(f"{self.path}-wal"))] if self.path else []
        return [(file.st_dev, file.st_ino) for file in files]

    def _require_file(self) -> None:
        with contextlib.suppress(OSError):
            if self._identity() == self._files:
                return
        raise errors.LedgerConflict(f"the ledger at {self.path} was deleted or replaced while in use; put it back.")

    def _abandon(self) -> None:
        """Never close the connection, not even at exit: SQLite forbids it in a forked child."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))


_not_for_children: weakref.WeakSet[Ledger | Reservation] = weakref.WeakSet()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=lambda: [inherited._abandon() for inherited in list(_not_for_children)])


def _squares(runs: Sequence[RunRecord]) -> Fraction:
    return sum((Fraction(run.mu) ** 2 for run in runs), Fraction(0))


def _mu(events: Sequence[Event], neighbours: Neighbours) -> float:
    """The Gaussian-DP parameter: replacing a record moves an answer twice as far as zeroing it."""
    return gaussian_mu(events) * (2 if neighbours == "replace-one" else 1)


def _remove(file: Path | None) -> None:
    if file:
        with contextlib.suppress(OSError):  # gone already, or, on Windows, open in a process that looks at it
            file.unlink()


def _require_process(owner: int) -> None:
    if os.getpid() != owner:
        raise errors.LedgerConflict("a forked process has no part in its parent's runs; open the ledger anew.")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, timeout=30.0, isolation_level=None, check_same_thread=False)


def _make(path: Path) -> None:
    """A new ledger: made whole beside its place, then put there unless somebody else was faster.

    So a file at the path is always a complete ledger, and an empty one is a damaged one.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # has permissions 0600
    os.close(descriptor)
    try:
        with contextlib.closing(_connect(Path(draft), "mode=rw")) as connection:
            connection.executescript(f"PRAGMA journal_mode=WAL; {_SCHEMA}")
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        Path(draft).unlink()


def _verify(path: Path) -> None:
    """Refuse a file that is not a sound ledger of this format, without writing to it or making files beside it.

    Everything is read through SQLite: closing another handle on the file would drop the locks that SQLite holds
    for this process (POSIX), and then another process could delete the log of a ledger that is in use.
    """
    # Thrice, as another process may open the ledger between our look at the log and our reading.
    if problem := _problem(path) and _problem(path) and _problem(path):
        raise errors.LedgerCorrupt(f"{path}: {problem}. It was left untouched.")


def _problem(path: Path) -> str | None:
    # Immutable: read without log and locks, and make neither. Right where there is no log.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    try:
        with contextlib.closing(_connect(path, mode)) as file, contextlib.closing(sqlite3.connect(":memory:")) as model:
            model.executescript(_SCHEMA)
            pragmas = ("application_id", "user_version", "quick_check")
            (application,), (version,), (health,) = (file.execute(f"PRAGMA {each}").fetchone() for each in pragmas)
            if application != _APPLICATION:
                return "this is not a Sottovoce ledger"
            if version != _FORMAT:
                return f"the ledger has format {version}; this release reads format {_FORMAT}"
            same = file.execute(_TABLES).fetchall() == model.execute(_TABLES).fetchall()
            return None if same and health == "ok" else f"the ledger is damaged ({health}) or its tables were changed"
    except sqlite3.DatabaseError as error:
        return f"this is not a sound ledger ({error})"
