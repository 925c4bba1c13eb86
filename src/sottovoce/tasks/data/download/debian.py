"""Debian packages, by ``apt-get download``: the package file is fetched, and not installed."""

from __future__ import annotations

from pathlib import Path

from sottovoce.tasks.data.download.commands import Runner, call
from sottovoce.tasks.data.sources import Source


def download(source: Source, folder: Path, runner: Runner, other: str) -> None:
    """Put the package file into ``folder``."""
    command = ["apt-get", "--quiet", "--yes", "download", source.requirement]
    mend = f"Run `apt-get update` first, and see with `apt-cache policy {source.name}` which version there is. {other}"
    missing = f"apt-get is part of Debian and its relatives. {other}"
    call(runner, command, folder, what=f"apt, {source.requirement}", mend=mend, missing=missing)
