"""Configuration files: read, checked, written again."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import DPSGD, SGD, Budget, ConfigurationError, DPZero, MeZO, config
from sottovoce.binding import bind, convert, describe, nearest
from sottovoce.tasks import models
from sottovoce.toml import dumps

SCALARS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.integers() | st.floats() | st.booleans()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=8)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TABLES = st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=4)

MINIMAL = """
[data]
name = "mnist"
[model]
name = "mlp"
[loss]
name = "cross-entropy"
[method]
name = "DPZero"
lr = 0.01
[budget]
epsilon = 1
delta = 1e-6
[run]
epochs = 2
batch_size = 256
"""


def parse(text: str) -> config.Config:
    return config.parse(tomllib.loads(text))


def changed(old: str, new: str) -> str:
    assert MINIMAL.count(old) == 1, old
    return MINIMAL.replace(old, new)


def refusal(text: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse(text)
    return str(refused.value)


@given(TABLES)
@settings(max_examples=60, deadline=None)
def test_writing_then_reading_is_the_identity(tables: dict[str, dict[str, Any]]):
    assert exact(tomllib.loads(dumps(tables))) == exact(tables)


def exact(value: Any) -> Any:
    """With types, the sign of zero and NaN told apart."""
    if isinstance(value, dict):
        return {key: exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [exact(each) for each in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (float, value.hex())
    return type(value), value


@pytest.mark.parametrize("value", [None, {"a": 1}, object()])
def test_what_toml_cannot_hold_is_not_written(value: Any):
    with pytest.raises(TypeError, match="TOML holds"):
        dumps({"table": {"key": value}})
    with pytest.raises(UnicodeEncodeError):
        dumps({"table": {"key": "\ud800"}})


def test_every_default_is_filled_in():
    resolved = parse(MINIMAL).tables()
    assert resolved["data"] == {"name": "mnist", "normalise": True}
    assert resolved["model"] == {"name": "mlp", "width": 128, "depth": 1, "activation": "tanh"}
    assert resolved["loss"] == {"name": "cross-entropy", "metrics": ["accuracy", "loss"]}
    assert resolved["method"] == {
        "name": "DPZero", "lr": 0.01, "clip": 1.0, "smoothing": 1e-3, "queries": 1, "directions": "sphere",
        "clipping": "joint",
    }  # fmt: skip
    assert resolved["budget"] == {"epsilon": 1.0, "delta": 1e-6, "neighbours": "zero-out", "unit": "record"}
    assert resolved["run"] == {
        "epochs": 2.0, "batch_size": 256, "sampling": "poisson", "seed": 0, "strategy": "auto",
        "max_physical_batch": 512, "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL,
        changed("epochs = 2", 'steps = 7\ndataset = "a \\"b\\" \\u0007"\nrecords = 60000\naveraging = 0.9'),
        MINIMAL + '[run.update]\nmomentum = 0.5\nschedule = "cosine"',
        changed('"mnist"', '"mine:load"\nfolder = "x"\nweights = [1.5, 2]'),
        changed('"DPZero"', '"MeZO"').replace("[budget]\nepsilon = 1\ndelta = 1e-6\n", ""),
    ],
)
def test_the_resolved_configuration_says_the_same_and_is_resolved(text: str):
    first = parse(text)
    again = parse(first.dumps())
    assert again == first
    assert again.dumps() == first.dumps()


def test_values_arrive_where_they_belong():
    read = parse(
        changed("epochs = 2", "epochs = 0.5\nmomentum = 0.9\nweight_decay = 1\naveraging = 0.5")
        .replace('"cross-entropy"', '"squared-error"')
        .replace("lr = 0.01", "lr = 1\nqueries = 3")
    )
    assert read.method == DPZero(lr=1.0, queries=3)
    assert isinstance(read.method.lr, float)
    assert read.budget == Budget(epsilon=1.0, delta=1e-6)
    assert read.run.update().momentum == 0.9
    assert read.run.update().weight_decay == 1.0
    assert read.run.update().averaging == 0.5
    assert read.metrics == ("loss",)


@pytest.mark.parametrize(("name", "made"), [("DPSGD", DPSGD), ("SGD", SGD), ("MeZO", MeZO)])
def test_every_method_is_known(name: str, made: Callable[..., Any]):
    text = changed('"DPZero"', f'"{name}"')
    if name != "DPSGD":
        text = text.replace("[budget]\nepsilon = 1\ndelta = 1e-6\n", "")
    assert parse(text).method == made(lr=0.01)


@pytest.mark.parametrize("name", ["PazoM", "PazoP", "PazoS", "DPMD", "DopeSGD", "GEP"])
def test_methods_with_public_records_have_some_set_aside(name: str):
    text = changed('"DPZero"', f'"{name}"')
    with pytest.raises(ConfigurationError, match=f"{name} uses public records: add public_records = 2000"):
        parse(text)
    made = parse(text.replace('"mnist"', '"mnist"\npublic_records = 2000'))
    assert type(made.method).__name__ == name and made.known_records() == 58_000
    assert parse(text.replace('"mnist"', '"mnist"\npublic_records = 2000\nlimit = 500')).known_records() == 500


@pytest.mark.parametrize(
    ("records", "words"), [("60000", "60000 training records"), ("-1", "training records"), ("5", "uses no public")]
)
def test_public_records_of_built_in_data_are_checked(records: str, words: str):
    with pytest.raises(ConfigurationError, match=words):
        parse(changed('"mnist"', f'"mnist"\npublic_records = {records}'))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"mnist"', '"mnist"\nlimit = 0', "limit = 0: mnist has 60000"),
        ('"mnist"', '"mnist"\nlimit = 99999999', "mnist has 60000 records"),
        ('"mnist"', '"mnist"\nlimit = 2000\nrecords = 1000', "mnist has 2000, which is known"),
        ('"mlp"', '"mlp"\nshape = [1, 28]', "shape = [1, 28]: "),
        ('"mlp"', '"mlp"\nclasses = 0', "at least 1 output"),
        ("epochs = 2", 'epochs = 2\ndataset = ""', "give the data set a name"),
    ],
)
def test_what_training_would_refuse_is_refused_by_the_file_already(old: str, new: str, words: str):
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        parse(changed(old, new))


@pytest.mark.parametrize("name", models.names())
def test_every_built_in_model_is_known(name: str):
    assert parse(changed('"mlp"', f'"{name}"\nseed = 3\nclasses = 2\nshape = [1, 8, 8]')).model.name == name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[method]", "[metod]", "[metod] is not a known table: did you mean 'method'? Known are data, model"),
        ("batch_size", "bach_size", "[run] bach_size is not known: did you mean 'batch_size'? Known are epochs, steps"),
        ("lr = 0.01", "learning = 0.01", "[method] learning is not known"),
        ("lr = 0.01", "", "[method] needs lr (a number), which is missing"),
        ("lr = 0.01", "lr = 0.01\nbatch_size = 3", "[method] batch_size is not known: it belongs in [run]"),
        ("[run]", "[run]\nepsilon = 1", "[run] epsilon is not known: it belongs in [budget]"),
        ("epochs = 2", 'epochs = "2"', "[run] epochs = '2': a number is needed, text was given"),
        ("batch_size = 256", "batch_size = 2.5", "[run] batch_size = 2.5: a whole number is needed, a number with a"),
        ("batch_size = 256", "batch_size = true", "[run] batch_size = True: a whole number is needed, a boolean was"),
        ("epochs = 2", "sampling = 'posson'", "[run] sampling = 'posson': did you mean 'poisson'? one of"),
        ("epochs = 2", "sampling = 'fullbatch'", "did you mean 'full-batch'? one of 'poisson', 'single-pass'"),
        ('"DPZero"', '"dpzero"', "[method] name = 'dpzero' is not known: did you mean 'DPZero'?"),
        ('"DPZero"', '"my:method"', "[method] name = 'my:method' is not known"),
        ('"mnist"', '"mnits"', "[data] name = 'mnits' is not known: did you mean 'mnist'?"),
        ('"mnist"', '"mnist"\nlimt = 3', "[data] limt is not known: did you mean 'limit'? Known are limit, normalise"),
        ('"mlp"', '"mlp"\ndept = 3', "[model] dept is not known: did you mean 'depth'?"),
        ('"mlp"', '"mlp"\nwidth = "3"', "[model] width = '3': a whole number is needed, text was given"),
        ('"cross-entropy"', '"cross_entropy"', "did you mean 'cross-entropy'?"),
        ('"cross-entropy"', '"hinge"\nmetrics = "accuracy"', "a list of values, each text is needed, text was given"),
        ('"cross-entropy"', '"hinge"\nmetrics = ["acuracy"]', "metrics names 'acuracy', which is not known: did"),
        ('"mlp"', "3", "[model] name = 3: text is needed"),
        ('name = "mlp"', "", "[model] name is missing"),
        ("delta = 1e-6", "", "[budget] needs delta (a number), which is missing"),
        ("delta = 1e-6", "delta = 2", "delta=2.0: it must lie"),
        ("delta = 1e-6", "delta = 1e-6\nneighbours = 'addremove'", "one of 'zero-out', 'add-remove', 'replace-one'"),
        ("lr = 0.01", "lr = -1", "the learning rate must be a finite number"),
        ("[budget]\nepsilon = 1\ndelta = 1e-6\n", "", "[budget] is missing: DPZero is private"),
        ('"DPZero"', '"SGD"', "SGD is a reference WITHOUT PRIVACY and cannot keep a budget"),
        ("epochs = 2", "momentum = 1.5", "momentum=1.5"),
        ("epochs = 2", "epochs = 2\nupdate = { scheduler = 'step' }", "[run.update] scheduler is not known: did"),
        ("epochs = 2", "schedule = 'cosin'", "choose one of constant, linear, cosine"),
        ("epochs = 2", "update = 3", "[run] update = 3: a table is needed"),
        ("epochs = 2", "evaluate_every = 0", "evaluate_every = 0: at least 1"),
        ("epochs = 2", "name = '../x'", "a run's name is that of a folder"),
        ("[data]", "epsilon = 3\n[data]", "epsilon = 3 stands outside of the tables: put it under [budget]"),
        ("[data]", "what = 3\n[data]", "put it under one of the tables [data], [model]"),
        ("[data]\n", "data = 3\n", "data = 3 stands outside"),
        ("batch_size = 256", "batch_size = 256\n[run.update]\nmomentun = 1", "[run.update] momentun is not known: did"),
        ("epochs = 2", "momentum = 0.1\nupdate.momentum = 0.2", "momentum is given in [run] and in [run.update]"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_mended(old: str, new: str, said: str):
    assert said in refusal(changed(old, new))


@pytest.mark.parametrize("table", ["data", "model", "loss", "method", "run"])
def test_a_missing_table_is_named(table: str):
    document = tomllib.loads(MINIMAL)
    del document[table]
    with pytest.raises(ConfigurationError, match=rf"the table \[{table}\] is missing: it "):
        config.parse(document)


def test_a_named_data_set_is_not_touched_without_privacy():
    text = changed('"DPZero"', '"SGD"').replace("[budget]\nepsilon = 1\ndelta = 1e-6\n", "")
    assert "cannot be entered in the ledger" in refusal(text.replace("epochs = 2", 'epochs = 2\ndataset = "clinic"'))


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"there is no configuration file .*absent.toml"):
        config.read(tmp_path / "absent.toml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        config.read(tmp_path)
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        config.read(file)
    file.write_text("[data]\nname = \n")
    with pytest.raises(ConfigurationError, match=r"run.toml is not TOML: .*line 2"):
        config.read(file)
    file.write_text(MINIMAL + "speed = 3")
    with pytest.raises(ConfigurationError, match=r"run.toml: \[run\] speed is not known"):
        config.read(file)


def test_the_public_number_of_records_is_known_without_data_where_it_can_be():
    assert parse(MINIMAL).known_records() == 60_000
    assert parse(MINIMAL).known_records(7) == 7
    assert parse(changed('"mnist"', '"mnist"\nlimit = 500')).known_records() == 500
    assert parse(changed('"mnist"', '"mine:load"')).known_records() is None
    assert parse(changed('"mnist"', '"mine:load"\nrecords = 9')).known_records() == 9
    protected = changed("delta = 1e-6", "delta = 1e-6\nneighbours = 'add-remove'")
    assert parse(protected).known_records() is None
    assert parse(protected.replace("epochs = 2", "epochs = 2\nrecords = 9")).known_records() == 9


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\nb", "x" * 300])
def test_a_run_name_cannot_leave_its_folder(name: str):
    with pytest.raises(ConfigurationError, match="a run's name"):
        config.check_run_name(name)


def test_types_are_judged_as_they_are_written():
    def target(
        number: float, *, shape: tuple[int, int], either: int | str | None = None, kind: Literal["a", "b"] = "a",
        pair: tuple[float, ...] = (), own: complex = 0j,
    ) -> None: ...  # fmt: skip

    bound = bind("[t]", {"number": 1, "shape": [2, 3], "pair": [1, 2.5], "own": 3}, target)
    assert bound == {"number": 1.0, "shape": (2, 3), "pair": (1.0, 2.5), "own": 3, "kind": "a"}
    for value in ([1], [1, 2, 3], [1, "2"], 3):
        with pytest.raises(ConfigurationError, match="a list of 2, each a whole number is needed"):
            bind("[t]", {"number": 1, "shape": value}, target)
    with pytest.raises(ConfigurationError, match=r"needs number \(a number\) and shape .* are missing"):
        bind("[t]", {}, target)
    assert convert("x", "text", int | str | None) == "text"
    assert describe(int | str | None) == "a whole number or text"
    with pytest.raises(ConfigurationError, match="a whole number or text is needed, a list was given"):
        convert("x", [], int | str | None)


def test_functions_that_take_anything_take_any_key():
    assert bind("[t]", {"a": 1}, lambda **options: options) == {"a": 1}
    assert bind("[t]", {"a": 1}, max) == {"a": 1}


def test_nearness_ignores_case_and_underscores():
    assert nearest("Batch-Size", ["batch_size", "epochs"]).startswith("did you mean 'batch_size'?")
    assert nearest("zzz", ["batch_size"]) == "Known are batch_size."
    assert nearest("zzz", []) == "Known are none."
