"""The ledger under kills, races and forks. The workers are forked, so these tests need POSIX."""

import gc
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from contextlib import closing
from fractions import Fraction

import pytest

from sottovoce.balances import balances
from sottovoce.privacy.accounting import gaussian_mu, gaussian_mu_for
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import BudgetExhausted, LedgerConflict, LedgerCorrupt
from sottovoce.privacy.events import Event, first_steps
from sottovoce.privacy.ledger import Ledger

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the workers are forked")

BUDGET = Budget(epsilon=1.0, delta=1e-5)
STEPS = 5_000
PLAN = [Event(sampling="full-batch", noise_multiplier=1e5, steps=STEPS)]
BLOCK = 16


def fork(work, *arguments):
    """Run ``work(*arguments)`` in a forked child; its exit status tells whether it raised."""
    child = os.fork()
    if child:
        return child
    try:
        work(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def joined(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_for(path, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.001)


def is_sound(path):
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]


def release(folder, run):
    """What leaves the curator: one byte a step, appended at once; what a killed process wrote stays written."""
    descriptor = os.open(folder / run.run_id, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        while run.mark < run.steps:
            mark = run.mark
            run.lease(min(mark + random.randint(1, BLOCK), run.steps))
            for step in range(mark, run.mark):
                assert run.covers(step)
                os.write(descriptor, b".")
                yield step
            time.sleep(0.002)  # a worker does something between leases
    finally:
        os.close(descriptor)


def work_until_killed(path, folder, seed):
    random.seed(seed)
    ledger = Ledger.open(path)
    if seed % 3 == 0:
        ledger.settle_dead()
    while True:
        run = ledger.reserve(budget=BUDGET, events=PLAN, dataset="clinic")
        stop = random.choice([3, 40, STEPS - 1])
        for step in release(folder, run):
            if step == stop:
                break
        run.settle(stop + 1)
        (folder / f"{run.run_id}.settled").touch()


def test_fifty_kills_at_random_instants(tmp_path):
    """Never below what was released, at most one lease above, and the file is sound after every kill."""
    path, folder = tmp_path / "ledger.db", tmp_path / "released"
    folder.mkdir()
    chance = random.Random(7)
    ledger = Ledger.open(path)
    ledger.open_dataset("clinic", BUDGET, "unsubsampled")
    workers = [fork(work_until_killed, path, folder, seed) for seed in range(3)]
    for kill in range(50):
        time.sleep(chance.uniform(0, 0.06))
        victim = workers.pop(0)
        os.kill(victim, signal.SIGKILL)
        assert joined(victim) == -signal.SIGKILL, "the worker ended by itself"
        assert is_sound(path)
        if kill % 5 == 0:
            ledger.settle_dead()
        workers.append(fork(work_until_killed, path, folder, 3 + kill))
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
        joined(worker)
    ledger.settle_dead()

    runs = ledger.runs()
    settled = sorted(entry["subject"] for entry in ledger.entries() if entry["kind"] == "settle")
    assert settled == sorted(run.run_id for run in runs), "every run is settled, once"
    interrupted = 0
    for run in runs:
        file = folder / run.run_id
        released = file.stat().st_size if file.exists() else 0
        assert run.steps_charged is not None
        assert run.steps_charged >= released
        if (folder / f"{run.run_id}.settled").exists():
            assert run.steps_charged == released
        else:
            interrupted += released > 0
            assert run.steps_charged <= released + BLOCK
        assert run.mu == gaussian_mu(first_steps(PLAN, run.steps_charged))
    assert interrupted >= 10, "the kills came too early to test anything"
    assert {run.run_id for run in runs} >= {file.stem for file in folder.iterdir()}, "nothing without a record"
    limit = gaussian_mu_for(1.0, 1e-5)
    assert sum(Fraction(run.mu) ** 2 for run in runs) <= Fraction(limit) ** 2
    ledger.close()
    assert is_sound(path)


def test_a_kill_while_settling_the_dead_charges_each_run_once(tmp_path):
    path = tmp_path / "ledger.db"

    def leave_dead_runs():
        ledger = Ledger.open(path)
        runs = [ledger.reserve(budget=BUDGET, events=PLAN) for _ in range(30)]
        for index, run in enumerate(runs):
            run.lease(index + 1)
        os._exit(0)

    joined(fork(leave_dead_runs))
    for delay in (0.001, 0.002, 0.004, 0.008):
        settler = fork(lambda: Ledger.open(path).settle_dead())
        time.sleep(delay)
        os.kill(settler, signal.SIGKILL)
        joined(settler)
    with closing(Ledger.open(path)) as ledger:
        ledger.settle_dead()
        assert [run.steps_charged for run in ledger.runs()] == list(range(1, 31))
        assert len([entry for entry in ledger.entries() if entry["kind"] == "settle"]) == 30
        # A kill between a settlement and the removal of its lock file leaves an empty file of a settled run.
        left = {file.stem for file in (tmp_path / "ledger.db.runs").iterdir()}
        assert left <= {run.run_id for run in ledger.runs() if run.state == "settled"}


def test_two_who_settle_at_once_do_not_charge_twice(tmp_path):
    path = tmp_path / "ledger.db"
    with closing(Ledger.open(path)) as ledger:
        for mark in range(10):
            ledger.reserve(budget=BUDGET, events=PLAN).lease(mark)
        gc.collect()

        def settle(name):
            own = Ledger.open(path)
            wait_for(tmp_path / "go")
            (tmp_path / name).write_text(str(len(own.settle_dead())))

        names = [f"settler{index}" for index in range(3)]
        settlers = [fork(settle, name) for name in names]
        (tmp_path / "go").touch()
        assert [joined(settler) for settler in settlers] == [0, 0, 0]
        assert sum(int((tmp_path / name).read_text()) for name in names) == 10
        assert [run.steps_charged for run in ledger.runs()] == list(range(10))


@pytest.mark.parametrize("grant", ["single", "unsubsampled"])
def test_of_those_who_race_for_the_last_budget_one_wins(tmp_path, grant):
    path = tmp_path / "ledger.db"
    noise = 1.2 / gaussian_mu_for(1.0, 1e-5)  # one fits, two do not
    names = [f"data {index}" for index in range(10)]

    def race(racer):
        ledger = Ledger.open(path)
        (tmp_path / f"ready{racer}").touch()
        wait_for(tmp_path / "go")
        for name in names:
            try:
                run = ledger.reserve(
                    budget=BUDGET,
                    events=[Event(sampling="full-batch", noise_multiplier=noise, steps=1)],
                    dataset=name,
                )
            except BudgetExhausted:
                continue
            run.lease(1)
            run.settle(1)

    with closing(Ledger.open(path)) as ledger:
        for name in names if grant == "unsubsampled" else ():
            ledger.open_dataset(name, BUDGET, grant)
        racers = [fork(race, racer) for racer in range(2)]
        for racer in range(2):
            wait_for(tmp_path / f"ready{racer}")
        (tmp_path / "go").touch()
        assert [joined(racer) for racer in racers] == [0, 0]
        assert sorted(str(run.dataset) for run in ledger.runs()) == names


def test_those_who_race_to_make_the_ledger_share_one(tmp_path):
    path = tmp_path / "data" / "ledger.db"

    def start():
        wait_for(tmp_path / "go")
        Ledger.open(path).reserve(budget=BUDGET, events=PLAN).lease(1)

    starters = [fork(start) for _ in range(6)]
    (tmp_path / "go").touch()
    assert [joined(starter) for starter in starters] == [0] * 6
    with closing(Ledger.open(path, create=False)) as ledger:
        assert [run.mark for run in ledger.runs()] == [1] * 6
    assert sorted(file.name for file in path.parent.iterdir()) == ["ledger.db", "ledger.db.runs"]


def test_a_forked_child_has_no_part_in_the_run(tmp_path):
    with closing(Ledger.open(tmp_path / "ledger.db")) as ledger:
        run = ledger.reserve(budget=BUDGET, events=PLAN)
        run.lease(5)

        def child():
            assert not run.covers(0)
            for use in (lambda: run.lease(6), lambda: run.lease(3), lambda: run.settle(5), ledger.runs):
                with pytest.raises(LedgerConflict, match="forked"):
                    use()
            with pytest.raises(LedgerConflict, match="forked"):
                ledger.reserve(budget=BUDGET, events=PLAN)
            ledger.close()
            with closing(Ledger.open(tmp_path / "ledger.db")) as own:
                assert own.settle_dead() == [], "the parent's run is alive"

        assert joined(fork(child)) == 0
        assert run.covers(4)
        run.lease(6)
        assert [(record.state, record.mark) for record in ledger.runs()] == [("live", 6)]
        assert ledger.settle_dead() == []
        run.settle(6)


def test_a_forked_child_in_memory_has_no_part_either(tmp_path):
    run = Ledger.in_memory().reserve(budget=BUDGET, events=PLAN)
    run.lease(5)

    def child():
        assert not run.covers(0)
        with pytest.raises(LedgerConflict, match="forked"):
            run.lease(6)

    assert joined(fork(child)) == 0


def test_a_run_is_dead_when_its_process_is_though_a_child_lives(tmp_path):
    path = tmp_path / "ledger.db"

    def parent():
        run = Ledger.open(path).reserve(budget=BUDGET, events=PLAN)
        run.lease(3)
        grandchild = fork(wait_for, tmp_path / "go")
        (tmp_path / "grandchild").write_text(str(grandchild))
        (tmp_path / "ready").touch()
        time.sleep(60)

    process = fork(parent)
    wait_for(tmp_path / "ready")
    with closing(Ledger.open(path)) as ledger:
        assert [run.state for run in ledger.runs()] == ["live"]
        os.kill(process, signal.SIGKILL)
        joined(process)
        os.kill(int((tmp_path / "grandchild").read_text()), 0)  # it lives
        assert [run.steps_charged for run in ledger.settle_dead()] == [3]
    (tmp_path / "go").touch()


def test_a_child_that_outlives_its_parents_ledger_does_not_touch_the_file(tmp_path):
    """SQLite would let the child delete the log that others wrote since: their leases would be lost."""
    path = tmp_path / "ledger.db"
    inherited = [Ledger.open(path)]  # the only reference, so that the child can drop it
    inherited[0].reserve(budget=BUDGET, events=PLAN).lease(1)

    def child():
        wait_for(tmp_path / "go")
        inherited.clear()
        gc.collect()

    def another():
        Ledger.open(path).reserve(budget=BUDGET, events=PLAN).lease(7)
        os.kill(os.getpid(), signal.SIGKILL)

    process = fork(child)
    inherited.pop().close()
    joined(fork(another))
    before = {file.name: file.read_bytes() for file in tmp_path.glob("ledger.db*") if file.is_file()}
    assert "ledger.db-wal" in before
    (tmp_path / "go").touch()
    assert joined(process) == 0
    assert {file.name: file.read_bytes() for file in tmp_path.glob("ledger.db*") if file.is_file()} == before
    with closing(Ledger.open(path)) as reopened:
        assert [run.steps_charged for run in reopened.settle_dead()] == [1, 7]


def test_a_damaged_file_with_a_log_is_left_untouched_too(tmp_path):
    path = tmp_path / "ledger.db"

    def killed():
        run = Ledger.open(path).reserve(budget=BUDGET, events=PLAN)
        run.lease(7)
        os.kill(os.getpid(), signal.SIGKILL)

    joined(fork(killed))
    content = bytearray(path.read_bytes())
    content[100:4096] = os.urandom(3996)  # the schema; the log has newer copies of all other pages
    path.write_bytes(content)
    before = {name: (tmp_path / name).read_bytes() for name in ("ledger.db", "ledger.db-wal")}
    with pytest.raises(LedgerCorrupt, match="untouched"):
        Ledger.open(path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_kill_amid_a_checkpoint_is_mended_from_the_log(tmp_path):
    path = tmp_path / "ledger.db"

    def killed():
        run = Ledger.open(path).reserve(budget=BUDGET, events=PLAN)
        run.lease(7)
        os.kill(os.getpid(), signal.SIGKILL)

    joined(fork(killed))
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)  # pages that the log has in whole
    path.write_bytes(content)
    with closing(Ledger.open(path)) as ledger:
        assert [(run.state, run.mark) for run in ledger.runs()] == [("dead", 7)]
    assert is_sound(path)


def test_a_killed_ledger_opens_with_what_was_committed(tmp_path):
    path = tmp_path / "ledger.db"

    def killed():
        run = Ledger.open(path).reserve(budget=BUDGET, events=PLAN, dataset="clinic")
        run.lease(7)
        os.kill(os.getpid(), signal.SIGKILL)

    joined(fork(killed))
    with closing(Ledger.open(path)) as ledger:
        assert [(run.state, run.mark) for run in ledger.runs("clinic")] == [("dead", 7)]
        with pytest.raises(BudgetExhausted, match=r"\(dead, started .*, 7 steps\), .* Use another data set"):
            ledger.reserve(budget=BUDGET, events=PLAN, dataset="clinic")
        assert ledger.settle_dead()[0].steps_charged == 7
        assert balances(ledger)[0].remaining == 0
