"""Small tensors gain nothing from several threads, and a busy machine loses much."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_ledger_and_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """No test reads or writes the user's own ledger."""
    monkeypatch.setenv("SOTTOVOCE_LEDGER", str(tmp_path_factory.mktemp("ledger") / "ledger.db"))
