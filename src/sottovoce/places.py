"""Where things are kept on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def ledger_path() -> Path:
    """$SOTTOVOCE_LEDGER, or ``sottovoce/ledger.db`` in the platform's folder for a user's data."""
    if named := os.environ.get("SOTTOVOCE_LEDGER"):
        return Path(named)
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return folder / "sottovoce" / "ledger.db"
