"""The page: one HTML file that needs no script, no network and no other file, and the numbers beside it."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from sottovoce.report import explain, figures, words
from sottovoce.report.details import Rows, setting_rows, statement_rows
from sottovoce.report.entries import Entry, epsilons, main_runs, ordered
from sottovoce.report.exports import to_json, write_csv

CAPTIONS = {
    "epsilon": "What privacy costs: accuracy on the public test set after whole runs, each at the guarantee marked. "
    "Level lines have no epsilon.",
    "step": "What a step is worth: accuracy on the public test set after so many training steps.",
    "seconds": "What a second is worth: the same runs against the time they took, evaluation left out.",
}

KEYS = {
    "private": "Solid, coloured: private.",
    "public": "Dash-dotted, in the colour of the text: trained on public data alone.",
    "reference": "Dashed, grey, hollow marks: NOT PRIVATE.",
}
CAUTIONS = {
    "public": "<strong>PUBLIC DATA ONLY</strong> marks a run that read no private record and needs no guarantee. Where "
    "a method that uses both is above it, the private records may have helped.",
    "reference": "<strong>NOT PRIVATE</strong> marks runs for which nothing is guaranteed. They are references for "
    "comparison, nothing else.",
}
PUBLIC = "PUBLIC DATA ONLY"


def write(entries: Sequence[Entry], folder: Path, *, title: str, intro: str, facts: Mapping[str, str]) -> Path:
    """Write ``report.html``, ``entries.json`` and ``comparison.csv`` into a folder, which is made if need be.

    What is written depends on the arguments alone: no clock, no host name. Text is shown as it is given; none of it
    is taken for markup.

    Args:
        entries: the runs, each under a name of its own.
        folder: where to; earlier files of these names are replaced.
        title: what was compared.
        intro: a paragraph below the headline.
        facts: the data, the model, the machine, the command to repeat it with. Data that is public and only treated
            as private must be called so here.

    Returns:
        The path of the page.
    """
    entries = ordered(entries)
    page = _page(entries, title=title, intro=intro, facts=facts)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "entries.json").write_text(to_json(entries, title, intro, facts), encoding="utf-8")
    write_csv(entries, folder / "comparison.csv")
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _page(entries: Sequence[Entry], *, title: str, intro: str, facts: Mapping[str, str]) -> str:
    finding, *more = words.findings(entries)
    style = (files("sottovoce.report") / "style.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}{_palette()}</style>
</head>
<body>
<main>
<header>
<p class="title">{escape(title)}</p>
<h1>{escape(finding)}</h1>
{_paragraphs(more, "more")}{_paragraphs([intro] if intro.strip() else [], "intro")}</header>
{_guarantees(entries)}{_curves(entries)}
{_comparison(main_runs(entries), epsilons(entries))}
<section aria-labelledby="statements">
<h2 id="statements">What each run guarantees</h2>
{"".join(_details(main, _others(entries, main)) for main in main_runs(entries))}</section>
{_reading(entries)}
{_facts(facts)}
<footer><p>The same numbers, for programs: <a href="comparison.csv">comparison.csv</a> and
<a href="entries.json">entries.json</a>, beside this page.</p></footer>
</main>
</body>
</html>
"""


def _paragraphs(texts: Iterable[str], kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    joined = " ".join(texts) if kind == "more" else None
    shown = [joined] if joined else [] if kind == "more" else list(texts)
    return "".join(f"<p{attribute}>{escape(text)}</p>\n" for text in shown)


def _curves(entries: Sequence[Entry]) -> str:
    pictures = [_figure(entries, across) for across in figures.AXES if figures.drawable(entries, across)]
    if not pictures:
        return '<p class="curveless">No learning curves: the runs were not evaluated while they trained.</p>'
    some = {entry.kind for entry in figures.drawable(entries, "step") or entries}
    keys = [text for kind, text in KEYS.items() if kind in some]
    at = words.shared_epsilon(main_runs(entries)) if len(epsilons(entries)) > 1 else ""
    scope = f" The private runs are those at epsilon {at}." if at else ""
    return f"""<section aria-label="Learning curves">
<div class="figures">
{"".join(pictures)}</div>
<p class="key">{" ".join(keys)} Dotted lines only lead from the end of a run to its name.{scope}</p>
</section>"""


def _guarantees(entries: Sequence[Entry]) -> str:
    """Accuracy against epsilon as a figure and as its numbers; nothing where there is one epsilon."""
    if not figures.drawable(entries, figures.EPSILON):
        return ""
    return f"""<section class="guarantees" aria-label="Accuracy against epsilon">
<div class="figures">
{_figure(entries, figures.EPSILON)}{_matrix(entries)}</div>
</section>
"""


def _matrix(entries: Sequence[Entry]) -> str:
    """The accuracy of each method at each epsilon; of a run without any, in one cell."""
    found, look = epsilons(entries), figures.styles(entries)
    heads = "".join(f'<th scope="col" class="number">{words.at_most(epsilon)}</th>' for epsilon in found)
    best = {
        epsilon: max((e.accuracy for e in entries if e.epsilon == epsilon and math.isfinite(e.accuracy)), default=None)
        for epsilon in found
    }
    rows: list[str] = []
    for main in main_runs(entries):
        if main.private:
            own = {entry.epsilon: entry.accuracy for entry in entries if entry.name == main.name}
            cells = "".join(_height(own.get(epsilon), best[epsilon]) for epsilon in found)
        else:
            without = "public data" if main.kind == "public" else "not private"
            shown = f"<small>{without}</small> {words.percent(main.accuracy)}"
            cells = f'<td class="number" colspan="{len(found)}">{shown}</td>'
        rows.append(
            f'<tr class="{main.kind}"><th scope="row">{_key(look[main.name])}{escape(main.name)}</th>{cells}</tr>\n'
        )
    return f"""<div class="matrix">
<table>
<caption>Accuracy at each epsilon; the best of a column in bold</caption>
<thead><tr><th scope="col">Method</th>{heads}</tr></thead>
<tbody>
{"".join(rows)}</tbody>
</table>
</div>
"""


def _height(accuracy: float | None, best: float | None) -> str:
    if accuracy is None:
        return '<td class="number absent" aria-label="not run">–</td>'
    shown = words.percent(accuracy)
    return f'<td class="number">{f"<strong>{shown}</strong>" if accuracy == best else shown}</td>'


def _figure(entries: Sequence[Entry], across: str) -> str:
    light, dark = (_data_uri(figures.draw(entries, across, theme)) for theme in (figures.LIGHT, figures.DARK))
    return f"""<figure>
<picture>
<source media="screen and (prefers-color-scheme: dark)" srcset="{dark}">
<img src="{light}" width="{figures.WIDTH}" height="{figures.HEIGHT}" alt="{escape(figures.describe(entries, across))}">
</picture>
<figcaption>{escape(CAPTIONS[across])}</figcaption>
</figure>
"""


def _data_uri(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}"


def _comparison(entries: Sequence[Entry], found: Sequence[float]) -> str:
    # The roles repeat what the elements mean, because on narrow screens the style makes blocks of them.
    heads = "".join(
        f'<th role="columnheader" scope="col"{kind}>{text}</th>'
        for text, kind in (
            ("Run", ""),
            ("Privacy", ""),
            ("Accuracy", ' class="number"'),
            ("Training time", ' class="number"'),
            ("Peak memory", ' class="number"'),
        )
    )
    look = figures.styles(entries)
    most = {
        "seconds": _largest(entry.seconds for entry in entries),
        "memory": _largest(entry.peak_memory for entry in entries),
    }
    rows = "".join(_row(entry, look[entry.name], most) for entry in entries)
    kinds = {entry.kind for entry in entries}
    warning = "".join(f'<p class="caution">{text}</p>\n' for kind, text in CAUTIONS.items() if kind in kinds)
    at = words.shared_epsilon(entries) if len(found) > 1 else ""
    scope = f" at epsilon&nbsp;{at}" if at else ""
    return f"""<section aria-labelledby="runs">
<h2 id="runs">The runs{scope}</h2>
<table class="runs" role="table">
<thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">
{rows}</tbody>
</table>
{warning}</section>"""


def _others(entries: Sequence[Entry], main: Entry) -> list[Entry]:
    return [entry for entry in entries if entry.name == main.name and entry is not main]


def _row(entry: Entry, style: figures.Style, most: Mapping[str, float]) -> str:
    statement = entry.statement
    if entry.private:
        privacy = (
            f'<strong class="spent">epsilon&nbsp;{words.spent(entry)} spent</strong> '
            f"<small>of {words.at_most(statement.epsilon)}, delta&nbsp;{words.at_most(statement.delta)}, "
            f'<span class="whole">{escape(statement.neighbours)}</span></small>'
        )
    elif entry.kind == "public":
        privacy = f'<strong class="open">{PUBLIC}</strong> <small>no private record was read</small>'
    else:
        privacy = f'<strong class="mark">NOT PRIVATE</strong> <small>{words.NO_GUARANTEE}</small>'
    bars = (
        ("Accuracy", words.percent(entry.accuracy), entry.accuracy),
        ("Training time", _seconds(entry.seconds), entry.seconds / most["seconds"]),
        ("Peak memory", words.megabytes(entry.peak_memory), entry.peak_memory / most["memory"]),
    )
    cells = "".join(
        f'<td role="cell" class="number" data-label="{label}">{text}{_bar(share, style)}</td>\n'
        for label, text, share in bars
    )
    return f"""<tr role="row" class="{entry.kind}">
<th role="rowheader" scope="row">{_key(style)}<span class="name">{escape(entry.name)}</span> \
<small>{escape(entry.note)}</small></th>
<td role="cell" data-label="Privacy">{privacy}</td>
{cells}</tr>
"""


def _key(style: figures.Style) -> str:
    """The line of the run as in the figures."""
    dashes = f' stroke-dasharray="{" ".join(str(2 * dash) for dash in style.dashes)}"' if style.dashes else ""
    return (
        f'<svg class="key {_colour_class(style)}" width="30" height="10" viewBox="0 0 30 10" aria-hidden="true">'
        f'<path d="M1 5H29" stroke-width="2.5"{dashes}/></svg>'
    )


def _bar(share: float, style: figures.Style) -> str:
    if not math.isfinite(share):
        return ""
    width = round(100 * min(1.0, max(0.0, share)), 1)
    return f'<span class="bar {_colour_class(style)}" aria-hidden="true"><i style="width:{width}%"></i></span>'


def _colour_class(style: figures.Style) -> str:
    if style.kind == "public":
        return "public"
    return f"c{style.number % len(figures.LIGHT_COLOURS)}" if style.private else "plain"


def _palette() -> str:
    """The colours of the figures, for the keys and bars of the table."""

    def rules(theme: figures.Theme) -> str:
        colours = {f"c{number}": colour for number, colour in enumerate(theme.colours)}
        colours |= {"plain": theme.reference, "public": theme.ink}
        return "".join(f".{name}{{--run:{colour}}}\n" for name, colour in colours.items())

    return f"{rules(figures.LIGHT)}@media screen and (prefers-color-scheme: dark){{\n{rules(figures.DARK)}}}\n"


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if math.isfinite(value) and value > 0), default=1.0)


def _seconds(value: float) -> str:
    return f"{words.number(value)}{words.SPACE}s" if math.isfinite(value) else words.ABSENT


def _details(entry: Entry, others: Sequence[Entry]) -> str:
    """The statement of a method's main run; of its others, what differs."""
    statement = entry.statement
    if entry.private:
        summary = f"epsilon&nbsp;{words.spent(entry)} of {words.at_most(statement.epsilon)} spent"
        warned = any(each.statement.warnings for each in (entry, *others))
        mark = ' <strong class="warned">with warnings</strong>' if warned else ""
        if others:
            values = words.listed([words.at_most(other.statement.epsilon) for other in others])
            mark = f"; also run at epsilon&nbsp;{values}{mark}"
    elif entry.kind == "public":
        summary, mark = f'<strong class="open">{PUBLIC}</strong>', ""
    else:
        summary, mark = '<strong class="mark">NOT PRIVATE</strong>', ""
    settings = setting_rows(entry.settings)
    made_with = f"<h3>Made with</h3>\n{_rows(settings, 'settings')}" if settings else ""
    return f"""<details>
<summary><span class="name">{escape(entry.name)}</span> <span class="sum">{summary}{mark}</span></summary>
<h3>Privacy statement</h3>
{_rows(statement_rows(entry))}{made_with}{"".join(_other(other, entry) for other in others)}</details>
"""


def _other(other: Entry, main: Entry) -> str:
    """Another run of the method: the rows that are not as in the main one's, and its figures."""
    known = (statement_rows(main), setting_rows(main.settings))
    rows = [row for row in statement_rows(other) if row not in known[0]]
    rows += [row for row in setting_rows(other.settings) if row not in known[1]]
    figures_of_it = f"{words.percent(other.accuracy)} in {_seconds(other.seconds)}"
    return f"""<h3>The run at epsilon&nbsp;{words.at_most(other.statement.epsilon)}: the same, but for</h3>
{_rows([("accuracy", (figures_of_it,)), *rows])}"""


def _rows(rows: Rows, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<dl{attribute}>\n" + "".join(_name_and_texts(name, texts) for name, texts in rows) + "</dl>\n"


def _name_and_texts(name: str, texts: Sequence[str]) -> str:
    kind = ' class="warning"' if name == "warnings" else ""
    if len(texts) == 1:
        shown = escape(texts[0])
    else:
        shown = "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"
    return f"<div{kind}><dt>{escape(name)}</dt><dd>{shown}</dd></div>\n"


def _reading(entries: Sequence[Entry]) -> str:
    parts = "".join(
        f"<div><h3>{escape(heading)}</h3>\n{_paragraphs(texts)}</div>\n" for heading, texts in explain.sections(entries)
    )
    points = explain.not_covered(entries)
    limits = "".join(f"<li>{escape(point)}</li>\n" for point in points)
    missing = f"<div><h3>What is not covered</h3>\n<ul>\n{limits}</ul></div>\n" if points else ""
    return f"""<section aria-labelledby="reading">
<h2 id="reading">How to read this</h2>
<div class="reading">
{parts}{missing}</div>
</section>"""


def _facts(facts: Mapping[str, str]) -> str:
    if not facts:
        return ""
    rows = "".join(
        f"<div><dt>{escape(str(name))}</dt><dd>{_fact(str(name), str(text))}</dd></div>\n"
        for name, text in facts.items()
    )
    return f"""<section aria-labelledby="facts">
<h2 id="facts">How this was made</h2>
<dl class="facts">
{rows}</dl>
</section>"""


def _fact(name: str, text: str) -> str:
    is_command = name.casefold().startswith(("command", "reproduce", "to repeat", "repeat"))
    return f"<code>{escape(text)}</code>" if is_command else escape(text)
