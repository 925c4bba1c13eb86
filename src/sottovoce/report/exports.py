"""The numbers of a comparison for programs: JSON with everything, CSV with one line for each run."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sottovoce.report import words
from sottovoce.report.entries import Entry

SCHEMA = 1
COLUMNS = (
    "name", "private", "epsilon", "epsilon_spent", "delta", "neighbours", "accuracy", "seconds", "peak_memory_mb",
    "steps", "trains_on", "note",
)  # fmt: skip


def to_json(entries: Sequence[Entry], title: str, intro: str, facts: Mapping[str, str]) -> str:
    """Everything that the page was made from, histories included."""
    values = {
        "schema": SCHEMA,
        "title": title,
        "headline": words.headline(entries),
        "intro": intro,
        "facts": dict(facts),
        "entries": [{**asdict(entry), "private": entry.private, "kind": entry.kind} for entry in entries],
    }
    return json.dumps(_plain(values), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """What JSON can hold: numbers that are infinite or absent become null, unknown objects their text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def write_csv(entries: Sequence[Entry], path: Path) -> None:
    """One line for each run; a field is empty where there is no number, and no bound."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for entry in entries:
            bound, stated = entry.private, entry.statement
            writer.writerow(
                (
                    entry.name,
                    entry.private,
                    _cell(stated.epsilon if bound else math.inf),
                    _cell(stated.epsilon_spent if bound else math.inf),
                    _cell(stated.delta if bound else math.inf),
                    stated.neighbours if bound else "",
                    _cell(entry.accuracy),
                    _cell(entry.seconds),
                    _cell(entry.peak_memory),
                    stated.steps_run,
                    entry.trains_on,
                    entry.note,
                )
            )


def _cell(value: float) -> float | str:
    """Empty where there is no number."""
    return float(value) if math.isfinite(value) else ""
