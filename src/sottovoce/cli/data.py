"""The commands ``sottovoce data list | get | path``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sottovoce.cli.support import FAILURE, USAGE, AsJson, fail, one_line
from sottovoce.privacy.errors import ConfigurationError, DataError, SottovoceError
from sottovoce.tasks import data

app = typer.Typer(
    help="Real data sets and weights: list them, get one into the cache, say where it is.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `sottovoce data list` shows.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FOLDER", help="Read the original files, or the pinned archive, in FOLDER; download nothing."
    ),
]


@app.command("list")
def list_data(*, as_json: AsJson = False) -> None:
    """Show the known data sets, their terms, and which are in the cache."""
    specs = [data.spec(name) for name in data.names()]
    if as_json:
        typer.echo(json.dumps([_summary(spec) for spec in specs], indent=2))
        return
    table = Table(title=f"Data sets (cache: {data.root()})")
    for column in ("name", "kind", "size", "from", "cached"):
        table.add_column(column, no_wrap=True)
    for spec in specs:
        table.add_row(
            spec.name,
            spec.kind,
            _size(spec),
            "a folder" if spec.package is None else f"{spec.package.registry}, {_megabytes(spec.package.archive_size)}",
            "yes" if data.is_cached(spec) else "no",
        )
    console = Console()
    console.print(table)
    terms = ["Terms, as far as they are stated:", *(f"{spec.name}: {spec.terms}" for spec in specs)]
    console.print("\n".join(terms), markup=False, highlight=False)
    missing = [spec.command for spec in specs if not data.is_cached(spec)]
    if missing:
        console.print("\n".join(["To get those that are not cached:", *missing]), markup=False, highlight=False)


@app.command("get")
def get_data(name: Name, *, source: Folder = None, as_json: AsJson = False) -> None:
    """Put a data set into the cache: from its pinned package, or from a folder that has the files."""
    with _errors(as_json=as_json, given=source):
        file = data.get(name, source)
    _print_path(name, file, as_json=as_json)


@app.command("path")
def path_data(name: Name, *, as_json: AsJson = False) -> None:
    """Print where a cached data set is."""
    with _errors(as_json=as_json):
        file = data.path(name)
    _print_path(name, file, as_json=as_json)


def _size(spec: data.DatasetSpec) -> str:
    """Records of the train and the test part, or the size of the files of weights."""
    if spec.kind == "weights":
        return _megabytes(_bytes_kept(spec))
    test = f" + {spec.test_records:,}" if spec.test_records else ""
    return f"{spec.train_records:,}{test}"


def _bytes_kept(spec: data.DatasetSpec) -> int:
    return sum(member.size for member in spec.package.members) if spec.package is not None else 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def _summary(spec: data.DatasetSpec) -> dict[str, object]:
    package = spec.package
    summary: dict[str, object] = {
        "name": spec.name,
        "title": spec.title,
        "kind": spec.kind,
        "terms": spec.terms,
        "source": spec.source,
        "note": spec.note,
        "registry": None if package is None else package.registry,
        "package": None if package is None else package.requirement,
        "sha256": None if package is None else package.sha256,
        "download_bytes": None if package is None else package.archive_size,
        "cached": data.is_cached(spec),
        "command": spec.command,
    }
    if spec.kind == "weights":
        return summary | {"bytes": _bytes_kept(spec)}
    records = {"train": spec.train_records, "test": spec.test_records, "classes": list(spec.classes)}
    form = {"shape": list(spec.shape)} if spec.kind == "images" else {"fields": list(spec.fields)}
    return summary | records | form


def _print_path(name: str, file: Path, *, as_json: bool) -> None:
    typer.echo(json.dumps({"name": name, "path": str(file)}) if as_json else str(file))


@contextmanager
def _errors(*, as_json: bool, given: Path | None = None) -> Iterator[None]:
    """Turn the library's errors into one line on the standard error stream and an exit code.

    A folder that was given and is not what is needed was given wrongly; a bad download was not.
    """
    try:
        yield
    except SottovoceError as error:
        wrong = ConfigurationError if given is None else (ConfigurationError, DataError)
        fail(one_line(str(error)), USAGE if isinstance(error, wrong) else FAILURE, as_json=as_json)
