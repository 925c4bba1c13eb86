"""The ledger's promises, in one process. Kills, races and forks are in tests/faults."""

import gc
import json
import math
import os
import shutil
import sqlite3
import stat
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sottovoce.balances import balances
from sottovoce.places import ledger_path
from sottovoce.privacy.accounting import calibrate, epsilon, gaussian_mu, gaussian_mu_for
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import (
    BudgetExhausted,
    ConfigurationError,
    LedgerConflict,
    LedgerCorrupt,
    PlanViolation,
)
from sottovoce.privacy.events import Event, first_steps
from sottovoce.privacy.ledger import Ledger

BUDGET = Budget(epsilon=1.0, delta=1e-5)
MU = gaussian_mu_for(1.0, 1e-5)


def full_batch(noise=100.0, steps=100):
    return [Event(sampling="full-batch", noise_multiplier=noise, steps=steps)]


def poisson(noise=2.0, steps=50, rate=0.01):
    return [Event(sampling="poisson", noise_multiplier=noise, steps=steps, rate=rate)]


def mu_of(mu, steps=1):
    """Full-batch events of about this mu, never above it."""
    noise = math.sqrt(steps) / mu
    while gaussian_mu(full_batch(noise, steps)) > mu:
        noise = math.nextafter(noise, math.inf)
    return full_batch(noise, steps)


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "ledger.db"


@pytest.fixture
def ledger(path):
    ledger = Ledger.open(path)
    yield ledger
    ledger.close()


@pytest.fixture(params=["file", "memory"])
def any_ledger(request, path):
    ledger = Ledger.open(path) if request.param == "file" else Ledger.in_memory()
    yield ledger
    ledger.close()


# ---- one run


def test_a_run_from_reservation_to_settlement(any_ledger):
    run = any_ledger.reserve(budget=BUDGET, events=poisson(steps=50))
    assert run.mark == 0
    assert not run.covers(0)
    run.lease(10)
    assert run.mark == 10
    assert run.covers(0) and run.covers(9) and not run.covers(10) and not run.covers(-1)
    run.lease(50)
    (record,) = any_ledger.runs()
    assert (record.state, record.mark, record.steps_planned, record.steps_charged) == ("live", 50, 50, None)
    run.settle(42)
    assert not run.covers(0)
    (record,) = any_ledger.runs()
    assert record.run_id == run.run_id
    assert (record.state, record.mark, record.steps_charged) == ("settled", 50, 42)
    assert (record.dataset, record.epsilon, record.delta, record.neighbours) == (None, 1.0, 1e-5, "zero-out")
    assert record.events == tuple(poisson(steps=50))
    assert record.started <= record.ended and record.started.endswith("+00:00")


def test_a_lease_only_grows_and_stays_within_the_plan(any_ledger):
    run = any_ledger.reserve(budget=BUDGET, events=[*full_batch(steps=3), *poisson(steps=4)])
    run.lease(5)
    run.lease(2)
    assert run.mark == 5
    with pytest.raises(PlanViolation, match="reserved 7 steps"):
        run.lease(8)
    assert run.covers(4)
    run.lease(7)
    with pytest.raises(PlanViolation):
        run.settle(8)
    with pytest.raises(PlanViolation):
        run.settle(-1)


def test_settling_is_idempotent_and_final(any_ledger):
    run = any_ledger.reserve(budget=BUDGET, events=full_batch())
    run.lease(10)
    run.settle(7)
    run.settle(3)
    assert any_ledger.runs()[0].steps_charged == 7
    assert [entry["kind"] for entry in any_ledger.entries()] == ["reserve", "settle"]
    with pytest.raises(LedgerConflict, match="settled"):
        run.lease(20)
    with pytest.raises(LedgerConflict, match="settled"):
        run.lease(5)


def test_a_lease_is_seen_by_others_before_it_returns(ledger, path):
    run = ledger.reserve(budget=BUDGET, events=full_batch())
    with closing(Ledger.open(path)) as other:
        for mark in (1, 2, 57):
            run.lease(mark)
            assert other.runs()[0].mark == mark


def test_the_journal_has_every_step_of_the_account(ledger):
    ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    run = ledger.reserve(budget=BUDGET, events=full_batch(), dataset="clinic")
    run.lease(4)
    run.settle(4)
    opened, reserved, settled = ledger.entries()
    assert [e["kind"] for e in (opened, reserved, settled)] == ["open", "reserve", "settle"]
    assert (opened["subject"], reserved["subject"], settled["subject"]) == ("clinic", run.run_id, run.run_id)
    assert opened["payload"]["mu_limit"] == MU
    assert reserved["payload"]["events"] == [asdict(event) for event in full_batch()]
    assert reserved["payload"]["mu"] == gaussian_mu(full_batch())
    assert settled["payload"] == {"steps_charged": 4, "mu": gaussian_mu(full_batch(steps=4))}
    json.dumps(ledger.entries())


def test_run_ids_differ(ledger):
    runs = [ledger.reserve(budget=BUDGET, events=full_batch()) for _ in range(5)]
    assert len({run.run_id for run in runs}) == 5


def test_an_infinite_multiplier_survives_the_journal(ledger):
    run = ledger.reserve(budget=BUDGET, events=full_batch(noise=math.inf, steps=2), dataset="x")
    assert ledger.runs()[0].events[0].noise_multiplier == math.inf
    run.lease(2)
    run.settle(2)


# ---- grant "single"


def test_a_new_name_is_opened_with_the_runs_own_budget(any_ledger):
    noise = calibrate(lambda z: poisson(noise=z), BUDGET)
    run = any_ledger.reserve(budget=BUDGET, events=poisson(noise), dataset="clinic-2026")
    (dataset,) = balances(any_ledger)
    assert (dataset.name, dataset.grant, dataset.unit) == ("clinic-2026", "single", "record")
    assert (dataset.epsilon, dataset.delta, dataset.neighbours) == (1.0, 1e-5, "zero-out")
    assert (dataset.spent, dataset.remaining, dataset.mu_limit) == (1, 0, None)
    run.lease(1)
    run.settle(1)
    assert balances(any_ledger)[0].remaining == 0
    assert any_ledger.runs("clinic-2026")[0].plan_epsilon == epsilon(poisson(noise), 1e-5)
    assert any_ledger.runs("another") == []


def test_a_single_run_may_not_cost_more_than_the_data_set_has(any_ledger):
    noise = calibrate(lambda z: poisson(noise=z), BUDGET)
    with pytest.raises(BudgetExhausted, match=r"epsilon = 1\.[0-9]+ at delta = 1e-05"):
        any_ledger.reserve(budget=BUDGET, events=poisson(noise * 0.98), dataset="clinic")
    assert balances(any_ledger) == [] and any_ledger.runs() == [], "a refused run opens nothing"
    any_ledger.open_dataset("clinic", Budget(epsilon=0.5, delta=1e-5), "single")
    with pytest.raises(BudgetExhausted, match=r"has 0\.5"):
        any_ledger.reserve(budget=BUDGET, events=poisson(noise), dataset="clinic")


def test_only_events_count_against_the_data_set_not_the_runs_own_delta(any_ledger):
    any_ledger.open_dataset("clinic", BUDGET, "single")
    own = Budget(epsilon=1.0, delta=1e-3)
    noise = calibrate(lambda z: poisson(noise=z), own)  # 1 at delta 1e-3 is more than 1 at 1e-5
    with pytest.raises(BudgetExhausted):
        any_ledger.reserve(budget=own, events=poisson(noise), dataset="clinic")
    noise = calibrate(lambda z: poisson(noise=z), BUDGET)
    any_ledger.reserve(budget=own, events=poisson(noise), dataset="clinic")


@pytest.mark.parametrize("settled", [False, True])
def test_a_second_run_on_a_single_grant_is_refused_with_the_reason(any_ledger, settled):
    run = any_ledger.reserve(budget=BUDGET, events=full_batch(noise=1e3), dataset="clinic")
    run.lease(5)
    if settled:
        run.settle(5)
    with pytest.raises(BudgetExhausted, match="granted to one run") as refusal:
        any_ledger.reserve(budget=BUDGET, events=full_batch(noise=1e6), dataset="clinic")
    assert run.run_id in str(refusal.value)
    with pytest.raises(BudgetExhausted, match="subsampled runs cannot share a data set yet"):
        any_ledger.reserve(budget=BUDGET, events=poisson(noise=1e6), dataset="clinic")
    any_ledger.reserve(budget=BUDGET, events=full_batch(noise=1e6), dataset="another")


def test_a_run_that_released_nothing_gives_the_grant_back(ledger):
    ledger.reserve(budget=BUDGET, events=full_batch(noise=1e3), dataset="a").settle(0)
    assert balances(ledger)[0].remaining == 1
    dropped = ledger.reserve(budget=BUDGET, events=full_batch(noise=1e3), dataset="a")
    del dropped
    gc.collect()
    with pytest.raises(BudgetExhausted, match="ledger settle"):
        ledger.reserve(budget=BUDGET, events=full_batch(noise=1e3), dataset="a")
    assert [run.state for run in ledger.settle_dead()] == ["settled"]
    ledger.reserve(budget=BUDGET, events=full_batch(noise=1e3), dataset="a").lease(1)
    gc.collect()
    assert [run.steps_charged for run in ledger.settle_dead()] == [1]
    with pytest.raises(BudgetExhausted):
        ledger.reserve(budget=BUDGET, events=full_batch(noise=1e3), dataset="a")


# ---- grant "unsubsampled"


def test_unsubsampled_runs_share_to_the_last_bit_and_no_further(any_ledger):
    any_ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    run = any_ledger.reserve(budget=BUDGET, events=mu_of(MU * 0.6, steps=9), dataset="clinic")
    run.lease(9)
    run.settle(9)
    any_ledger.reserve(budget=BUDGET, events=mu_of(MU * 0.8 * (1 - 1e-12)), dataset="clinic")
    (dataset,) = balances(any_ledger)
    assert 1 - 1e-9 < dataset.spent <= 1
    assert dataset.mu_limit == MU and dataset.mu_spent == pytest.approx(MU)
    with pytest.raises(BudgetExhausted, match="mu"):
        any_ledger.reserve(budget=BUDGET, events=mu_of(MU * 1e-5), dataset="clinic")


def test_one_run_may_take_the_whole_budget_that_it_was_calibrated_to(any_ledger):
    def one_pass(noise):
        return [Event(sampling="single-pass", noise_multiplier=noise, steps=9)]

    for relation in ("zero-out", "add-remove", "replace-one"):
        for events_of in (lambda z: full_batch(z, 37), one_pass):
            name = f"{relation}, {events_of(1.0)[0].sampling}"
            budget = Budget(epsilon=0.7, delta=1e-6, neighbours=relation)
            any_ledger.open_dataset(name, budget, "unsubsampled")
            noise = calibrate(events_of, budget)
            with pytest.raises(BudgetExhausted):
                any_ledger.reserve(budget=budget, events=events_of(noise * 0.999), dataset=name)
            any_ledger.reserve(budget=budget, events=events_of(noise), dataset=name)
            assert any_ledger.runs(name)[0].mu == pytest.approx(gaussian_mu_for(0.7, 1e-6))


def test_a_float_more_than_the_limit_is_refused(any_ledger):
    any_ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    noise = 1 / MU
    while gaussian_mu(full_batch(noise, 1)) <= MU:
        noise = math.nextafter(noise, 0)
    with pytest.raises(BudgetExhausted):
        any_ledger.reserve(budget=BUDGET, events=full_batch(noise, 1), dataset="clinic")
    any_ledger.reserve(budget=BUDGET, events=mu_of(0.6 * MU), dataset="clinic")
    left = Fraction(MU) ** 2 - Fraction(any_ledger.runs()[0].mu) ** 2
    noise = 1 / math.sqrt(left) * (1 + 1e-15)
    while Fraction(gaussian_mu(full_batch(noise, 1))) ** 2 <= left:
        noise = math.nextafter(noise, 0)
    with pytest.raises(BudgetExhausted):
        any_ledger.reserve(budget=BUDGET, events=full_batch(noise, 1), dataset="clinic")
    while Fraction(gaussian_mu(full_batch(noise, 1))) ** 2 > left:
        noise = math.nextafter(noise, math.inf)
    any_ledger.reserve(budget=BUDGET, events=full_batch(noise, 1), dataset="clinic")
    assert sum(Fraction(run.mu) ** 2 for run in any_ledger.runs()) <= Fraction(MU) ** 2


def test_noise_too_small_for_floats_is_refused_not_a_crash(any_ledger):
    any_ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    with pytest.raises(BudgetExhausted):
        any_ledger.reserve(budget=BUDGET, events=full_batch(noise=1e-310, steps=1), dataset="clinic")


def test_steps_that_were_not_run_are_refunded(any_ledger):
    any_ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    plan = mu_of(MU, steps=100)
    for steps_run in (25, 75):
        run = any_ledger.reserve(
            budget=BUDGET, events=plan if steps_run == 25 else first_steps(plan, 75), dataset="clinic"
        )
        run.lease(steps_run)
        run.settle(steps_run)
        assert any_ledger.runs()[-1].mu == gaussian_mu(first_steps(plan, steps_run))
    assert balances(any_ledger)[0].remaining < 1e-9


def test_a_single_pass_costs_its_one_gaussian_once_it_has_begun(any_ledger):
    any_ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    plan = [Event(sampling="single-pass", noise_multiplier=10.0, steps=40)]
    for steps, mu in ((0, 0.0), (1, 0.1), (40, 0.1)):
        run = any_ledger.reserve(budget=BUDGET, events=plan, dataset="clinic")
        run.lease(steps)
        run.settle(steps)
        assert any_ledger.runs()[-1].mu == mu


def test_replacing_a_record_counts_twice(any_ledger):
    budget = Budget(epsilon=1.0, delta=1e-5, neighbours="replace-one")
    any_ledger.open_dataset("clinic", budget, "unsubsampled")
    with pytest.raises(BudgetExhausted):
        any_ledger.reserve(budget=budget, events=mu_of(MU * 0.51), dataset="clinic")
    run = any_ledger.reserve(budget=budget, events=mu_of(MU * 0.4, steps=4), dataset="clinic")
    assert any_ledger.runs()[0].mu == pytest.approx(0.8 * MU)
    run.lease(1)
    run.settle(1)
    assert any_ledger.runs()[0].mu == pytest.approx(0.4 * MU)


def test_subsampled_runs_are_refused_where_unsubsampled_ones_share(any_ledger):
    any_ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    with pytest.raises(LedgerConflict, match="Poisson-subsampled"):
        any_ledger.reserve(budget=BUDGET, events=[*full_batch(1e3), *poisson(1e3)], dataset="clinic")
    any_ledger.reserve(budget=BUDGET, events=poisson(1e3, rate=1.0), dataset="clinic")


# ---- terms


def test_the_terms_of_a_data_set_are_for_good(any_ledger):
    any_ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    any_ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    assert len(any_ledger.entries()) == 1
    others = [
        (Budget(epsilon=2.0, delta=1e-5), "unsubsampled"),
        (Budget(epsilon=1.0, delta=1e-6), "unsubsampled"),
        (Budget(epsilon=1.0, delta=1e-5, neighbours="add-remove"), "unsubsampled"),
        (BUDGET, "single"),
    ]
    for budget, grant in others:
        with pytest.raises(LedgerConflict, match="for good"):
            any_ledger.open_dataset("clinic", budget, grant)
    assert len(any_ledger.entries()) == 1


@pytest.mark.parametrize("grant", ["single", "unsubsampled"])
def test_one_relation_for_all_runs_on_a_data_set(any_ledger, grant):
    any_ledger.open_dataset("clinic", BUDGET, grant)
    other = Budget(epsilon=1.0, delta=1e-5, neighbours="replace-one")
    with pytest.raises(LedgerConflict, match=r"zero-out.*replace-one"):
        any_ledger.reserve(budget=other, events=full_batch(1e3), dataset="clinic")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00b", "x" * 201])
def test_names_that_nobody_could_read_are_refused(any_ledger, name):
    with pytest.raises(ConfigurationError, match="printable"):
        any_ledger.open_dataset(name, BUDGET, "single")
    with pytest.raises(ConfigurationError, match="printable"):
        any_ledger.reserve(budget=BUDGET, events=full_batch(), dataset=name)


def test_names_may_hold_any_printable_text(ledger):
    name = "Klinik Süd'; DROP TABLE entries; --" + "x" * 160
    ledger.open_dataset(name, BUDGET, "single")
    assert [dataset.name for dataset in balances(ledger)] == [name]


def test_an_unknown_grant_is_refused(any_ledger):
    with pytest.raises(ConfigurationError, match="unsubsampled"):
        any_ledger.open_dataset("clinic", BUDGET, "renyi")


# ---- the dead


def test_a_dropped_reservation_is_found_dead_and_charged_up_to_its_mark(ledger, path):
    dead = ledger.reserve(budget=BUDGET, events=full_batch())
    live = ledger.reserve(budget=BUDGET, events=full_batch())
    dead.lease(30)
    live.lease(10)
    dead_id = dead.run_id
    with closing(Ledger.open(path)) as other:
        assert other.settle_dead() == [], "live runs of this process are not dead"
        del dead
        gc.collect()
        assert [run.state for run in other.runs()] == ["dead", "live"]
        assert [(run.run_id, run.steps_charged) for run in other.settle_dead()] == [(dead_id, 30)]
        assert other.settle_dead() == []
    assert [lock.stem for lock in (path.parent / "ledger.db.runs").iterdir()] == [live.run_id]
    live.settle(10)
    assert list((path.parent / "ledger.db.runs").iterdir()) == []


def test_a_run_that_lost_its_lock_file_stops_and_can_still_be_settled(ledger, path):
    run = ledger.reserve(budget=BUDGET, events=full_batch())
    run.lease(5)
    next((path.parent / "ledger.db.runs").iterdir()).unlink()
    with pytest.raises(LedgerConflict, match="lock"):
        run.lease(6)
    assert not run.covers(0)
    run.settle(4)
    assert ledger.runs()[0].steps_charged == 4


def test_a_run_that_others_settled_cannot_lease_and_is_not_charged_twice(ledger, path):
    run = ledger.reserve(budget=BUDGET, events=full_batch())
    run.lease(5)
    lock = next((path.parent / "ledger.db.runs").iterdir())
    lock.rename(lock.with_suffix(".aside"))
    assert [record.steps_charged for record in ledger.settle_dead()] == [5]
    lock.with_suffix(".aside").rename(lock)
    with pytest.raises(LedgerConflict, match="until its run is settled"):
        run.lease(6)
    run.settle(3)
    assert [record.steps_charged for record in ledger.runs()] == [5]


# ---- the file


def test_the_file_is_the_users_alone(tmp_path):
    old = os.umask(0)
    try:
        ledger = Ledger.open(tmp_path / "new" / "ledger.db")
        run = ledger.reserve(budget=BUDGET, events=full_batch())
        modes = {str(p.relative_to(tmp_path)): stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    finally:
        os.umask(old)
    lock = f"new/ledger.db.runs/{run.run_id}.lock"
    names = {"new", "new/ledger.db", "new/ledger.db-wal", "new/ledger.db-shm", "new/ledger.db.runs", lock}
    assert set(modes) == names
    assert {name: mode for name, mode in modes.items() if mode != 0o600} == {"new": 0o700, "new/ledger.db.runs": 0o700}
    ledger.close()


def test_the_connection_is_durable(ledger):
    run = dict.fromkeys(["journal_mode", "synchronous"])
    for pragma in run:
        run[pragma] = ledger._connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    assert run == {"journal_mode": "wal", "synchronous": 2}


def test_a_ledger_is_found_again(path):
    with closing(Ledger.open(path)) as ledger:
        ledger.open_dataset("clinic", BUDGET, "unsubsampled")
        run = ledger.reserve(budget=BUDGET, events=full_batch(), dataset="clinic")
        run.lease(10)
        run.settle(10)
        before = ledger.runs(), balances(ledger), ledger.entries()
    assert list(files_of(path.parent)) == ["ledger.db"], "a closed ledger is one file"
    with closing(Ledger.open(str(path), create=False)) as ledger:
        assert (ledger.runs(), balances(ledger), ledger.entries()) == before
        assert ledger.path == path


def test_a_missing_ledger_is_made_only_if_wanted(path):
    with pytest.raises(LedgerConflict, match="no ledger"):
        Ledger.open(path, create=False)
    assert not path.parent.exists()


def test_a_log_without_its_ledger_is_not_given_to_a_new_one(path):
    with closing(Ledger.open(path)) as ledger:
        ledger.reserve(budget=BUDGET, events=full_batch()).lease(5)
        path.unlink()
        before = files_of(path.parent)
        with pytest.raises(LedgerConflict, match="only its log"):
            Ledger.open(path)
        assert files_of(path.parent) == before


def test_an_unusable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="SOTTOVOCE_LEDGER"):
        Ledger.open(tmp_path / "file" / "ledger.db")


def test_a_closed_ledger_says_so(ledger):
    run = ledger.reserve(budget=BUDGET, events=full_batch())
    ledger.close()
    with pytest.raises(LedgerConflict, match="closed"):
        ledger.runs()
    with pytest.raises(LedgerConflict, match="closed"):
        run.lease(1)


@pytest.mark.parametrize("what", ["delete", "replace", "delete log", "restore"])
def test_a_ledger_that_vanishes_stops_the_next_lease(tmp_path, what):
    path = tmp_path / "ledger.db"
    with closing(Ledger.open(path)) as ledger:
        copy = tmp_path / "copy.db"
        Ledger.open(copy).close()
        run = ledger.reserve(budget=BUDGET, events=full_batch())
        run.lease(5)
        if what == "delete":
            path.unlink()
        elif what == "replace":
            copy.rename(path)
        elif what == "delete log":
            Path(f"{path}-wal").unlink()
        else:
            path.rename(tmp_path / "aside.db")
        with pytest.raises(LedgerConflict, match="deleted or replaced"):
            run.lease(6)
        if what == "restore":
            (tmp_path / "aside.db").rename(path)
        assert run.mark == 5 and not run.covers(0), "a run that lost its ledger releases nothing more"
        if what == "restore":
            run.settle(5)
            assert ledger.runs()[0].steps_charged == 5
        else:
            with pytest.raises(LedgerConflict):
                run.settle(5)


FORBIDDEN = [
    "DELETE FROM entries",
    "UPDATE entries SET payload = '{}'",
    "DELETE FROM marks",
    "UPDATE marks SET mark = mark - 1",
    "UPDATE marks SET run_id = 'x'",
    "INSERT INTO entries (time, kind, subject, payload) SELECT time, kind, subject, payload FROM entries LIMIT 1",
    "INSERT INTO entries (time, kind, subject, payload) VALUES ('', 'other', '', '')",
]


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_sql_itself_forbids_to_change_what_is_written(ledger, path, statement):
    run = ledger.reserve(budget=BUDGET, events=full_batch())
    run.lease(5)
    before = ledger.entries(), ledger.runs()
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    assert (ledger.entries(), ledger.runs()) == before


def test_sql_itself_forbids_to_move_the_mark_of_a_settled_run(ledger, path):
    run = ledger.reserve(budget=BUDGET, events=full_batch())
    run.lease(5)
    run.settle(5)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("UPDATE marks SET mark = 9")


def damage_page(path):
    content = bytearray(path.read_bytes())
    content[4096:8192] = os.urandom(4096)
    path.write_bytes(content)


def newer_format(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")


def drop_guard(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER entries_delete")


def foreign_sqlite(path):
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")


BAD_FILES = {
    "damaged": (damage_page, "sound|damaged"),
    "truncated": (lambda path: os.truncate(path, 8192), "sound|damaged"),
    "newer": (newer_format, "format 2"),
    "unguarded": (drop_guard, "tables"),
    "foreign": (foreign_sqlite, "not a Sottovoce ledger"),
    "text": (lambda path: path.write_text("run, epsilon\n1, 2.0\n" * 1000), "not a"),
    "empty": (lambda path: path.write_bytes(b""), "not a Sottovoce ledger"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_is_no_sound_ledger_is_refused_and_left_untouched(path, kind):
    with closing(Ledger.open(path)) as ledger:
        for _ in range(20):
            ledger.reserve(budget=BUDGET, events=full_batch())
    shutil.rmtree(path.parent / "ledger.db.runs")
    spoil, message = BAD_FILES[kind]
    spoil(path)
    before = files_of(path.parent)
    for _ in range(2):
        with pytest.raises(LedgerCorrupt, match=message):
            Ledger.open(path)
    assert files_of(path.parent) == before


def test_a_folder_is_not_a_ledger(tmp_path):
    with pytest.raises(LedgerCorrupt):
        Ledger.open(tmp_path)


def test_a_ledger_that_is_damaged_in_use_says_so(ledger, path):
    for _ in range(20):
        ledger.reserve(budget=BUDGET, events=full_batch())
    ledger._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    with pytest.raises(LedgerCorrupt), closing(Ledger.open(path)):
        pass


def test_where_a_ledger_is_kept_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("SOTTOVOCE_LEDGER", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert ledger_path() == tmp_path / "sottovoce" / "ledger.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ledger_path() == tmp_path / ".local" / "share" / "sottovoce" / "ledger.db"
    monkeypatch.setattr("sys.platform", "darwin")
    assert ledger_path() == tmp_path / "Library" / "Application Support" / "sottovoce" / "ledger.db"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert ledger_path() == tmp_path / "Local" / "sottovoce" / "ledger.db"
    monkeypatch.setenv("SOTTOVOCE_LEDGER", str(tmp_path / "own.db"))
    assert ledger_path() == tmp_path / "own.db"


def test_open_takes_the_default_path(monkeypatch, tmp_path):
    monkeypatch.setenv("SOTTOVOCE_LEDGER", str(tmp_path / "own.db"))
    Ledger.open(ledger_path()).close()
    assert (tmp_path / "own.db").exists()


def test_a_path_with_signs_that_mean_something_in_an_address(tmp_path):
    path = tmp_path / "50% of ?x=1 #2" / "my ledger.db"
    with closing(Ledger.open(path)) as ledger:
        ledger.reserve(budget=BUDGET, events=full_batch()).lease(1)
    assert path.exists()


@pytest.mark.timing
def test_a_lease_is_cheap(ledger):
    run = ledger.reserve(budget=BUDGET, events=full_batch(steps=300))
    seconds = []
    for mark in range(1, 201):
        start = time.perf_counter()
        run.lease(mark)
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < 0.02
    start = time.perf_counter()
    assert all(run.covers(0) for _ in range(10_000))
    assert time.perf_counter() - start < 0.5


# ---- the filter, whatever the order of things


class UnsubsampledRuns(RuleBasedStateMachine):
    """Reserve, lease, settle, die, in any order: the account never exceeds mu^2 nor falls below what was released."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.ledger = Ledger.open(Path(self.folder) / "ledger.db")
        self.ledger.open_dataset("clinic", BUDGET, "unsubsampled")
        self.live = []
        self.released = {}  # run_id -> (plan, steps)

    @rule(noise=st.floats(0.5, 60), steps=st.integers(1, 40), more=st.booleans(), one_pass=st.booleans())
    def reserve(self, noise, steps, more, one_pass):
        sampling = "single-pass" if one_pass else "full-batch"
        plan = [Event(sampling=sampling, noise_multiplier=noise, steps=steps)]
        if more:
            plan += full_batch(noise * 2, 3)
        left = Fraction(MU) ** 2 - sum(Fraction(run.mu) ** 2 for run in self.ledger.runs())
        fits = Fraction(gaussian_mu(plan)) ** 2 <= left
        try:
            run = self.ledger.reserve(budget=BUDGET, events=plan, dataset="clinic")
        except BudgetExhausted:
            assert not fits
        else:
            assert fits
            self.live.append(run)
            self.released[run.run_id] = (plan, 0)

    @rule(choice=st.integers(0, 99), share=st.floats(0, 1))
    def run_steps(self, choice, share):
        if self.live:
            run = self.live[choice % len(self.live)]
            plan, done = self.released[run.run_id]
            up_to = max(done, round(share * run.steps))
            run.lease(up_to)
            self.released[run.run_id] = (plan, up_to)

    @rule(choice=st.integers(0, 99))
    def settle(self, choice):
        if self.live:
            run = self.live.pop(choice % len(self.live))
            run.settle(self.released[run.run_id][1])

    @rule(choice=st.integers(0, 99))
    def die(self, choice):
        if self.live:
            self.live.pop(choice % len(self.live))
            gc.collect(0)

    @rule()
    def settle_dead(self):
        dead = {run.run_id for run in self.ledger.runs() if run.state == "dead"}
        assert {run.run_id for run in self.ledger.settle_dead()} == dead

    @invariant()
    def never_over_and_never_below(self):
        runs = self.ledger.runs()
        assert sum(Fraction(run.mu) ** 2 for run in runs) <= Fraction(MU) ** 2
        for run in runs:
            plan, steps = self.released[run.run_id]
            assert run.mu >= gaussian_mu(first_steps(plan, steps))
            if run.state == "settled":
                assert run.steps_charged == steps

    def teardown(self):
        self.ledger.close()
        shutil.rmtree(self.folder)


TestUnsubsampledRuns = UnsubsampledRuns.TestCase
TestUnsubsampledRuns.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
