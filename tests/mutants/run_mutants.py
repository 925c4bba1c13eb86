"""Runs named tests against mutated copies of ``src/``, each in a fork of one process that has torch loaded.

Nothing of sottovoce is imported here, so that every fork imports its own copy.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

# Loaded once for all forks; none of them is sottovoce.
import dp_accounting.pld.privacy_loss_distribution
import hypothesis
import mpmath
import numpy as np
import pytest
import scipy.special
import torch
import torch.func
import typer

from mutants import MUTANTS, Mutant

LOADED = (dp_accounting, hypothesis, mpmath, np, scipy, typer)
ROOT = Path(__file__).parents[2]


def copy_of_source(folder: Path, mutant: Mutant | None) -> None:
    shutil.copytree(ROOT / "src" / "sottovoce", folder / "sottovoce", ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        path = folder / "sottovoce" / mutant.file
        lines = path.read_text().splitlines()
        (number,) = [i for i, line in enumerate(lines) if line.strip() == mutant.line]
        indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
        lines[number] = indent + mutant.instead
        path.write_text("\n".join(lines) + "\n")


def outcome(tests: list[str], mutant: Mutant | None) -> int:
    """Pytest's exit code in a fork that sees the mutated source first: 0 passed, 1 failed."""
    with tempfile.TemporaryDirectory() as name:
        copy_of_source(Path(name), mutant)
        child = os.fork()
        if child == 0:
            code = 99
            try:
                with Path(name, "output").open("w") as output:
                    os.dup2(output.fileno(), 1)
                    os.dup2(output.fileno(), 2)
                    sys.path.insert(0, name)
                    torch.set_num_threads(1)
                    os.chdir(ROOT)
                    code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
                    assert Path(sys.modules["sottovoce"].__file__ or "").is_relative_to(name), "another copy was tested"
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    chosen = [m for m in MUTANTS if not sys.argv[1:] or m.name in sys.argv[1:]]
    found = {mutant.name: outcome([mutant.killer], mutant) for mutant in chosen}
    # The same tests on the source as it is: a killer that fails anyway kills nothing.
    found["unmutated"] = outcome(sorted({mutant.killer for mutant in chosen}), None)
    print(json.dumps(found, indent=1))  # noqa: T201
