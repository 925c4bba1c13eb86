"""Run in a process of its own: download a source archive with pip's finder and session, and do nothing with it.

Arguments: the package's name, its version, the archive's file name, and the folder for it. The parts of pip that are
used are not promised to stay as they are (tried with pip 23.2 and 26.3); where they differ, this ends with a message.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


def fetch(package: str, version: str, archive: str, folder: Path) -> None:
    """Download ``archive``; every failure is an exception."""
    from pip._internal.commands import create_command

    command: Any = create_command("download")
    words = ["--no-input", "--no-cache-dir", "--no-deps", "--no-binary", ":all:", f"{package}=={version}"]
    options, _ = command.parse_args(words)
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        links = [found.link for found in finder.find_all_candidates(package)]
        link = next((link for link in links if link.filename == archive), None)
        if link is None:
            raise LookupError(f"no package index that pip is configured for has {archive}")
        answer = session.get(link.url_without_fragment, headers={"Accept-Encoding": "identity"}, stream=True)
        answer.raise_for_status()
        with (folder / archive).open("wb") as file:
            for block in answer.iter_content(CHUNK):
                file.write(block)


def main() -> None:
    """Run :func:`fetch`, and turn what it raises into one line."""
    package, version, archive, folder = sys.argv[1:]
    try:
        fetch(package, version, archive, Path(folder))
    except (ImportError, AttributeError, TypeError) as error:
        sys.exit(f"ERROR: this pip cannot be used to download a source archive alone ({error})")
    except Exception as error:
        sys.exit(f"ERROR: {type(error).__name__}: {' '.join(str(error).split())}")


if __name__ == "__main__":
    main()
