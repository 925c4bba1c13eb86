"""The cache folder: one subfolder for each data set, with ``images.npz`` and ``provenance.json``.

Both files are written under another name and then renamed, the provenance last; it holds the sha256 of the images,
which is checked at each read. So a fetch that was killed, or a file that was damaged, is noticed and never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.privacy.errors import DataError, SottovoceError
from sottovoce.tasks.data.arrays import Arrays, check
from sottovoce.tasks.data.registry import DatasetSpec

FORMAT = 1
"""The format number of a cached data set; another one is refused."""


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


def images_file(spec: DatasetSpec) -> Path:
    """Where the images and labels of ``spec`` are, or would be."""
    return root() / spec.name / "images.npz"


def provenance_file(spec: DatasetSpec) -> Path:
    """Where the record of the origin of ``spec`` is, or would be."""
    return root() / spec.name / "provenance.json"


def is_cached(spec: DatasetSpec) -> bool:
    """Whether a finished copy is there; its content is checked only when it is read."""
    return images_file(spec).is_file() and provenance_file(spec).is_file()


def require(spec: DatasetSpec) -> None:
    """Raise :class:`DatasetMissing` unless a finished copy is there."""
    if not is_cached(spec):
        given = f", where FOLDER holds {spec.folder_note}" if spec.wheel is None else ""
        raise DatasetMissing(
            f"the data set {spec.name!r} is not in {images_file(spec).parent}. Get it with `{spec.command}`{given}."
        )


def store(spec: DatasetSpec, arrays: Arrays, origin: Mapping[str, str]) -> Path:
    """Write checked ``arrays`` with the note of their ``origin``; return the file of images."""
    target = images_file(spec)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _replacing(target) as temporary:
            with temporary.open("wb") as stream:
                np.savez(stream, **asdict(arrays))
            digest = _sha256(temporary)
        note = {"format": FORMAT, "name": spec.name, "sha256": digest, "terms": spec.terms, "origin": dict(origin)}
        with _replacing(provenance_file(spec)) as temporary:
            temporary.write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"{target.parent}: the data set cannot be written there ({error}). Free some space, or set SOTTOVOCE_DATA "
            "to a folder that can be written."
        ) from error
    return target


def read(spec: DatasetSpec) -> tuple[Arrays, dict[str, Any]]:
    """The stored arrays, checked against their hash and against ``spec``, and their provenance.

    Raises:
        DatasetMissing: it was never fetched.
        DataError: it is damaged or of an unknown format; nothing is changed.
    """
    require(spec)
    file = images_file(spec)
    mend = f"Run `{spec.command}` to write it anew."
    try:
        note = json.loads(provenance_file(spec).read_text(encoding="utf-8"))
        if not isinstance(note, dict) or note.get("format") != FORMAT:
            raise DataError(f"{file.parent}: its format is not {FORMAT}, the only one known here. {mend}")
        if _sha256(file) != note.get("sha256"):
            raise DataError(f"{file}: its sha256 is not the one noted when it was written; it is damaged. {mend}")
        with np.load(file, allow_pickle=False) as stored:
            arrays = Arrays(
                train_images=stored["train_images"],
                train_labels=stored["train_labels"],
                test_images=stored["test_images"],
                test_labels=stored["test_labels"],
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file.parent}: it cannot be read ({error}). {mend}") from error
    return check(arrays, spec, str(file)), note


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
