"""The program that downloads a source archive: in a process of its own, with a pip of ours in the place of pip."""

import subprocess
import sys
from pathlib import Path

import pytest

from sottovoce.tasks.data.download import sdist

STAND_IN = """
import contextlib, shutil
from pathlib import Path
class Link:
    filename, url_without_fragment = "thing-1.0.tar.gz", "somewhere"
class Candidate: link = Link
class Answer:
    def raise_for_status(self): pass
    def iter_content(self, size): return iter([b"con", b"tent"])
class Session:
    def get(self, url, headers, stream):
        assert (url, stream) == ("somewhere", True)
        return Answer()
class Finder:
    def find_all_candidates(self, name): return [Candidate] if name == "thing" else []
class Command:
    def parse_args(self, words): return words, []
    def main_context(self): return contextlib.nullcontext()
    def get_default_session(self, options): return Session()
    def _build_package_finder(self, options, session): return Finder()
def create_command(name):
    assert name == "download"
    return Command()
"""


def run_program(folder: Path, commands: str | None, package: str) -> "subprocess.CompletedProcess[str]":
    """The program with a pip of ours, which is found before the real one."""
    internal = folder / "pip" / "_internal"
    internal.mkdir(parents=True)
    for place in (internal.parent, internal):
        (place / "__init__.py").write_text("")
    if commands is not None:
        (internal / "commands.py").write_text(commands)
    (folder / "out").mkdir()
    words = [package, "1.0", "thing-1.0.tar.gz", str(folder / "out")]
    return subprocess.run(
        [sys.executable, "-P", str(sdist.PROGRAM), *words],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def in_a_process(test: pytest.MonkeyPatch) -> None:
    test.undo()  # these start a Python, and download nothing


def test_the_program_writes_the_archive_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    in_a_process(monkeypatch)
    done = run_program(tmp_path, STAND_IN, "thing")
    assert done.returncode == 0, done.stderr
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "out").iterdir()] == [
        ("thing-1.0.tar.gz", b"content")
    ]


@pytest.mark.parametrize(
    ("commands", "package", "message"),
    [
        (STAND_IN, "another", "no package index that pip is configured for has thing-1.0.tar.gz"),
        (None, "thing", "this pip cannot be used to download a source archive alone"),
        ("def create_command(name): return object()", "thing", "this pip cannot be used"),
        ("def create_command(name): raise OSError('no\\nroute')", "thing", "OSError: no route"),
    ],
)
def test_the_program_ends_with_one_line_when_it_fails(
    commands: str | None, package: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    in_a_process(monkeypatch)
    done = run_program(tmp_path, commands, package)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.startswith("ERROR: ")
    assert done.stderr.count("\n") == 1
