"""A lock that a run holds for as long as its process lives, so that others can tell the living from the dead.

The kernel frees the lock when the process dies, however it dies. The lock never protects the accounting: a run
that is settled while it lives cannot lease another step (the ledger checks that in the same transaction). It only
keeps the living from being settled.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int, *, exclusive: bool) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK if exclusive else msvcrt.LK_NBRLCK, 1)

else:
    import fcntl

    def _take(descriptor: int, *, exclusive: bool) -> None:
        """Two open files exclude each other, also within one process."""
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


class RunLock:
    """The lock of one run, taken when it is made. Dropping the object frees the lock and leaves its file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._path, self._descriptor = path, -1
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _in_this_process.add(self)
        _take(self._descriptor, exclusive=True)

    def held(self) -> bool:
        """Whether the file that others look at is still the one that this object has locked."""
        with contextlib.suppress(OSError):
            return self._descriptor >= 0 and os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        return False

    def release(self) -> None:
        """Free the lock and remove its file. Idempotent."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # gone already, or, on Windows, another process looks at it
                self._path.unlink()
        self.forget()

    def forget(self) -> None:
        """Close the file without unlocking it: a forked child must neither hold nor free its parent's lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.forget()


_in_this_process: weakref.WeakSet[RunLock] = weakref.WeakSet()


def is_free(path: Path) -> bool:
    """Whether nobody alive holds the lock. Those who look do not stand in each other's way."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        _take(descriptor, exclusive=False)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _forget_all() -> None:
    for lock in list(_in_this_process):
        lock.forget()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_all)
