"""A lock that a run holds for as long as its process lives, so that others can tell the living from the dead.

The kernel frees the lock when the process dies, however it dies, or when the descriptor is closed. The lock never
protects the accounting: a run that is settled while it lives cannot lease another step (the ledger sees to that in
one transaction). It only keeps the living from being settled.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, *, exclusive: bool) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK if exclusive else msvcrt.LK_NBRLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int, *, exclusive: bool) -> None:
        """Two openings of a file exclude each other, also within one process."""
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


def take(path: Path) -> int:
    """Make the file and lock it: the descriptor that holds the lock. An executed program does not inherit it."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    _lock(descriptor, exclusive=True)
    return descriptor


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock, or its file is gone. Those who look do not stand in each other's way."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        _lock(descriptor, exclusive=False)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
