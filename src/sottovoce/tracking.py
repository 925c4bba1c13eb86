"""Which data set a run is charged to, and where that is recorded."""

from __future__ import annotations

from typing import Any

from sottovoce.places import ledger_path
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.ledger import Ledger


def check_tracking(dataset: Any, ledger: Any) -> None:
    """What names a data set, and where its runs are recorded."""
    if ledger is not None and not isinstance(ledger, Ledger):
        raise ConfigurationError(f"ledger={ledger!r}: give an opened one, such as Ledger.open('ledger.db').")
    if ledger is not None and dataset is None:
        raise ConfigurationError("ledger= was given without dataset=: name the data set that the run is charged to.")
    if dataset is not None and not isinstance(dataset, str):
        raise ConfigurationError(f"dataset={dataset!r}: give the data set's name as text, such as 'clinic-2026'.")


def ledger_for(dataset: str | None, ledger: Ledger | None) -> Ledger | None:
    """The ledger that was given; for a named data set without one, the default ledger."""
    return Ledger.open(ledger_path()) if dataset is not None and ledger is None else ledger
