"""The benchmark: which cells it runs, that it goes on where it stopped, and what the tables say."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bench_fakes import row, setting
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce import cli
from sottovoce.bench import figures, plan, runner, shapes, starts, tables
from sottovoce.bench.cells import REPORT, SELECT, SENSITIVITY, SHIFT, with_options
from sottovoce.bench.contestants import CONTESTANTS, find
from sottovoce.bench.controls import NoiseOnly
from sottovoce.bench.plan import Extent
from sottovoce.bench.runner import run_all
from sottovoce.bench.runs import read
from sottovoce.bench.similarity import gamma
from sottovoce.bench.starts import StartKey, start_of
from sottovoce.tasks import settings

NAN = math.nan


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch):
    def load(name: str, **options: Any) -> Any:
        if options:
            raise sv.ConfigurationError("no options")
        return setting(name)

    monkeypatch.setattr(settings, "load", load)
    starts.load.cache_clear()
    starts.start_of.cache_clear()
    yield
    starts.load.cache_clear()
    starts.start_of.cache_clear()


def extent(**changes: Any) -> Extent:
    return Extent(**{"setting": "tiny", "epsilons": (0.5, 2.0), "seeds": (0, 1), "warm_start": 3, **changes})


def quiet(*_: Any) -> None:
    """Tell nothing."""


def test_every_contestant_runs_and_leaves_a_row(tmp_path: Path):
    cells = plan.selection(extent())
    rows = run_all(cells, tmp_path / "runs.csv", workers=1, tell=quiet)
    assert {each.status for each in rows} == {"ok"}
    best = plan.chosen(rows)
    report = run_all(plan.report(extent(), best), tmp_path / "runs.csv", workers=1, tell=quiet)
    assert {each.method for each in report} == set(CONTESTANTS)
    for each in report:
        assert 0 <= each.test_accuracy <= 1 and len(json.loads(each.curve)) == 4
        assert math.isinf(each.epsilon) != find(each.method).private
    assert read(tmp_path / "runs.csv") == [*rows, *report]


def test_what_stands_in_the_file_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells = plan.selection(extent(methods=("DP-SGD", "PAZO-M")))
    first = run_all(cells[:2], tmp_path / "runs.csv", workers=1, tell=quiet)
    ran: list[str] = []
    original = runner.run

    def noted(cell: Any, *_: Any) -> Any:
        ran.append(cell.method)
        return original(cell)

    monkeypatch.setattr(runner, "run", noted)
    rows = run_all(cells, tmp_path / "runs.csv", workers=1, tell=quiet)
    assert ran == ["PAZO-M"] and rows[:2] == first


def test_when_time_is_up_no_run_begins_and_the_next_call_goes_on(tmp_path: Path):
    cells = plan.selection(extent(methods=("DP-SGD", "PAZO-M")))
    table = tmp_path / "runs.csv"
    assert run_all(cells[:2], table, workers=1, tell=quiet, until=-math.inf) == []
    assert len(run_all(cells[:2], table, workers=1, tell=quiet)) == 2
    assert len(run_all(cells[:2], table, workers=1, tell=quiet, until=-math.inf)) == 2  # they stand there


def test_settings_are_chosen_on_validation_data_and_controls_take_their_method_s():
    rows = [
        row("DP-SGD", 1.0, 0.6, stage=SELECT, options='{"lr": 1}', test_accuracy=0.9),
        row("DP-SGD", 1.0, 0.7, stage=SELECT, options='{"lr": 2}', test_accuracy=0.1),
        row("DP-SGD", 1.0, NAN, stage=SELECT, options='{"lr": 3}'),
        row("PAZO-M", 1.0, 0.7, stage=SELECT, options='{"lr": 4}'),
        row("GEP", 1.0, NAN, stage=SELECT, options='{"lr": 5}'),
    ]
    best = plan.chosen(rows)
    assert best == {"DP-SGD": '{"lr": 2}', "PAZO-M": '{"lr": 4}'}
    cells = plan.report(extent(methods=("DP-SGD", "GEP", "PAZO-M", "PAZO-M (noise only)")), best)
    assert {cell.method: cell.options for cell in cells} == {
        "DP-SGD": '{"lr": 2}', "PAZO-M": '{"lr": 4}', "PAZO-M (noise only)": '{"lr": 4}'
    }  # fmt: skip
    assert len(cells) == 3 * 2 * 2


@pytest.mark.parametrize(
    ("most", "kept"), [(1, [3]), (2, [1, 4]), (3, [1, 3, 5]), (6, [0, 1, 2, 3, 4, 5]), (9, range(6))]
)
def test_a_thinned_grid_is_spread_evenly(most: int, kept: Any):
    assert plan.thinned([{"lr": number} for number in range(6)], most) == [{"lr": number} for number in kept]


def test_a_control_searches_nothing_of_its_own():
    searched = [cell.method for cell in plan.selection(extent(methods=("PAZO-S", "PAZO-S (noise only)")))]
    assert searched == ["PAZO-S"]


def test_five_queries_have_the_clip_that_grows_with_their_root():
    cells = plan.queries(extent(methods=("PAZO-M",)), {"PAZO-M": '{"clip": 2.0, "queries": 4}'})
    assert [json.loads(cell.options) for cell in cells[::2]] == [
        {"clip": 1.0, "queries": 1}, {"clip": pytest.approx(math.sqrt(5)), "queries": 5}
    ]  # fmt: skip


def test_a_setting_without_imbalance_has_no_shift_table():
    assert plan.shifts(extent(), {"PAZO-M": "{}"}) == []


def test_public_data_is_moved_by_whichever_option_a_setting_has(monkeypatch: pytest.MonkeyPatch):
    def load(name: str) -> object:
        if "imbalance" in name:
            raise sv.ConfigurationError("unknown option")
        return setting()

    monkeypatch.setattr(plan, "load", load)
    assert plan.shifted("tiny:length=8,shift=half") == [
        f"tiny:length=8,shift={level}" for level in plan.SHIFTS["shift"]
    ]


def test_all_distances_of_public_data_start_from_the_same_model():
    far = extent().cell("PAZO-M", 1.0, 0, stage=SHIFT, options="{}")
    far = replace(far, setting="tiny:imbalance=big,width=2")
    assert far.start.setting == "tiny:width=2"
    assert replace(far, stage=REPORT).start.setting == "tiny:imbalance=big,width=2"
    assert with_options("tiny:imbalance=big", "imbalance=half", without=["imbalance"]) == "tiny:imbalance=half"
    moved = [
        row("PAZO-M", 1.0, 0.5, stage=SHIFT, setting=f"tiny:imbalance={name}") for name in ("big", "half", "slight")
    ]
    assert tables.levels(moved) == ["tiny:imbalance=slight", "tiny:imbalance=half", "tiny:imbalance=big"]


def test_what_pazo_introduces_is_varied_by_itself_and_tuned_again():
    cells = plan.sensitivity(extent(methods=("PAZO-S",)), {"PAZO-S": '{"lr": 0.2, "candidates": 3, "clip": 2.0}'})
    options = [json.loads(cell.options) for cell in cells]
    assert {each["lr"] for each in options} == {0.1, 0.2, 0.4}
    assert {each.get("explore") for each in options} == {None, 0.0, 1e-3, 1e-2}
    assert all(len({"explore", "public_batch"} & each.keys()) <= 1 for each in options)
    for each in options:
        find("PAZO-S").method(each)


def test_runs_of_other_settings_lengths_or_options_are_not_pooled():
    own = [row("DP-SGD", 1.0, 0.7, stage=SELECT, options='{"lr": 1}'), row("DP-SGD", 1.0, 0.7, options='{"lr": 1}')]
    stale = row("DP-SGD", 1.0, 0.1, options='{"lr": 9}')
    assert plan.standing(extent(), [*own, stale, row("DP-SGD", 1.0, 0.2, setting="other")]) == own
    with pytest.raises(sv.ConfigurationError, match="--steps 8"):
        plan.standing(extent(), [*own, row("DP-SGD", 1.0, 0.2, steps=8)])
    chosen = plan.standing(extent(steps=10, batch_size=8, warm_start=0), [*own, row("DP-SGD", 1.0, 0.2, steps=8)])
    assert chosen == own
    with pytest.raises(sv.ConfigurationError, match="no run of tiny stands there, but mnist"):
        plan.standing(extent(), [row("DP-SGD", 1.0, 0.2, setting="mnist")])


def test_every_contestant_of_a_seed_starts_from_the_same_model(tmp_path: Path):
    """Computed, and read back by another process, as by one whose cache is empty."""
    key = StartKey("tiny", 0, 3, "cpu")
    first = start_of(key, tmp_path)
    start_of.cache_clear()
    kept = start_of(key, tmp_path)
    assert kept is not first
    assert kept.accuracy == first.accuracy
    assert all(torch.equal(a, b) for a, b in zip(first.model().parameters(), kept.model().parameters(), strict=True))
    cold = start_of(key._replace(steps=0), tmp_path).model()
    assert not torch.equal(next(iter(cold.parameters())), next(iter(first.model().parameters())))


def test_tables_are_written_from_what_stands_there_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments = ["bench", "tables", "tiny", "--out", str(tmp_path), "--tables-only"]
    refused = CliRunner().invoke(cli.app, arguments)
    assert refused.exit_code == 2 and "no run yet" in refused.output
    cells = plan.report(extent(methods=("DP-SGD",)), {"DP-SGD": '{"lr": 0.5}'})
    run_all(cells[:-1], tmp_path / "runs.csv", workers=1, tell=quiet)
    monkeypatch.setattr(runner, "run", None)
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    assert "1 to 2 seeds in a cell" in (tmp_path / "tables.md").read_text()


# --- the control -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["PAZO-M", "PAZO-P", "PAZO-S"])
def test_a_silenced_method_cannot_tell_private_data_sets_apart(name: str):
    """Under the same testing entropy its iterates do not depend on the private records at all."""
    ends: list[torch.Tensor] = []
    for flip in (1, -1):
        known = setting()
        method = NoiseOnly(find(name).method(known.grids[find(name).make.__name__][0]))  # pyright: ignore
        model = known.make_model(0)
        private = (flip * known.private[0], known.private[1])
        with sv.testing.fixed_entropy("silenced"):
            sv.fit(
                model, known.loss, private=private, public=known.public, method=method, steps=5, batch_size=12,
                budget=sv.Budget(epsilon=1.0, delta=1e-3),
            )  # fmt: skip
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(ends[0], ends[1])


def test_a_silenced_method_has_the_noise_of_the_method():
    known = setting()
    plain = find("PAZO-M").method(known.grids["PazoM"][0])
    runs = [
        sv.Session(
            known.make_model(0), known.loss, private=known.private, public=known.public, method=method, steps=5,
            batch_size=12, budget=sv.Budget(epsilon=1.0, delta=1e-3),
        )
        for method in (plain, NoiseOnly(plain))  # pyright: ignore
    ]  # fmt: skip
    assert runs[0].noise_multiplier == runs[1].noise_multiplier


# --- tables, shapes, figures -------------------------------------------------------------------------------------


def published() -> list[Any]:
    """CIFAR-10's figures of the paper: Tables 2 and 6, with controls below the methods."""
    printed = {
        "DP-SGD": (46.7, 49.7, 50.8, 54.2, 54.5),
        "DPMD": (64.3, 66.6, 67.8, 68.5, 69.8),
        "DOPE-SGD": (64.8, 69.3, 70.9, 73.0, 72.9),
        "GEP": (NAN, 49.9, 50.7, 52.9, 53.8),
        "DPZero": (47.0, 48.1, 48.2, 48.2, 48.1),
        "PAZO-M": (70.9, 71.3, 71.3, 71.2, 70.5),
        "PAZO-P": (69.5, 69.6, 69.0, 68.7, 68.1),
        "PAZO-P normalised": (69.6, 69.2, 69.2, 68.9, 68.0),
        "PAZO-S": (70.3, 70.3, 70.2, 69.8, 69.7),
    }
    seconds = {"DP-SGD": 0.42, "PAZO-M": 0.051, "PAZO-S": 0.102, "PAZO-P": 0.149}
    rows = [
        row(method, epsilon, accuracy / 100, seconds=10 * seconds.get(method, 0.2))
        for method, accuracies in printed.items()
        for epsilon, accuracy in zip(plan.EPSILONS, accuracies, strict=True)
    ]
    return [*rows, row("public only", math.inf, 0.661), row("SGD", math.inf, 0.863), row("MeZO", math.inf, 0.49)]


def test_the_paper_s_own_figures_have_the_paper_s_shapes():
    found = shapes.shapes(published())
    said = [each.verdict for each in found]
    assert said == ["holds", "holds", "holds", "holds", "not run", "not run", "holds", "not run"]
    assert "epsilon 2" in found[2].evidence and "+6.1" in found[3].evidence


def test_shapes_that_do_not_hold_are_told():
    rows = [each for each in published() if each.method != "PAZO-M"]
    rows += [row("PAZO-M", epsilon, 0.40 + 0.1 * number) for number, epsilon in enumerate(plan.EPSILONS)]
    found = shapes.shapes(rows)
    assert [each.verdict for each in found][:2] == ["DOES NOT HOLD", "DOES NOT HOLD"]


def test_the_control_is_compared_with_its_method():
    rows = published() + [row("PAZO-M (noise only)", epsilon, 0.708) for epsilon in plan.EPSILONS]
    control = shapes.shapes(rows)[-1]
    assert control.verdict == "DOES NOT HOLD" and "PAZO-M -0.3" in control.evidence and "up to +0.5" in control.evidence


def test_a_difference_within_the_spread_of_seeds_is_no_verdict():
    """The control is 0.1 below on the mean of three seeds that differ by points: nothing is claimed."""
    wobble = {0: 0.02, 1: -0.01, 2: -0.01}
    rows = [
        row(f"{name}{silenced}", epsilon, 0.7 + shift * (1 if silenced else -1) - 0.0005 * bool(silenced), seed=seed)
        for name in shapes.PAZO
        for epsilon in plan.EPSILONS
        for seed, shift in wobble.items()
        for silenced in ("", " (noise only)")
    ]
    assert shapes.shapes(rows)[-1].verdict == "not distinguishable"
    better = [replace(each, test_accuracy=each.test_accuracy + 0.2 * ("only" not in each.method)) for each in rows]
    assert shapes.shapes(better)[-1].verdict == "holds"
    assert "missing: PAZO-S" in shapes.shapes([r for r in better if not r.method.startswith("PAZO-S")])[-1].evidence


def test_a_failed_seed_shows_in_its_cell_and_gives_no_mean():
    rows = [row("GEP", 1.0, 0.9), row("GEP", 1.0, NAN, seed=1), row("GEP", 1.0, NAN, seed=2)]
    lines = {line[0]: line for line in tables.accuracy(rows)[1]}
    assert lines["GEP"][1] == "90.0 (1 of 3 runs)"
    assert math.isnan(tables.mean(rows, "GEP", 1.0))


def test_the_tables_say_mean_spread_and_failure():
    rows = [*published(), row("PAZO-M", 0.1, 0.729, seed=1)]
    title, lines = tables.accuracy(rows)
    by_name = {line[0]: line for line in lines}
    assert by_name["PAZO-M"][1] == "71.9 ± 1.4" and by_name["GEP"][1] == "–"
    assert by_name["DP-SGD"][-1] == "86.3" and by_name["DPZero"][-1] == "49.0"
    assert "SGD" not in by_name and "(all start from)" in by_name
    text = tables.markdown((title, lines))
    assert len({len(line) for line in text.splitlines()[2:]}) == 1


def test_the_gain_over_public_data_is_that_of_table_6():
    _, lines = tables.public_gain(published())
    assert lines[1][1] == "66.1"
    assert lines[3] == ["ZO+PUB, least and most of its best", "+4.4 … +5.2"]  # as printed
    least, most = (float(part) for part in lines[2][1].split(" … "))
    assert least == pytest.approx(-1.3, abs=0.11) and most == pytest.approx(6.8, abs=0.11)


def test_figures_are_written(tmp_path: Path):
    varied = ['{"mix": 0.25, "lr": 1}', '{"mix": 0.5, "lr": 1}', '{"mix": 0.5, "lr": 2}']
    rows = [
        *[replace(each, options='{"mix": 0.5, "lr": 1}') for each in published() if each.method == "PAZO-M"],
        *[each for each in published() if each.method != "PAZO-M"],
        *[row("PAZO-M", 1.0, 0.7, stage=SENSITIVITY, options=options) for options in varied],
    ]
    written = figures.write_all(rows, tmp_path)
    assert [path.name[:7] for path in written] == [f"figure{number}" for number in range(2, 7)]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in written)
    assert figures.write_all([], tmp_path) == []


def test_gamma_is_the_distance_of_the_full_gradients():
    known = setting()
    model = known.make_model(0)
    grads = []
    for records in (known.private, known.public):
        model.zero_grad()
        known.loss(model, records).mean().backward()
        grads.append(torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None]))
    assert gamma(model, known.loss, known.private, known.public) == pytest.approx(float((grads[0] - grads[1]).norm()))
    assert gamma(model, known.loss, known.private, known.private) == 0.0


# --- the command -------------------------------------------------------------------------------------------------


def test_the_command_writes_tables_and_goes_on(tmp_path: Path):
    arguments = ["bench", "tables", "tiny", "--methods", "DP-SGD,PAZO-M,PAZO-M (noise only)", "--quick"]
    out = ["--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli.app, [*arguments, *out, "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["runs"] == 2 + 3 * 2
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"runs.csv", "tables.md", "command.txt"}
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "PAZO-M (noise only)" in text and "The paper's shapes" in text
    before = (tmp_path / "out" / "runs.csv").read_text()
    assert CliRunner().invoke(cli.app, [*arguments, *out]).exit_code == 0
    assert (tmp_path / "out" / "runs.csv").read_text() == before


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--methods", "PAZO-X"], "unknown method 'PAZO-X'"),
        (["--epsilons", "1,zero"], "positive numbers"),
        (["--epsilons", "-1"], "positive numbers"),
        (["--workers", "0"], "--workers 0: at least 1"),
        (["--points", "0"], "--points 0: at least 1"),
        (["--seeds", "-1"], "--seeds -1: at least 1"),
        (["--batch-size", "5000"], "has 120 private records"),
    ],
)
def test_wrong_arguments_are_told(wrong: list[str], words: str, tmp_path: Path):
    done = CliRunner().invoke(cli.app, ["bench", "tables", "tiny", "--out", str(tmp_path), *wrong])
    assert done.exit_code == 2 and words in done.stderr
