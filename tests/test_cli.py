"""The command line: what is printed where, what is written, and which exit code says what."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import sottovoce
from sottovoce import Budget, Ledger, cli, config, ledger_path
from sottovoce.balances import balances
from sottovoce.cli import build as cli_build
from sottovoce.cli.support import to_json
from sottovoce.privacy.accounting import calibrate
from sottovoce.privacy.curator import Curator
from sottovoce.privacy.events import Event
from sottovoce.privacy.statement import Statement
from sottovoce.report.entries import Entry
from sottovoce.tasks import data
from sottovoce.tasks.data.arrays import Arrays
from sottovoce.update import Updater

EXAMPLES = Path(__file__).parent.parent / "examples"

MODULE = """
import torch
from torch import nn

SECRET = 4242.0

def load(records=60, validation=20, everything=True, public=0):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(records + validation, 4, generator=generator)
    y = (x[:, 0] > 0).long()
    made = {"private": (x[:records], y[:records])}
    if public:
        made["public"] = (x[records:records + public], y[records:records + public])
    if everything:
        made |= {"validate": (x[records:].numpy(), y[records:].numpy()), "classes": 2}
    return made

def pair(**options):
    made = load(**options)
    return made["private"], made["validate"]

def swapped():
    return load()["private"]

def shared():
    private = load()["private"]
    return {"private": private, "validate": private}

def odd():
    return {"private": load()["private"], "valid": 1}

def broken():
    raise ValueError(f"cannot read {SECRET}")

def noisy():
    print("reading")
    return load()

class Net(nn.Module):
    def __init__(self, width: int = 3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x)

def no_model():
    return 3

def no_model_at_all():
    raise RuntimeError("out of ideas")

def mean(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def own_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

def bad_metric(model, batch):
    raise KeyError("no such metric")

def interrupt(model, batch):
    raise KeyboardInterrupt
"""

SETTINGS = """
[data]
name = "toy:load"
[model]
name = "toy:Net"
[loss]
name = "cross-entropy"
[method]
name = "DPSGD"
lr = 0.5
[budget]
epsilon = 2
delta = 1e-3
[run]
steps = 4
batch_size = 10
"""

Result = Any  # of typer, whose module for it depends on its release
Run = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the module ``toy`` and the configuration ``run.toml``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    (tmp_path / "toy.py").write_text(MODULE)
    (tmp_path / "run.toml").write_text(SETTINGS)
    return tmp_path


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli.app, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        if code:
            assert result.stdout == ""
        return result

    return invoke


def write(folder: Path, old: str, new: str) -> None:
    assert SETTINGS.count(old) == 1, old
    (folder / "run.toml").write_text(SETTINGS.replace(old, new))


def document(result: Result) -> Any:
    """The one JSON document on standard output."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(result.stdout, parse_constant=refuse)


def test_version_and_help(run: Run):
    assert run("--version").stdout == f"sottovoce {sottovoce.__version__}\n"
    shown = run("--help").stdout
    assert all(name in shown for name in ("train", "plan", "ledger", "demo", "data"))
    assert "[data]" in run("train", "--help").stdout
    assert "current directory" in " ".join(run("train", "--help").stdout.split())


def test_train_writes_the_run_and_prints_metrics_and_statement(here: Path, run: Run):
    result = run("train", "run.toml", "--quiet")
    folder = here / "runs" / "run"
    assert {file.name for file in folder.iterdir()} == {
        "config.toml", "statement.json", "statement.txt", "history.csv", "model.safetensors",
    }  # fmt: skip
    statement = json.loads((folder / "statement.json").read_text())
    assert statement["private"] is True
    assert statement["steps_run"] == 4
    assert 1.9 < statement["epsilon_spent"] <= 2
    assert (folder / "statement.txt").read_text() in result.stdout + "\n"
    history = list(csv.DictReader((folder / "history.csv").open()))
    assert [row["step"] for row in history] == ["1", "2", "3", "4"]
    assert "seconds" not in history[0]  # how long private steps take is not protected, and this file may be published
    assert f"accuracy  {float(history[-1]['accuracy']):.4f}" in result.stdout
    assert load_file(folder / "model.safetensors")["layers.0.weight"].shape == (3, 4)
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("method", "bound"),
    [("PazoM", 1.0), ("PazoP", 1.0), ("PazoS", 5**0.5), ("DPMD", 1.0), ("DopeSGD", 1.0), ("GEP", 2**0.5)],
)
def test_methods_with_public_records_are_trained_and_planned(here: Path, run: Run, method: str, bound: float):
    options = {"PazoS": "candidates = 4\nclip = 1.0", "GEP": "bases = 4\ngroups = 2\nclip = 1.0"}.get(
        method, "clip = 1.0"
    )
    text = SETTINGS.replace('"DPSGD"', f'"{method}"\npublic_batch = 4\n{options}')
    (here / "run.toml").write_text(text)
    assert f"{method} needs public=" in run("train", "run.toml", "--quiet", code=2).stderr
    (here / "run.toml").write_text(text.replace('"toy:load"', '"toy:load"\npublic = 8'))
    trained = document(run("train", "run.toml", "--json"))
    assert trained["statement"]["steps_run"] == 4
    assert any("8 records given as public=" in said for said in trained["statement"]["assumed"])
    planned = document(run("plan", "training", "run.toml", "--records", "60", "--json"))
    assert planned["bound"] == pytest.approx(bound)
    assert planned["noise_multiplier"] == pytest.approx(trained["statement"]["noise_multiplier"])


def test_train_prints_one_document_and_the_rest_on_standard_error(here: Path, run: Run):
    write(here, '"toy:load"', '"toy:noisy"')
    result = run("train", "run.toml", "--json", "--name", "first")
    printed = document(result)
    assert printed["name"] == "first"
    assert printed["folder"] == str(here / "runs" / "first")
    assert set(printed["final"]) == {"step", "accuracy", "loss"}
    assert printed["statement"] == json.loads((here / "runs" / "first" / "statement.json").read_text())
    assert result.stderr == "reading\n"


def test_the_resolved_configuration_trains_again(here: Path, run: Run):
    run("train", "run.toml", "--quiet")
    resolved = here / "runs" / "run" / "config.toml"
    tables = tomllib.loads(resolved.read_text())
    assert tables["data"] == {"name": "toy:load", "records": 60, "validation": 20, "everything": True, "public": 0}
    assert tables["model"] == {"name": "toy:Net", "width": 3, "seed": 0}
    assert tables["method"] == {"name": "DPSGD", "lr": 0.5, "clip": 1.0}
    assert tables["run"]["evaluate_every"] == 1
    assert tables["run"]["name"] == "run"
    run("train", str(resolved), "--name", "again")
    again = tomllib.loads((here / "runs" / "again" / "config.toml").read_text())
    assert again.pop("run") == tables.pop("run") | {"name": "again"}
    assert again == tables


def test_a_run_is_not_overwritten_before_anything_is_spent(here: Path, run: Run):
    write(here, "steps = 4", 'steps = 4\ndataset = "clinic"')
    old = here / "runs" / "run"
    old.mkdir(parents=True)
    (old / "note").write_text("mine")
    assert "runs/run exists (it has no statement" in run("train", "run.toml", code=2).stderr
    assert not Path(os.environ["SOTTOVOCE_LEDGER"]).exists()
    run("train", "run.toml", "--overwrite")
    assert (old / "statement.json").exists()
    assert (old / "note").read_text() == "mine"
    assert "choose another --name" in run("train", "run.toml", code=2).stderr


def test_an_empty_name_is_a_name(here: Path, run: Run):
    assert "name = ''" in run("train", "run.toml", "--name", "", code=2).stderr
    assert not (here / "runs").exists()


def test_the_budget_of_a_named_data_set_is_kept_over_runs(here: Path, run: Run):
    write(here, "steps = 4", 'steps = 4\ndataset = "clinic"')
    run("train", "run.toml")
    refused = run("train", "run.toml", "--name", "more", code=3)
    assert refused.stderr.startswith("error: the budget of data set 'clinic' is taken by run ")
    assert refused.stderr.count("\n") == 1
    assert not (here / "runs" / "more").exists()


def test_an_older_run_survives_a_failed_overwrite(here: Path, run: Run):
    run("train", "run.toml")
    before = {file.name: file.read_bytes() for file in (here / "runs" / "run").iterdir()}
    write(here, '"cross-entropy"', '"toy:mean"')
    assert "return one value per record" in run("train", "run.toml", "--overwrite", code=2).stderr
    assert {file.name: file.read_bytes() for file in (here / "runs" / "run").iterdir()} == before


def test_an_interrupted_run_is_settled_and_says_so(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    write(here, "steps = 4", 'steps = 4\ndataset = "clinic"')
    released: list[int] = []

    def interrupt(*_: Any) -> float:
        released.append(1)
        if len(released) == 6:  # two metrics: tried, measured after step 1, and now after step 2
            raise KeyboardInterrupt
        return 0.0

    monkeypatch.setattr(sys.modules["sottovoce.fit"], "evaluate", interrupt)
    stderr = run("train", "run.toml", code=130).stderr
    assert stderr.startswith("cut off after 2 of 4 steps, which are paid for: runs/run holds the model")
    assert "data set 'clinic' was granted to a single run, and this one has released something: it is closed" in stderr
    assert "interrupted" in stderr
    (record,) = Ledger.open(ledger_path(), create=False).runs()
    assert (record.state, record.steps_charged) == ("settled", 2)
    folder = here / "runs" / "run"
    assert json.loads((folder / "statement.json").read_text())["steps_run"] == 2
    assert len(list(csv.DictReader((folder / "history.csv").open()))) == 1
    assert load_file(folder / "model.safetensors")
    assert "choose another --name" in run("train", "run.toml", code=2).stderr


def test_of_a_shared_data_set_the_rest_returns(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    """And an error that is no interruption keeps what was paid for as well."""

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    whole = ("--epsilon", "2", "--delta", "1e-3", "--grant", "unsubsampled")
    run("ledger", "open", "clinic", *whole)
    write(here, "steps = 4\nbatch_size = 10", 'steps = 4\nsampling = "full-batch"\ndataset = "clinic"')
    applied = Updater.apply
    with monkeypatch.context() as patched:
        patched.setattr(Updater, "apply", lambda self, *given: fail() if given[1] == 1 else applied(self, *given))
        result = CliRunner().invoke(cli.app, ["train", "run.toml"])
    assert isinstance(result.exception, ZeroDivisionError)
    text = (here / "runs" / "run" / "statement.txt").read_text()
    assert "after 2 of 4 steps" in text and "step 2 is paid for and was not applied" in text
    (record,) = Ledger.open(ledger_path()).runs()
    assert record.steps_charged == 2
    told = "data set 'clinic': the steps that were run are charged, the rest of what was reserved returns"
    assert told in result.stderr


def test_an_interruption_before_the_first_step_leaves_nothing(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    write(here, "steps = 4", 'steps = 4\ndataset = "clinic"')
    monkeypatch.setattr(Curator, "rehearse", interrupt)
    assert run("train", "run.toml", code=130).stderr == "interrupted.\n"
    assert list((here / "runs").iterdir()) == []
    assert not Ledger.open(ledger_path()).runs()


def test_a_seeded_initialisation_repeats_and_leaves_the_global_generator_alone(here: Path):
    settings = config.read(here / "run.toml")
    before = torch.random.get_rng_state()
    first, second = (cli_build.build(settings).model.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(before, torch.random.get_rng_state())
    write(here, "steps = 4", "steps = 4\nseed = 1")
    other = cli_build.build(config.read(here / "run.toml")).model.state_dict()
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_built_in_models_take_the_public_shape_and_never_look_at_labels(here: Path, run: Run):
    write(here, '"toy:Net"', '"linear"')
    run("train", "run.toml")
    tables = tomllib.loads((here / "runs" / "run" / "config.toml").read_text())
    assert tables["model"] == {"name": "linear", "shape": [1, 1, 4], "classes": 2, "seed": 0}
    write(here, '"toy:load"', '"toy:load"\neverything = false')
    text = (here / "run.toml").read_text().replace('"toy:Net"', '"linear"')
    (here / "run.toml").write_text(text)
    assert "never read off private labels" in run("train", "run.toml", "--name", "b", code=2).stderr
    (here / "run.toml").write_text(text.replace('"linear"', '"linear"\nclasses = 2'))
    assert "NOTHING WAS MEASURED" in run("train", "run.toml", "--name", "b").stdout


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"toy:load"', '"toy:pair"\nrecords = 30'),
        ('"cross-entropy"', '"toy:own_loss"\nmetrics = ["toy:own_loss", "zero-one", "accuracy"]'),
        ('"DPSGD"', '"DPZero"\nqueries = 2\nclipping = "per-query"'),
        ('"toy:load"', '"toy:load"\nrecords = 60'),
        ("steps = 4", "epochs = 0.5\naveraging = 0.9\nschedule = 'cosine'"),
        ("steps = 4", "sampling = 'single-pass'\nepochs = 0.5"),
        ("steps = 4\nbatch_size = 10", "sampling = 'full-batch'\nsteps = 3"),
        ("delta = 1e-3", "delta = 1e-3\nneighbours = 'add-remove'"),
    ],
)
def test_many_configurations_train(here: Path, run: Run, old: str, new: str):
    write(here, old, new)
    if "add-remove" in new:
        write(here, "steps = 4", "steps = 4\nrecords = 60")
        (here / "run.toml").write_text((here / "run.toml").read_text().replace(old, new))
    assert document(run("train", "run.toml", "--json"))["statement"]["private"] is True


@pytest.mark.parametrize("method", ["SGD", "MeZO"])
def test_references_train_without_a_budget_and_say_so(here: Path, run: Run, method: str):
    text = SETTINGS.replace('"DPSGD"', f'"{method}"').replace("[budget]\nepsilon = 2\ndelta = 1e-3\n", "")
    (here / "run.toml").write_text(text)
    assert "NOT PRIVATE" in run("train", "run.toml").stdout
    assert document(run("train", "run.toml", "--overwrite", "--json"))["statement"]["epsilon"] is None
    assert "NOT PRIVATE" in run("plan", "training", "run.toml", "--records", "60").stdout
    assert document(run("plan", "training", "run.toml", "--records", "60", "--json"))["private"] is False


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[method]", "[metod]", "run.toml: [metod] is not a known table: did you mean 'method'?"),
        ('"toy:load"', '"toys:load"', "[data] name: there is no module 'toys', neither in "),
        ('"toy:load"', '"toy:lode"', "[data] name: toy has no 'lode': did you mean 'load'?"),
        ('"toy:load"', '"toy:SECRET"', "toy:SECRET is a float; a function or a class is needed"),
        ('"toy:load"', '"toy:"', "'package.module:name' is needed"),
        ('"toy:load"', '"toy:load"\nrecord = 3', "[data] record is not known: did you mean 'records'?"),
        ('"toy:load"', '"toy:odd"', "gave the key 'valid', which is not known: did you mean 'validate'?"),
        ('"toy:load"', '"toy:swapped"', "differ in form: they are taken as the private records and the PUBLIC"),
        ('"toy:load"', '"toy:shared"', "gave private records as 'validate'"),
        ('"toy:load"', '"toy:no_model"', "[data] toy:no_model gave a int: a dict with the keys private"),
        ('"toy:load"', '"toy:load"\nrecords = 0', "private= is empty"),
        ('"toy:Net"', '"toy:no_model"', "[model] toy:no_model gave a int: a torch.nn.Module is needed"),
        ('"toy:Net"', '"toy:no_model_at_all"', "[model] toy:no_model_at_all failed: RuntimeError at toy.py, line "),
        ('"toy:Net"', '"toy:no_model_at_all"', "out of ideas"),
        ('"toy:Net"', '"toy:Net"\nwidth = "3"', "[model] width = '3': a whole number is needed, text was given"),
        ('"toy:Net"', '"toy:Net"\nwitdh = 3', "[model] witdh is not known: did you mean 'width'?"),
        ('"cross-entropy"', '"toy:mean"', "return one value per record"),
        ('"cross-entropy"', '"toy:bad_metric"', "raised KeyError on the public example"),
        ('"cross-entropy"', '"toy:bad_metric"', "[KeyError at toy.py, line "),
        (
            '"cross-entropy"',
            '"cross-entropy"\nmetrics = ["toy:bad_metric"]',
            "the metric 'toy:bad_metric' cannot be computed on validate= (KeyError",
        ),
        ("batch_size = 10", "batch_size = 100", "from 1 to the number of records, 60"),
        ("batch_size = 10", "", "batch_size is needed"),
        ("steps = 4", "steps = 4\nepochs = 1", "give exactly one of the two"),
        ("steps = 4", "steps = 4\nrecords = 61", "records=61 and the data set has 60"),
        ("delta = 1e-3", "delta = 1e-3\nneighbours = 'add-remove'", "'add-remove' needs records = N in [run]"),
    ],
)
def test_a_wrong_configuration_is_one_line_exit_2_and_leaves_nothing(
    here: Path, run: Run, old: str, new: str, said: str
):
    write(here, old, new)
    stderr = run("train", "run.toml", code=2).stderr
    assert said in stderr
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert not (here / "runs").exists() or not list((here / "runs").iterdir())


def test_an_error_in_a_data_factory_is_located_and_its_message_withheld(here: Path, run: Run):
    write(here, '"toy:load"', '"toy:broken"')
    stderr = run("train", "run.toml", code=2).stderr
    assert "ValueError at toy.py, line" in stderr
    assert "4242" not in stderr
    (here / "other.py").write_text("rows = [4242]\nraise RuntimeError(str(rows))")
    write(here, '"toy:load"', '"other:load"')
    stderr = run("train", "run.toml", code=2).stderr
    assert "importing 'other' failed: RuntimeError at other.py, line 2" in stderr
    assert "4242" not in stderr
    (here / "labels.py").write_text(
        "import enum\nclass Diagnosis(enum.Enum):\n    HEALTHY = 0\n"
        "def load():\n    return [getattr(Diagnosis, cell) for cell in ['HEALTHY', 'ILL_4242']]\n"
        "def find():\n    return __import__('patient_4242')\n"
    )
    for name in ("load", "find"):
        write(here, '"toy:load"', f'"labels:{name}"')
        stderr = run("train", "run.toml", code=2).stderr
        assert "at labels.py" in stderr or "at enum.py" in stderr
        assert "4242" not in stderr
    (here / "third.py").write_text("import a_package_that_is_not_there")
    write(here, '"toy:load"', '"third:load"')
    assert "third needs a_package_that_is_not_there" in run("train", "run.toml", code=2).stderr


def test_a_privacy_warning_is_one_line_shown_once(here: Path, run: Run):
    write(here, "delta = 1e-3", "delta = 0.1")
    stderr = run("train", "run.toml", "--json").stderr
    assert stderr.startswith("privacy warning: delta 0.1 is above 1/records")
    assert stderr.count("\n") == 1
    assert "delta 0.1 is above" in run("plan", "training", "run.toml", "--records", "60").stdout


def test_other_warnings_are_left_to_python(here: Path, run: Run):
    text = MODULE.replace("def load(", "import warnings\nwarnings.warn('mind the gap')\n\ndef load(", 1)
    (here / "toy.py").write_text(text)
    with pytest.warns(UserWarning, match="mind the gap"):
        assert run("train", "run.toml").stderr == ""


def test_a_missing_built_in_data_set_names_the_command(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOTTOVOCE_DATA", str(here / "cache"))
    write(here, '"toy:load"', '"mnist"')
    assert "sottovoce data get mnist" in run("train", "run.toml", code=1).stderr


def test_plan_gives_the_figures_of_the_run_without_its_data(here: Path, run: Run):
    assert "give --records N, or records = N in [data]" in run("plan", "training", "run.toml", code=2).stderr
    planned = document(run("plan", "training", "run.toml", "--records", "60", "--json"))
    assert "toy" not in sys.modules
    trained = document(run("train", "run.toml", "--json"))["statement"]
    assert planned["noise_multiplier"] == trained["noise_multiplier"]
    assert planned["epsilon"] == trained["epsilon_spent"]
    assert planned["delta"] == trained["delta"]
    assert planned["steps"] == trained["steps_planned"]
    assert planned["rate"] == pytest.approx(10 / 60)
    assert planned["noise_on_mean"] == pytest.approx(planned["noise_multiplier"] / 10)
    shown = run("plan", "training", "run.toml", "--records", "60").stdout
    assert f"{planned['noise_multiplier']:.6g}" in shown
    assert f"{planned['noise_on_mean']:.6g}" in shown


def test_plan_knows_built_in_data_and_what_the_method_releases(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOTTOVOCE_DATA", str(here / "cache"))
    write(here, '"toy:load"', '"mnist"\nlimit = 2000')
    assert document(run("plan", "training", "run.toml", "--json"))["records"] == 2000
    zeroth_order = SETTINGS.replace('"DPSGD"', '"DPZero"\nqueries = 4\nclip = 3\nclipping = "per-query"')
    (here / "run.toml").write_text(zeroth_order.replace('"toy:load"', '"mnist"').replace("1e-3", "1e-6"))
    planned = document(run("plan", "training", "run.toml", "--json"))
    assert planned["records"] == 60_000
    assert planned["bound"] == 6
    assert planned["noise_on_mean"] == pytest.approx(0.6 * planned["noise_multiplier"])


def test_plan_refuses_what_the_run_would_refuse(here: Path, run: Run):
    text = SETTINGS.replace("delta = 1e-3", "delta = 1e-3\nneighbours = 'add-remove'")
    (here / "run.toml").write_text(text)
    assert "records = N in [run]" in run("plan", "training", "run.toml", code=2).stderr
    (here / "run.toml").write_text(text.replace("steps = 4", "steps = 4\nsampling = 'single-pass'"))
    stderr = run("plan", "training", "run.toml", "--records", "60", code=2).stderr
    assert "no meaning for disjoint blocks" in stderr
    (here / "run.toml").write_text(SETTINGS.replace("steps = 4", "steps = 7\nsampling = 'single-pass'"))
    assert "no record may be used twice" in run("plan", "training", "run.toml", "--records", "60", code=2).stderr


@pytest.mark.parametrize("command", ["show", "settle"])
def test_a_missing_ledger_is_said_and_not_made(here: Path, run: Run, command: str):
    place = here / "ledger.db"
    assert f"There is no ledger at {place}" in " ".join(run("ledger", command, "--path", str(place)).stdout.split())
    assert document(run("ledger", command, "--path", str(place), "--json"))["exists"] is False
    assert not place.exists()


def test_a_data_set_is_opened_once_and_for_good(here: Path, run: Run):
    terms = ("ledger", "open", "clinic [bold]", "--epsilon", "2", "--delta", "1e-5", "--grant")
    assert "a run of epsilon 2 (100.0%) is left" in run(*terms, "unsubsampled").stdout
    opened = document(run(*terms, "unsubsampled", "--json"))["dataset"]
    assert opened["epsilon_left"] == pytest.approx(2, rel=1e-6)
    assert opened["epsilon_spent"] == 0
    assert "for good" in run(*terms, "single", code=4).stderr
    assert "did you mean 'single'" in run(*terms, "singel", code=2).stderr
    assert "epsilon=-2.0" in run("ledger", "open", "b", "--epsilon", "-2", "--delta", "1e-5", code=2).stderr
    assert "Usage" in run("ledger", "open", "b", code=2).stderr
    assert "clinic [bold]" in " ".join(run("ledger", "show").stdout.split())


def test_show_tells_what_is_spent_and_left_and_who_is_dead(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    ledger = Ledger.open(ledger_path())
    shared, event = Budget(epsilon=2, delta=1e-5), Event(sampling="full-batch", noise_multiplier=10, steps=4)
    ledger.open_dataset("shared", shared, "unsubsampled")
    finished = ledger.reserve(budget=shared, events=[event], dataset="shared")
    finished.lease(4)
    finished.settle(4)
    live = ledger.reserve(budget=shared, events=[event], dataset="alone")
    live.lease(1)
    dead = ledger.reserve(budget=shared, events=[event], dataset="shared")
    dead.lease(2)
    del dead
    shown = document(run("ledger", "show", "--json"))
    assert [each["state"] for each in shown["runs"]] == ["settled", "live", "dead"]
    by_name = {each["name"]: each for each in shown["datasets"]}
    assert by_name["shared"]["mu_spent"] == pytest.approx(0.08**0.5)
    assert 0 < by_name["shared"]["epsilon_spent"] < by_name["shared"]["epsilon_left"] < 2
    assert by_name["alone"]["epsilon_left"] == 0
    text = run("ledger", "show").stdout
    assert "await" in text or "sottovoce ledger settle" in text
    assert "4 of 4 charged" in text
    assert "under grant single the data set stays closed" in " ".join(text.split())
    assert "up to 1 of 4 released" in text
    assert "nothing" in text
    only = document(run("ledger", "show", "--dataset", "alone", "--json"))
    assert len(only["runs"]) == len(only["datasets"]) == 1
    assert "did you mean 'alone'?" in run("ledger", "show", "--dataset", "alon", code=2).stderr
    assert "charged 2 of 4 steps" in run("ledger", "settle").stdout
    assert "nothing to settle" in run("ledger", "settle").stdout
    assert document(run("ledger", "settle", "--json"))["settled"] == []
    assert live.covers(0)
    live.settle(1)


def test_a_run_of_what_is_shown_to_be_left_is_not_refused(here: Path, run: Run):
    """The figures are rounded down: of all sorts of spending, what is left can be spent."""
    for number, noise in enumerate((3.0, 4.7, 7.3, 11.0, 23.0, 200.0)):
        name, ledger = f"d{number}", Ledger.open(ledger_path())
        shared = Budget(epsilon=2, delta=1e-5)
        ledger.open_dataset(name, shared, "unsubsampled")
        event = Event(sampling="full-batch", noise_multiplier=noise, steps=1)
        first = ledger.reserve(budget=shared, events=[event], dataset=name)
        first.lease(1)
        first.settle(1)
        balance = next(each for each in balances(ledger) if each.name == name)
        shown = float(balance.left_in_words.removeprefix("a run of epsilon ").split()[0])
        left = document(run("ledger", "show", "--dataset", name, "--json"))["datasets"][0]["epsilon_left"]
        assert shown <= left < shown * 1.001
        for epsilon in (shown, left):
            budget = Budget(epsilon=epsilon, delta=1e-5)
            sigma = calibrate(lambda s: [Event(sampling="full-batch", noise_multiplier=s, steps=1)], budget)
            rest = ledger.reserve(
                budget=budget, events=[Event(sampling="full-batch", noise_multiplier=sigma, steps=1)], dataset=name
            )
            rest.settle(0)


@pytest.mark.parametrize("command", [("show",), ("settle",), ("open", "a", "--epsilon", "1", "--delta", "1e-5")])
def test_a_foreign_file_is_exit_4_and_untouched(here: Path, run: Run, command: tuple[str, ...]):
    (here / "ledger.db").write_text("not a ledger")
    assert "left untouched" in run("ledger", *command, "--path", str(here / "ledger.db"), code=4).stderr
    assert (here / "ledger.db").read_text() == "not a ledger"


def test_demo_prints_the_table_the_statements_and_the_report(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    write(here, '"DPSGD"', '"DPSGD"\nclip = 2')
    run("train", "run.toml")
    statement = json.loads((here / "runs" / "run" / "statement.json").read_text())
    known = {each.name for each in dataclasses.fields(Statement)}
    entry = Entry(
        name="DP-SGD", note="n", accuracy=0.875, seconds=1.5, peak_memory=float("nan"), history=[],
        statement=Statement(**{key: value for key, value in statement.items() if key in known}),
        settings={"clip": 2.0},
    )  # fmt: skip
    called: list[Any] = []

    def run_demo(out: Path, *, seed: int = 0, progress: bool | None = None) -> list[Entry]:
        sys.stdout.write("a word on the way")
        called.append((out, seed, progress))
        return [entry]

    monkeypatch.setattr("sottovoce.demo.run_demo", run_demo)
    text = run("demo", "--out", "elsewhere", "--seed", "3", "--quiet").stdout
    assert "87.5" in text
    assert "PRIVACY STATEMENT" in text
    assert "elsewhere/report.html" in text
    printed = document(run("demo", "--json"))
    assert printed["entries"][0]["accuracy"] == 0.875
    assert printed["entries"][0]["peak_memory"] is None
    assert printed["report"] == str(here / "out" / "demo" / "report.html")
    assert called == [(Path("elsewhere"), 3, False), (Path("out/demo"), 0, None)]


def test_the_demo_finds_out_where_it_cannot_write_before_it_trains(here: Path, run: Run, monkeypatch: Any):
    def train_one(*_: Any, **__: Any) -> None:
        raise AssertionError("it trained first")

    monkeypatch.setattr("sottovoce.demo.data.path", lambda name: here)
    monkeypatch.setattr("sottovoce.demo.ProcessPoolExecutor", train_one)
    stderr = run("demo", "--out", str(here / "toy.py" / "report"), code=2).stderr
    assert "cannot be written to" in stderr and "choose another folder" in stderr


def test_json_has_no_tokens_that_json_does_not_have():
    made = to_json({"a": [float("nan"), float("inf"), 1.5], "b": Path("x"), 3: np.float64("-inf"), "c": (None, True)})
    assert json.loads(made) == {"a": [None, None, 1.5], "b": "x", "3": None, "c": [None, True]}


def test_the_installed_command_ends_with_the_exit_code(here: Path):
    code = "import sys; from sottovoce.cli import main; sys.argv = ['sottovoce', 'train', 'absent.toml']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: there is no configuration file absent.toml")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("example", sorted(file.name for file in EXAMPLES.glob("*.toml")))
def test_every_example_runs(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch, example: str):
    """As it is written, but for a shorter run, on made-up images."""
    for file in EXAMPLES.iterdir():
        if file.suffix in (".toml", ".py"):
            (here / file.name).write_text(file.read_text())
    settings = config.read(here / example)
    if not settings.data.is_factory:
        monkeypatch.setattr(data, "load", small_images)
    short = dataclasses.replace(settings.run, steps=2, epochs=None, batch_size=32)
    fewer = {"public_records": 100} if "public_records" in settings.data.options else {}
    records = dataclasses.replace(settings.data, options={**settings.data.options, **fewer})
    (here / "short.toml").write_text(settings.resolved(run=short, data=records).dumps())
    trained = document(run("train", "short.toml", "--json"))
    assert trained["statement"]["steps_run"] == 2
    assert 0 <= trained["final"]["accuracy"] <= 1
    planned = document(run("plan", "training", example, "--json"))
    assert planned["epsilon"] <= planned["budget_epsilon"]
    assert planned["delta"] <= 1 / planned["records"]


def small_images(name: str) -> data.ImageData:
    spec, random = data.spec(name), np.random.default_rng(0)

    def images(count: int) -> Any:
        return random.integers(0, 256, (count, *spec.shape), dtype=np.uint8), random.integers(0, 10, count)

    small = Arrays(*images(600), *images(50))
    return data.ImageData(spec=spec, provenance={}, **dataclasses.asdict(small))
