"""The command ``sottovoce bench``: the published tables, run again on real data."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.bench import plan, shapes
from sottovoce.bench.cells import SELECT, Row
from sottovoce.bench.contestants import CONTESTANTS, find, with_controls
from sottovoce.bench.plan import Extent
from sottovoce.bench.results import note_command, similarities, write
from sottovoce.bench.runner import run_all
from sottovoce.bench.runs import read
from sottovoce.bench.starts import load
from sottovoce.cli.support import AsJson, Output, command
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import settings

app = typer.Typer(
    help="Measure the methods side by side. Benchmark data is public and treated as private.", no_args_is_help=True
)

QUICK = {"epsilons": (0.1, 1.0), "seeds": (0,), "points": 1}
QUICK_STEPS = 60
"""What ``--quick`` runs, unless ``--steps`` is given."""
QUICK_SECONDS = 420
"""After so many no run of ``--quick`` begins: the rest is run when the same command is given again."""


@app.command("tables")
def run_tables(
    setting: Annotated[
        str, typer.Argument(help="A setting, with options if need be: 'fashion-mnist' or 'cifar-10:width=40'.")
    ],
    *,
    methods: Annotated[str, typer.Option(help="Comma-separated; each comes with its control. By default all.")] = "",
    epsilons: Annotated[str, typer.Option(help="Comma-separated budgets.")] = "0.1,0.5,1,2,3",
    seeds: Annotated[int, typer.Option(help="Seeds of each cell.")] = 3,
    points: Annotated[int, typer.Option(help="Points of each grid, at most.")] = 6,
    steps: Annotated[int | None, typer.Option(help="Steps; the setting's own by default.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Expected private batch.")] = None,
    warm_start: Annotated[int, typer.Option(help="Steps of SGD on public records before every run.")] = 200,
    side: Annotated[bool, typer.Option("--side/--no-side", help="Also Tables 7 and 11 and Figure 6.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Few cells, for ten minutes; may be given again.")] = False,
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
        for name, value in (("--seeds", seeds), ("--points", points), ("--workers", workers)):
            if value < 1:
                raise ConfigurationError(f"{name} {value}: at least 1 is needed.")
        chosen = tuple(name.strip() for name in methods.split(",") if name.strip()) or tuple(CONTESTANTS)
        extent = Extent(
            setting=setting,
            methods=with_controls(chosen),
            epsilons=QUICK["epsilons"] if quick else _numbers(epsilons),
            seeds=QUICK["seeds"] if quick else tuple(range(seeds)),
            points=QUICK["points"] if quick else points,
            steps=min(QUICK_STEPS, load(setting).steps) if quick and steps is None else steps,
            batch_size=batch_size,
            warm_start=warm_start,
            device=device,
            side=side and not quick,
        )
        folder = out or Path("out") / "bench" / setting.replace(":", "-").replace("=", "-").replace(",", "-")
        table = folder / "runs.csv"
        if tables_only:
            rows = plan.standing(extent, read(table))
        else:
            note_command(folder, device)
            until = time.monotonic() + QUICK_SECONDS if quick else math.inf
            rows = _run(extent, table, workers=workers, output=output, until=until)
        written = write(rows, folder, extent, similarities(rows, folder / ".starts"))
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


def _run(extent: Extent, path: Path, *, workers: int, output: Output, until: float) -> list[Row]:
    def tell(row: Row, number: int, of: int) -> None:
        budget = f"epsilon {row.epsilon:g}" if find(row.method).private else "no budget"
        selecting = row.stage == SELECT  # the choice of settings sees validation data only, and so does whoever watches
        measured, value = ("validation", row.validation_accuracy) if selecting else ("test", row.test_accuracy)
        result = f"{measured} {100 * value:.1f} %" if row.status == "ok" else row.status
        output.text(f"[{number}/{of}] {row.stage} {row.method}, {budget}, seed {row.seed}: {result}")

    selecting = plan.selection(extent)
    rows = run_all(selecting, path, workers=workers, tell=tell, until=until)
    cells = plan.after_selection(extent, plan.chosen(rows))
    reported = run_all(cells, path, workers=workers, tell=tell, until=until)
    if left := len(selecting) - len(rows) + len(cells) - len(reported):
        output.text(f"at least {left} runs are left: the same command goes on with them")
    return rows + reported


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
