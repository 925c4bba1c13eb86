"""The cache folder: one subfolder for each data set, with its content and ``provenance.json``.

Images are ``images.npz`` and texts ``texts.npz`` (arrays alone, never a pickle); the files of weights are kept as they
are. Every file is written under another name and then renamed, the provenance last; it holds the sha256 of each file,
which is checked at each read. So a fetch that was killed, or a file that was damaged, is noticed and never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sottovoce.privacy.errors import DataError, SottovoceError
from sottovoce.tasks.data import arrays, records
from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.arrays import Arrays
from sottovoce.tasks.data.records import Texts
from sottovoce.tasks.data.specs import DatasetSpec

FORMAT = 2
"""The format number of a cached data set. Format 1 knew images only and is still read; another one is refused."""


class DatasetMissing(SottovoceError, FileNotFoundError):
    """The data set is not in the cache; the message holds the one command that gets it."""


def root() -> Path:
    """``$SOTTOVOCE_DATA`` if it is set, else ``sottovoce/data`` in the platform's cache folder for the user."""
    chosen = os.environ.get("SOTTOVOCE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sottovoce" / "data"


def place(spec: DatasetSpec) -> Path:
    """Where ``spec`` is, or would be: one file for images and texts, a folder for weights."""
    folder = root() / spec.name
    return folder if spec.kind == "weights" else folder / f"{spec.kind}.npz"


def provenance_file(spec: DatasetSpec) -> Path:
    """Where the record of the origin of ``spec`` is, or would be."""
    return root() / spec.name / "provenance.json"


def is_cached(spec: DatasetSpec) -> bool:
    """Whether a finished copy is there; its content is checked only when it is read."""
    return all(file.is_file() for file in (*_contents(spec).values(), provenance_file(spec)))


def require(spec: DatasetSpec) -> None:
    """Raise :class:`DatasetMissing` unless a finished copy is there."""
    if not is_cached(spec):
        given = f", where FOLDER holds {spec.folder_needs}" if spec.package is None else ""
        raise DatasetMissing(
            f"the data set {spec.name!r} is not in {root() / spec.name}. Get it with `{spec.command}`{given}."
        )


def store(spec: DatasetSpec, content: Arrays | Texts, origin: Mapping[str, Any]) -> Path:
    """Write checked ``content`` with the note of its ``origin``; return the file."""
    target = place(spec)
    packed: dict[str, Any] = records.pack(content, spec) if isinstance(content, Texts) else asdict(content)
    with _writing(spec), _replacing(target) as temporary:
        with temporary.open("wb") as stream:
            np.savez(stream, **packed)
        digest = _sha256(temporary)
    _store_note(spec, {target.name: digest}, origin)
    return target


def store_files(spec: DatasetSpec, parts: Iterable[Part], origin: Mapping[str, Any]) -> Path:
    """Write every member of ``parts`` as a file, under the last part of its name; return the folder.

    The files take their places only after the last of them, and the end of the archive, have been read.
    """
    kept = _contents(spec)
    digests: dict[str, str] = {}
    folder = place(spec)
    with _writing(spec), _temporary_folder(folder) as temporary:
        for member, stream in parts:
            file = temporary / PurePosixPath(member.name).name
            with file.open("wb") as out:
                shutil.copyfileobj(stream, out)
            if file.stat().st_size != member.size:
                raise DataError(f"{member.name}: {file.stat().st_size} bytes, where {member.size} are needed.")
            digests[file.name] = _sha256(file)
        if digests.keys() != kept.keys():
            raise DataError(f"{spec.name}: {', '.join(kept.keys() - digests.keys())} is missing.")
        for name, file in kept.items():
            (temporary / name).replace(file)
    _store_note(spec, digests, origin)
    return folder


def read(spec: DatasetSpec) -> tuple[Arrays | Texts, dict[str, Any]]:
    """The stored images or texts, checked against their hash and against ``spec``, and their provenance.

    Raises:
        DatasetMissing: it was never fetched.
        DataError: it is damaged or of an unknown format; nothing is changed.
    """
    note = _verified(spec)
    file = place(spec)
    counts = spec.counts_of(str(note["origin"].get("kind")))
    with _reading(spec), np.load(file, allow_pickle=False) as stored:
        if spec.kind == "texts":
            return records.check(records.unpack(stored), spec, counts, str(file)), note
        names = ("train_images", "train_labels", "test_images", "test_labels")
        content = Arrays(*(stored[name] for name in names))
    return arrays.check(content, spec, counts, str(file)), note


def files(spec: DatasetSpec) -> dict[str, Path]:
    """The files of ``spec`` by name, each with the hash noted when it was written.

    Raises:
        DatasetMissing: it was never fetched.
        DataError: it is damaged or of an unknown format; nothing is changed.
    """
    _verified(spec)
    return _contents(spec)


def _contents(spec: DatasetSpec) -> dict[str, Path]:
    target = place(spec)
    if spec.kind != "weights":
        return {target.name: target}
    kept = [PurePosixPath(member.name).name for member in (spec.package.members if spec.package else ())]
    return {name: target / name for name in kept}


def _verified(spec: DatasetSpec) -> dict[str, Any]:
    """The provenance, after every file was found to be the one that it notes."""
    require(spec)
    folder = root() / spec.name
    with _reading(spec):
        note = json.loads(provenance_file(spec).read_text(encoding="utf-8"))
        if not isinstance(note, dict) or note.get("format") not in (1, FORMAT):
            raise DataError(f"{folder}: its format is not {FORMAT}, the newest one known here. {_mend(spec)}")
        noted = note["files"] if note["format"] == FORMAT else {"images.npz": note["sha256"]}
        for name, file in _contents(spec).items():
            if _sha256(file) != noted.get(name):
                raise DataError(
                    f"{file}: its sha256 is not the one noted when it was written; it is damaged. {_mend(spec)}"
                )
        if not isinstance(note["origin"], dict):
            raise ValueError("its origin is not noted")
    return note


def _store_note(spec: DatasetSpec, digests: Mapping[str, str], origin: Mapping[str, Any]) -> None:
    note = {
        "format": FORMAT,
        "name": spec.name,
        "files": dict(digests),
        "terms": spec.terms,
        "note": spec.note,
        "origin": dict(origin),
    }
    with _writing(spec), _replacing(provenance_file(spec)) as temporary:
        temporary.write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")


def _mend(spec: DatasetSpec) -> str:
    return f"Run `{spec.command}` to write it anew."


@contextmanager
def _reading(spec: DatasetSpec) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{root() / spec.name}: it cannot be read ({error}). {_mend(spec)}") from error


@contextmanager
def _writing(spec: DatasetSpec) -> Iterator[None]:
    folder = root() / spec.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DataError(
            f"{folder}: the data set cannot be written there ({error}). Free some space, or set SOTTOVOCE_DATA to a "
            "folder that can be written."
        ) from error


@contextmanager
def _temporary_folder(folder: Path) -> Iterator[Path]:
    """A new folder inside ``folder`` that vanishes at the end."""
    temporary = folder / f".{secrets.token_hex(8)}"
    try:
        temporary.mkdir()
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A new path beside ``target`` that takes its place at the end, or vanishes after an error."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
