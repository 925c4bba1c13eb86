"""The command ``sottovoce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import sottovoce
from sottovoce.cli import bench, data, ledger, plan
from sottovoce.cli.support import AsJson, command
from sottovoce.cli.train import train

app = typer.Typer(
    name="sottovoce",
    help="Train models on sensitive records under differential privacy. Start with `sottovoce demo`.",
    epilog="Exit codes: 0 success, 1 failure, 2 something given is wrong, 3 the budget is not enough, 4 the ledger, "
    "130 interrupted, 143 terminated.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # in the other mode, [data] in a help text is taken for a style
    pretty_exceptions_enable=False,  # a traceback with local variables would print private records
    pretty_exceptions_show_locals=False,
)
app.command("train")(train)
app.add_typer(plan.app, name="plan")
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
app.add_typer(ledger.app, name="ledger")


@app.command("demo")
def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report is written.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="The seed of initialisation and directions; noise has none.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train on real images with and without privacy, in minutes, and write a report to look at.

    Needs the data set MNIST: `sottovoce data get mnist`.
    """
    with command(as_json=as_json) as output:
        from sottovoce.demo import run_demo

        entries = run_demo(out, seed=seed, progress=False if quiet else None)
        output.document = {"report": out.absolute() / "report.html", "entries": entries}
        if not as_json:
            from sottovoce.report.entries import main_runs, table

            Console().print(table(entries))
            main = main_runs(entries)
            for entry in main:
                if entry.private:
                    output.text(f"\n{entry.name}: {entry.statement}")
            if others := len(entries) - len(main):
                output.text(f"\nThe statements of the {others} runs at other epsilons are in the report.")
            output.text(f"\nOpen {out / 'report.html'} in a browser.")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sottovoce {sottovoce.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train models on sensitive records under differential privacy. Start with `sottovoce demo`."""


def main() -> None:
    """The entry point."""
    app(prog_name="sottovoce")
