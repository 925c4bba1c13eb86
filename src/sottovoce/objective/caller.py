"""Warnings that point at the user's own line, however deep in the library they arise."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_caller(text: str, category: type[Warning]) -> None:
    """Warn as if the line outside of this library had done so that called into it."""
    level, frame = 2, sys._getframe(1)  # 1 would be this function
    while frame is not None and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
