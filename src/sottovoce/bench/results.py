"""What a run leaves in its folder: the tables, the verdicts on the paper's shapes, the figures, and how it was made."""

from __future__ import annotations

import platform
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from sottovoce.bench import figures, plan, shapes, tables
from sottovoce.bench.cells import QUERIES, REPORT, SELECT, SHIFT, Row
from sottovoce.bench.plan import Extent
from sottovoce.bench.similarity import gamma
from sottovoce.bench.starts import load, start_of


def similarities(rows: Sequence[Row], starts: Path) -> dict[str, float]:
    """Gamma at the common start, for each setting of the shift table. NOT PRIVATE: the benchmark's data is public."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(row.setting for row in rows if row.stage == SHIFT):
        known = load(name)
        first = next(row for row in rows if (row.setting, row.stage) == (name, SHIFT))
        model = start_of(first.start._replace(seed=0), starts).model()
        found[name] = gamma(model, known.loss, known.private, known.public)
    return found


def write(rows: Sequence[Row], folder: Path, extent: Extent, similarity: Mapping[str, float]) -> list[str]:
    """The tables and verdicts in Markdown, and the figures. Returns the paths."""
    known = load(extent.setting)
    made = [tables.accuracy(rows), tables.public_gain(rows), tables.seconds(rows), tables.operations()]
    if any(row.stage == QUERIES for row in rows):
        made.append(tables.queries(rows))
    if similarity:
        made.append(tables.shift(rows, similarity))
    made.append(tables.settings(rows))
    first = rows[0]
    head = [
        f"# {known.title}",
        "",
        f"In the paper: {known.paper}",
        "",
        f"d = {first.parameters:,}; {first.records:,} private records; {first.steps} steps of expected batch "
        f"{first.batch_size}; {first.warm_start} steps of SGD on public records before every run; "
        f"delta = 1/records; {_seeds(rows)}.",
        "",
        "The data is public and treated as private. Each method's settings were chosen by up to "
        f"{_points(rows)} runs on these same private records, at epsilon {plan.SELECTION_EPSILON:g} with one seed, and "
        "the rate of the warm start on the validation records; the epsilons below are those of the reported run alone "
        "and count neither search. Differences between methods are in points of accuracy, with their standard error.",
        "",
    ]
    verdicts = ["**The paper's shapes**", ""]
    verdicts += [f"- {each.claim}: **{each.verdict}**. {each.evidence}".rstrip() for each in shapes.shapes(rows)]
    text = "\n".join([*head, *(part for table in made for part in (tables.markdown(table), "")), *verdicts]) + "\n"
    (folder / "tables.md").write_text(text, encoding="utf-8")
    return [str(path) for path in (folder / "tables.md", *figures.write_all(rows, folder))]


def note_command(folder: Path, device: str) -> None:
    """Keep the command line of a run, and what it ran on, below those of earlier runs into the same folder."""
    line = shlex.join(["sottovoce", *sys.argv[1:]])
    machine = f"{platform.system()} {platform.machine()}, torch {torch.__version__}, models on {device}"
    path = folder / "command.txt"
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    entry = f"{line}\n    {machine}\n"
    if entry not in known:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(known + entry, encoding="utf-8")


def _points(rows: Sequence[Row]) -> int:
    """The most points of a grid that any method was tried at."""
    tried = Counter(row.method for row in rows if row.stage == SELECT)
    return max(tried.values(), default=0)


def _seeds(rows: Sequence[Row]) -> str:
    """How many seeds each cell of the report has, which need not be the same where a run was cut off."""
    cells: dict[tuple[str, float], set[int]] = {}
    for row in rows:
        if row.stage == REPORT:
            cells.setdefault((row.method, row.epsilon), set()).add(row.seed)
    counts = sorted({len(seeds) for seeds in cells.values()})
    if len(counts) <= 1:
        return f"{counts[0] if counts else 0} seeds"
    return f"{counts[0]} to {counts[-1]} seeds in a cell (no spread is shown where there is one)"
