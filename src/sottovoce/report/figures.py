"""Accuracy against epsilon, and the learning curves, as pictures for light and for dark pages.

Figures are made with Matplotlib's objects directly: its global state (backend, settings, open figures) is neither
used for a choice nor changed, so that a report may be written from any program and any thread.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from sottovoce.report import words
from sottovoce.report.entries import Entry, Kind, epsilons, main_runs

WIDTH, HEIGHT = 450, 350
"""In CSS pixels; the picture holds twice as many each way, for dense screens and print."""
DENSITY = 2
LONGEST_NAME = 20
FONT = "DejaVu Sans"  # comes with Matplotlib: the same picture on every machine

AXES = {"step": "training step", "seconds": "training time in seconds"}
"""Of the learning curves."""
EPSILON = "epsilon"
MOST_TICKS = 6
_LABELS = {**AXES, EPSILON: "epsilon, smaller protects more"}
_KINDS: dict[Kind, str] = {
    "private": "private",
    "public": "public data only, dash-dotted",
    "reference": "NOT PRIVATE, dashed",
}

# At least 4.5 : 1 against the page. Any two, the references' grey included, differ by a CIE76 distance of 12 or more
# in a simulation (Machado, Oliveira and Fernandes 2009) of each kind of colour blindness; markers differ besides.
LIGHT_COLOURS = ("#0069b4", "#bf4400", "#0f4c3a", "#8c1c63", "#40391a", "#4f3380")
DARK_COLOURS = ("#62b8f0", "#f59a4c", "#85ccb7", "#ffbfe8", "#d9d18d", "#987ee6")
MARKERS = ("o", "s", "D", "^", "v", "P")
DASHES = ((5, 2.2), (2, 1.6), (9, 2), (4, 1.3, 4, 4))
PUBLIC_DASHES = (6, 1.6, 1.2, 1.6)


@dataclass(frozen=True, kw_only=True)
class Theme:
    """The colours of a page, light or dark."""

    surface: str
    ink: str
    muted: str
    rule: str
    reference: str
    colours: tuple[str, ...]


LIGHT = Theme(
    surface="#ffffff", ink="#1c1f26", muted="#5b6270", rule="#e4e2dc", reference="#6f7580", colours=LIGHT_COLOURS
)
DARK = Theme(
    surface="#1b1e25", ink="#eceae4", muted="#a4abb8", rule="#343944", reference="#9aa1ad", colours=DARK_COLOURS
)


@dataclass(frozen=True)
class Style:
    """How one run is drawn, in the figures and in the key beside its name."""

    number: int
    kind: Kind

    @property
    def private(self) -> bool:
        """Whether a guarantee holds."""
        return self.kind == "private"

    def colour(self, theme: Theme) -> str:
        """Grey for what is not private, the ink of the text for what read no private record."""
        if self.kind == "public":
            return theme.ink
        return theme.colours[self.number % len(theme.colours)] if self.private else theme.reference

    @property
    def dashes(self) -> tuple[float, ...]:
        """Empty for a solid line."""
        if self.kind == "public":
            return PUBLIC_DASHES
        return () if self.private else DASHES[self.number % len(DASHES)]

    @property
    def marker(self) -> str:
        """The shape at the end of the line."""
        return MARKERS[self.number % len(MARKERS)]


@dataclass(frozen=True)
class _Line:
    """What is drawn of one method."""

    entry: Entry
    style: Style
    xs: list[float]
    ys: list[float]

    @property
    def level(self) -> bool:
        """Whether it is the same at every x, so that it has a height alone."""
        return not self.xs


def styles(entries: Sequence[Entry]) -> dict[str, Style]:
    """A style for each method: private ones solid and coloured, the others dashed and grey."""
    numbers: dict[Kind, int] = {}
    look: dict[str, Style] = {}
    for entry in entries:
        if entry.name not in look:
            number = numbers.setdefault(entry.kind, 0)
            look[entry.name] = Style(number, entry.kind)
            numbers[entry.kind] += 1
    return look


def drawable(entries: Sequence[Entry], across: str) -> list[Entry]:
    """The methods that have a point to draw, each by its main run."""
    return [line.entry for line in _lines(entries, across)]


def _lines(entries: Sequence[Entry], across: str) -> list[_Line]:
    look, main = styles(entries), main_runs(entries)
    if across != EPSILON:
        found = [_Line(entry, look[entry.name], *entry.curve(across)) for entry in main]
        return [line for line in found if line.xs]
    measured = [entry for entry in entries if math.isfinite(entry.accuracy) and entry.epsilon > 0]
    if len(epsilons(measured)) < 2:
        return []
    lines: list[_Line] = []
    for entry in main:
        own = sorted((each for each in measured if each.name == entry.name), key=lambda each: each.epsilon)
        xs = [each.epsilon for each in own if each.private]
        lines += [_Line(entry, look[entry.name], xs, [each.accuracy for each in own])] if own else []
    return lines


def describe(entries: Sequence[Entry], across: str) -> str:
    """The figure in words, for those who do not see it."""
    lines = _lines(entries, across)
    if across == EPSILON:
        parts = [f"{line.entry.name} ({_KINDS[line.entry.kind]}) {_heights(line)}" for line in lines]
        what = "the epsilon of the guarantee, on a logarithmic scale"
        return f"Line chart of accuracy on the public test set against {what}. {'; '.join(parts)}."
    unit, after = ("step ", "") if across == "step" else ("", " seconds")
    parts = [
        f"{line.entry.name} ({_KINDS[line.entry.kind]}) goes from {words.percent(line.ys[0])} at "
        f"{unit}{words.number(line.xs[0])}{after} to {words.percent(line.ys[-1])} at "
        f"{unit}{words.number(line.xs[-1])}{after}"
        for line in lines
    ]
    return f"Line chart of accuracy on the public test set against {AXES[across]}. {'; '.join(parts)}."


def _heights(line: _Line) -> str:
    if line.level:
        return f"is level at {words.percent(line.ys[0])}"
    points = zip(line.xs, line.ys, strict=True)
    return "reaches " + words.listed([f"{words.percent(y)} at {words.at_most(x)}" for x, y in points])


def draw(entries: Sequence[Entry], across: str, theme: Theme) -> bytes:
    """A PNG of the accuracy of each method against ``"step"``, ``"seconds"`` or ``"epsilon"``."""
    lines = _lines(entries, across)
    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100 * DENSITY, facecolor=theme.surface)
    canvas = FigureCanvasAgg(figure)
    values = _values(lines, across)
    labels = [_label(figure, line, value, theme) for line, value in zip(lines, values, strict=True)]
    renderer = canvas.get_renderer()
    widest = max(text.get_window_extent(renderer).width for pair in labels for text in pair) / (WIDTH * DENSITY)
    axes = figure.add_axes((0.1, 0.15, max(0.35, 0.84 - widest), 0.77), facecolor=theme.surface)
    _frame(axes, lines, across, theme)
    right = axes.get_xlim()[1]
    for line in lines:
        style, colour = line.style, line.style.colour(theme)
        xs, ys = (list(axes.get_xlim()), 2 * line.ys) if line.level else (line.xs, line.ys)
        drawn = Line2D(xs, ys, color=colour, linewidth=2.0 if style.private else 1.5, antialiased=True)
        drawn.set_linestyle((0, style.dashes) if style.dashes else "-")
        drawn.set_solid_capstyle("round")
        drawn.set_solid_joinstyle("round")
        drawn.set_zorder(4 if style.private else 3)
        if across == EPSILON and not line.level:  # each point is a run, and what lies between was not measured
            drawn.set(marker=style.marker, markersize=5.5)
        axes.add_line(drawn)
        drawn.set_clip_on(False)
    lasts = [(right if line.level else line.xs[-1], line.ys[-1]) for line in lines]
    ends = [(float(x), float(y)) for x, y in axes.transData.transform(lasts)]
    _place(axes, lines, ends, labels, theme)
    picture = io.BytesIO()
    canvas.print_png(picture, metadata={"Software": None})
    return picture.getvalue()


def _values(lines: Sequence[_Line], across: str) -> list[str]:
    """The last value of each line; where lines end at different epsilons, at which."""
    private = [line for line in lines if not line.level]
    differ = across == EPSILON and len({line.xs[-1] for line in private}) > 1
    suffixes: dict[Kind, str] = {"private": "", "public": ", public data", "reference": ", not private"}
    return [
        words.percent(line.ys[-1])
        + (f" at {words.at_most(line.xs[-1])}" if differ and not line.level else suffixes[line.entry.kind])
        for line in lines
    ]


def _font(size: float, weight: str = "normal") -> FontProperties:
    return FontProperties(family=FONT, size=size, weight=weight)


def _text(figure: Figure, text: str, font: FontProperties, colour: str) -> Text:
    # A name is shown as it is: "$" would start a formula, and a bad formula raises.
    made = Text(0, 0, text, fontproperties=font, color=colour, parse_math=False, usetex=False, va="center", ha="left")
    made.set_path_effects([withStroke(linewidth=3, foreground=figure.get_facecolor())])
    figure.add_artist(made)
    return made


def _label(figure: Figure, line: _Line, value: str, theme: Theme) -> tuple[Text, Text]:
    """The name of the method, and its last value."""
    name = line.entry.name
    name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    colour = line.style.colour(theme)
    return _text(figure, name, _font(8.8, "bold"), colour), _text(figure, value, _font(7.6), colour)


def _frame(axes: Axes, lines: Sequence[_Line], across: str, theme: Theme) -> None:
    if across == EPSILON:
        _epsilon_axis(axes, lines)
    else:
        _time_axis(axes, lines)
    ys = [y for line in lines for y in line.ys]
    low, high, ticks = _percents(min(ys), max(ys))
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{100 * value:.3g}" + (" %" if value > ticks[-2] else ""))
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(color=theme.muted, linewidth=0.8)
    axes.grid(True, axis="y", color=theme.rule, linewidth=0.8, linestyle="-")
    axes.grid(False, axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, pad=5)
    axes.tick_params(axis="x", length=3, width=0.8, color=theme.muted, pad=4)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(fontproperties=_font(8.0), color=theme.muted, usetex=False)
    suffix = " (logarithmic)" if axes.get_xscale() == "log" else ""
    axes.set_xlabel(
        _LABELS[across] + suffix, fontproperties=_font(8.2), color=theme.muted, loc="right", labelpad=5, usetex=False
    )


def _time_axis(axes: Axes, lines: Sequence[_Line]) -> None:
    xs = [x for line in lines for x in line.xs]
    ends = [line.xs[-1] for line in lines]
    if min(xs) > 0 and max(ends) > 25 * min(ends):
        axes.set_xscale("log")
        axes.set_xlim(min(xs), max(xs))
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if max(xs) > 100 * min(xs) else (1.0, 2.0, 5.0)))
    else:
        axes.set_xlim(0 if min(xs) >= 0 else min(xs), max(xs) if max(xs) > 0 else 1)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _epsilon_axis(axes: Axes, lines: Sequence[_Line]) -> None:
    """Logarithmic, with a tick at each epsilon that was run, or at powers of ten where these are many."""
    found = sorted({x for line in lines for x in line.xs})
    margin = (found[-1] / found[0]) ** 0.04
    axes.set_xscale("log")
    axes.set_xlim(found[0] / margin, found[-1] * margin)
    axes.xaxis.set_major_locator(FixedLocator(found) if len(found) <= MOST_TICKS else LogLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def _percents(lowest: float, highest: float) -> tuple[float, float, list[float]]:
    """A readable range around the values, within 0 and 1, that ends on ticks."""
    for size in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2):
        first, last = math.floor(lowest / size + 1e-9), math.ceil(highest / size - 1e-9)
        if last - first <= 5:
            break
    last = max(last, first + 1)
    if last * size > 1 + 1e-9:  # a flat line at 100 %
        first, last = first - 1, last - 1
    return first * size, last * size, [tick * size for tick in range(first, last + 1)]


def _place(
    axes: Axes,
    lines: Sequence[_Line],
    ends: Sequence[tuple[float, float]],
    labels: Sequence[tuple[Text, Text]],
    theme: Theme,
) -> None:
    """Each label stands right of the axes at the height of its line's end, moved apart where they would meet."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    box = axes.get_window_extent()
    start = box.x1 + 18 * DENSITY
    heights = spread([end[1] for end in ends], gap=34 * DENSITY, low=box.y0 - 4 * DENSITY, high=box.y1 + 8 * DENSITY)
    for line, end, height, (name, value) in zip(lines, ends, heights, labels, strict=True):
        style = line.style
        colour = style.colour(theme)
        leader = Line2D(
            [end[0], box.x1 + 3 * DENSITY, start - 5 * DENSITY],
            [end[1], end[1], height],
            color=colour, linewidth=0.8, linestyle=(0, (1, 2)), alpha=0.75, transform=None, clip_on=False, zorder=2,
        )  # fmt: skip
        dot = Line2D(
            [end[0]], [end[1]], color=colour, marker=style.marker, markersize=5.5, clip_on=False, zorder=6,
            markerfacecolor=colour if style.private else theme.surface, markeredgecolor=colour, transform=None,
        )  # fmt: skip
        figure.add_artist(leader)
        figure.add_artist(dot)
        for text, shift in ((name, 7), (value, -7)):
            text.set_transform(None)
            text.set_position((start, height + shift * DENSITY))
            text.set_zorder(7)


def spread(wanted: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """The heights nearest to those wanted, in the same order, at least ``gap`` apart, within the range.

    Neighbours that would meet are moved as a group around their mean. Where all cannot fit, the gap shrinks.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    groups: list[list[float]] = []  # each: the sum of (wanted - offset in the group), and the count
    for index in order:
        groups.append([wanted[index], 1])
        while len(groups) > 1 and _last_height(groups[-2], gap) + gap > groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1][0] += total - count * groups[-1][1] * gap
            groups[-1][1] += count
    heights = [total / count + gap * number for total, count in groups for number in range(int(count))]
    for number in range(len(heights)):
        heights[number] = max(heights[number], low + gap * number)
    for number in range(len(heights)):
        heights[-1 - number] = min(heights[-1 - number], high - gap * number)
    placed = [0.0] * len(wanted)
    for index, height in zip(order, heights, strict=True):
        placed[index] = height
    return placed


def _last_height(group: Sequence[float], gap: float) -> float:
    return group[0] / group[1] + gap * (group[1] - 1)
