"""Natural-language inference: premise, hypothesis and gold label, as JSON lines or as a table separated by tabs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.formats.reading import lines, malformed, value
from sottovoce.tasks.data.records import Record, Texts, collect
from sottovoce.tasks.data.specs import DatasetSpec

_NO_GOLD = "-"  # the annotators did not agree; such a pair is left out, as is the custom
_COLUMNS = ("sentence1", "sentence2", "gold_label")

_FILES = {
    "snli": (("snli_1.0_train.jsonl", "snli_1.0_test.jsonl"),),
    "mnli": (
        ("multinli_1.0_train.jsonl", "multinli_1.0_dev_matched.jsonl"),
        ("multinli_1.0_train.txt", "multinli_1.0_dev_matched.txt"),
        ("train.tsv", "dev_matched.tsv"),
    ),
}
_SUBFOLDERS = {"snli": (".", "snli_1.0"), "mnli": (".", "multinli_1.0", "MNLI")}


def read_parts(parts: Iterator[Part], spec: DatasetSpec) -> Texts:
    """The members ``train`` and ``test``, as JSON lines."""
    read_by_role = {
        member.role: list(_json_lines(stream, spec, f"{spec.name}, {member.name}")) for member, stream in parts
    }
    return collect(read_by_role["train"], read_by_role["test"])


def read_folder(folder: Path, spec: DatasetSpec) -> Texts:
    """The two original files in ``folder``, or in the folder of the original's name inside it."""
    for place in _SUBFOLDERS[spec.name]:
        for names in _FILES[spec.name]:
            files = [folder / place / name for name in names]
            if all(file.is_file() for file in files):
                return collect(*(_read_file(file, spec) for file in files))
    raise DataError(f"{folder}: the files are not there. {spec.name} needs {spec.folder_note}.")


def _read_file(file: Path, spec: DatasetSpec) -> Iterator[Record]:
    with file.open("rb") as stream:
        yield from (_json_lines if file.suffix == ".jsonl" else _table)(stream, spec, str(file))


def _json_lines(stream: BinaryIO, spec: DatasetSpec, origin: str) -> Iterator[Record]:
    for line in lines(stream, origin):
        pair = value(line, origin)
        if not isinstance(pair, dict):
            raise malformed(origin, "a line that is no JSON object")
        yield from _record([pair.get(column) for column in _COLUMNS], spec, origin)


def _table(stream: BinaryIO, spec: DatasetSpec, origin: str) -> Iterator[Record]:
    """Lines separated by tabs, in which quotation marks mean nothing; a header names the columns."""
    table = lines(stream, origin)
    header = next(table, "").split("\t")
    try:
        columns = [header.index(column) for column in _COLUMNS]
    except ValueError:
        raise malformed(origin, f"a header without {', '.join(_COLUMNS)}") from None
    for line in table:
        fields = line.split("\t")
        if len(fields) != len(header):
            raise malformed(origin, f"a line of {len(fields)} fields, where the header has {len(header)}")
        yield from _record([fields[column] for column in columns], spec, origin)


def _record(fields: list[object], spec: DatasetSpec, origin: str) -> Iterator[Record]:
    match fields:
        case [str(), str(), str(gold)] if gold == _NO_GOLD:
            return
        case [str(premise), str(hypothesis), str(gold)] if gold in spec.classes:
            yield (premise, hypothesis), spec.classes.index(gold)
        case _:
            raise malformed(origin, f"a pair without two sentences and a gold label of {', '.join(spec.classes)}")
