"""Every seeded bug is noticed by the test that the list names for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mutants import MUTANTS, Mutant

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "sottovoce"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_exactly_one_line_that_exists(mutant: Mutant):
    lines = [line.strip() for line in (SOURCE / mutant.file).read_text().splitlines()]
    assert lines.count(mutant.line) == 1
    assert mutant.instead != mutant.line


@pytest.mark.skipif(sys.platform == "win32", reason="the mutants run in forks")
def test_every_mutant_is_killed_by_its_test():
    command = [sys.executable, str(HERE / "run_mutants.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    found = json.loads(done.stdout)
    assert found.pop("unmutated") == 0
    assert found == {mutant.name: 1 for mutant in MUTANTS}, "a mutant survived (0), or its test could not run (others)"
