"""The command ``sottovoce bench``: the published tables, run again on real data."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer

from sottovoce.bench import figures, plan, shapes, tables
from sottovoce.bench.contestants import CONTESTANTS, find
from sottovoce.bench.plan import Extent
from sottovoce.bench.runner import REPORT, SELECT, Row, read, run_all
from sottovoce.bench.similarity import gamma
from sottovoce.bench.starts import StartKey, load, start_of
from sottovoce.cli.support import AsJson, Output, command
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import settings

app = typer.Typer(
    help="Measure the methods side by side. Benchmark data is public and treated as private.", no_args_is_help=True
)

QUICK = {"epsilons": (0.1, 1.0), "seeds": (0,), "points": 1}
"""What ``--quick`` runs: ends within ten minutes on two cores."""


@app.command("tables")
def run_tables(
    setting: Annotated[
        str, typer.Argument(help="A setting, with options if need be: 'fashion-mnist' or 'cifar-10:width=40'.")
    ],
    *,
    methods: Annotated[str, typer.Option(help="Comma-separated; by default all, controls included.")] = "",
    epsilons: Annotated[str, typer.Option(help="Comma-separated budgets.")] = "0.1,0.5,1,2,3",
    seeds: Annotated[int, typer.Option(help="Seeds of each cell.")] = 3,
    points: Annotated[int, typer.Option(help="Points of each grid, at most.")] = 6,
    steps: Annotated[int | None, typer.Option(help="Steps; the setting's own by default.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Expected private batch.")] = None,
    warm_start: Annotated[int, typer.Option(help="Steps of SGD on public records before every run.")] = 200,
    side: Annotated[bool, typer.Option("--side/--no-side", help="Also queries (Table 11) and shift (Table 7).")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Few cells, within ten minutes.")] = False,
    workers: Annotated[int, typer.Option(help="Processes, of one thread each if more than one.")] = 1,
    device: Annotated[str, typer.Option(help="Where models are: cpu or cuda.")] = "cpu",
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Run nothing: write tables and figures from what stands in OUT.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The folder; by default out/bench/SETTING.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run methods x budgets x seeds, and write the paper's tables and figures.

    Settings are chosen on validation data at epsilon 1 with one seed, and reused; test data is only reported. What
    stands in OUT/runs.csv is not run again, so a run that was cut off goes on where it stopped.
    """
    with command(as_json=as_json) as output:
        chosen = tuple(name.strip() for name in methods.split(",") if name.strip()) or tuple(CONTESTANTS)
        for name in chosen:
            find(name)
        extent = Extent(
            setting=setting,
            methods=chosen,
            epsilons=QUICK["epsilons"] if quick else _numbers(epsilons),
            seeds=QUICK["seeds"] if quick else tuple(range(seeds)),
            points=QUICK["points"] if quick else points,
            steps=steps,
            batch_size=batch_size,
            warm_start=warm_start,
            device=device,
        )
        folder = out or Path("out") / "bench" / setting.replace(":", "-").replace("=", "-").replace(",", "-")
        table = folder / "runs.csv"
        if tables_only:
            rows = read(table)
            if not rows:
                raise ConfigurationError(f"--tables-only: {table} holds no run yet; leave the option out to run some.")
        else:
            rows = _run(extent, table, workers=workers, side=side and not quick, output=output)
        written = write(rows, folder, extent, _similarities(rows, extent, folder / ".starts"))
        output.document = {
            "folder": folder.absolute(),
            "runs": len(rows),
            "shapes": [vars(each) for each in shapes.shapes(rows)],
            "files": written,
        }
        output.text((folder / "tables.md").read_text(encoding="utf-8"))


@app.command("list")
def list_settings(*, as_json: AsJson = False) -> None:
    """List the settings and the methods."""
    with command(as_json=as_json) as output:
        output.document = {"settings": settings.names(), "methods": list(CONTESTANTS)}
        output.text("settings: " + ", ".join(settings.names()))
        output.text("methods:  " + ", ".join(CONTESTANTS))


def _run(extent: Extent, path: Path, *, workers: int, side: bool, output: Output) -> list[Row]:
    def tell(row: Row, number: int, of: int) -> None:
        budget = f"epsilon {row.epsilon:g}" if find(row.method).private else "no budget"
        selecting = row.stage == SELECT  # the choice of settings sees validation data only, and so does whoever watches
        measured, value = ("validation", row.validation_accuracy) if selecting else ("test", row.test_accuracy)
        result = f"{measured} {100 * value:.1f} %" if row.status == "ok" else row.status
        output.text(f"[{number}/{of}] {row.stage} {row.method}, {budget}, seed {row.seed}: {result}")

    rows = run_all(plan.selection(extent), path, workers=workers, tell=tell)
    best = plan.chosen(rows)
    cells = plan.report(extent, best)
    if side:
        cells += [*plan.queries(extent, best), *plan.shifts(extent, best)]
    return rows + run_all(cells, path, workers=workers, tell=tell)


def _similarities(rows: list[Row], extent: Extent, starts: Path) -> dict[str, float]:
    """Gamma at the common start, for each setting of the shift table. NOT PRIVATE: the benchmark's data is public."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(row.setting for row in rows if row.stage == plan.SHIFT):
        known = load(name)
        first = next(row for row in rows if row.setting == name)
        model = start_of(StartKey(name, 0, first.warm_start, extent.device), starts).model()
        found[name] = gamma(model, known.loss, known.private, known.public)
    return found


def write(rows: list[Row], folder: Path, extent: Extent, similarity: dict[str, float]) -> list[str]:
    """The tables in Markdown, the figures, and a line on how and where they were made."""
    known = load(extent.setting)
    made = [tables.accuracy(rows), tables.public_gain(rows), tables.seconds(rows), tables.operations()]
    if any(row.stage == plan.QUERIES for row in rows):
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
        f"{extent.points} runs on these same private records, at epsilon {plan.SELECTION_EPSILON:g} with one seed; the "
        "epsilons below are those of the reported run alone and do not count that search.",
        "",
    ]
    verdicts = ["**The paper's shapes**", ""]
    for each in shapes.shapes(rows):
        verdict = {True: "holds", False: "DOES NOT HOLD", None: "not run"}[each.holds]
        verdicts.append(f"- {each.claim}: **{verdict}**. {each.evidence}")
    text = "\n".join([*head, *(part for table in made for part in (tables.markdown(table), "")), *verdicts]) + "\n"
    (folder / "tables.md").write_text(text, encoding="utf-8")
    line = shlex.join(["sottovoce", *sys.argv[1:]])
    machine = f"{platform.system()} {platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    (folder / "command.txt").write_text(f"{line}\n{machine}, models on {extent.device}\n", encoding="utf-8")
    drawn = figures.write_all(rows, folder)
    return [str(path) for path in (folder / "tables.md", folder / "command.txt", *drawn)]


def _seeds(rows: list[Row]) -> str:
    """How many seeds each cell of the report has, which need not be the same where a run was cut off."""
    cells: dict[tuple[str, float], set[int]] = {}
    for row in rows:
        if row.stage == REPORT:
            cells.setdefault((row.method, row.epsilon), set()).add(row.seed)
    counts = sorted({len(seeds) for seeds in cells.values()})
    if len(counts) <= 1:
        return f"{counts[0] if counts else 0} seeds"
    return f"{counts[0]} to {counts[-1]} seeds in a cell (no spread is shown where there is one)"


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(sorted({float(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        found = ()
    if not found or min(found) <= 0:
        raise ConfigurationError(
            f"--epsilons {text!r}: positive numbers separated by commas are needed, as in 0.1,1,3."
        )
    return found
