"""The learning curves as pictures, for light and for dark pages.

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
from sottovoce.report.entries import Entry

WIDTH, HEIGHT = 450, 350
"""In CSS pixels; the picture holds twice as many each way, for dense screens and print."""
DENSITY = 2
LONGEST_NAME = 20
FONT = "DejaVu Sans"  # comes with Matplotlib: the same picture on every machine

AXES = {"step": "training step", "seconds": "training time in seconds"}

# At least 4.5 : 1 against the page. Any two, the references' grey included, differ by a CIE76 distance of 12 or more
# in a simulation (Machado, Oliveira and Fernandes 2009) of each kind of colour blindness; markers differ besides.
LIGHT_COLOURS = ("#0069b4", "#bf4400", "#0f4c3a", "#8c1c63", "#40391a", "#4f3380")
DARK_COLOURS = ("#62b8f0", "#f59a4c", "#85ccb7", "#ffbfe8", "#d9d18d", "#987ee6")
MARKERS = ("o", "s", "D", "^", "v", "P")
DASHES = ((5, 2.2), (2, 1.6), (7, 1.8, 1.5, 1.8), (1, 1.4))


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
    private: bool

    def colour(self, theme: Theme) -> str:
        """Grey for what is not private."""
        return theme.colours[self.number % len(theme.colours)] if self.private else theme.reference

    @property
    def dashes(self) -> tuple[float, ...]:
        """Empty for a solid line."""
        return () if self.private else DASHES[self.number % len(DASHES)]

    @property
    def marker(self) -> str:
        """The shape at the end of the line."""
        return MARKERS[self.number % len(MARKERS)]


def styles(entries: Sequence[Entry]) -> dict[str, Style]:
    """A style for each run: private ones solid and coloured, the others dashed and grey."""
    private = [entry.name for entry in entries if entry.private]
    others = [entry.name for entry in entries if not entry.private]
    return {
        name: Style(number, kind)
        for names, kind in ((private, True), (others, False))
        for number, name in enumerate(names)
    }


def drawable(entries: Sequence[Entry], across: str) -> list[Entry]:
    """The runs that have a point to draw."""
    return [entry for entry in entries if entry.curve(across)[0]]


def describe(entries: Sequence[Entry], across: str) -> str:
    """The figure in words, for those who do not see it."""
    parts: list[str] = []
    for entry in drawable(entries, across):
        xs, ys = entry.curve(across)
        kind = "private" if entry.private else "NOT PRIVATE, dashed"
        unit = "step " if across == "step" else ""
        after = " seconds" if across == "seconds" else ""
        parts.append(
            f"{entry.name} ({kind}) goes from {words.percent(ys[0])} at {unit}{words.number(xs[0])}{after} "
            f"to {words.percent(ys[-1])} at {unit}{words.number(xs[-1])}{after}"
        )
    return f"Line chart of accuracy on the public test set against {AXES[across]}. {'; '.join(parts)}."


def draw(entries: Sequence[Entry], across: str, theme: Theme) -> bytes:
    """A PNG of the accuracy of each run against ``"step"`` or ``"seconds"``."""
    shown = drawable(entries, across)
    look = styles(entries)
    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100 * DENSITY, facecolor=theme.surface)
    canvas = FigureCanvasAgg(figure)
    labels = [_label(figure, entry, across, look[entry.name], theme) for entry in shown]
    renderer = canvas.get_renderer()
    widest = max(text.get_window_extent(renderer).width for pair in labels for text in pair) / (WIDTH * DENSITY)
    axes = figure.add_axes((0.1, 0.15, max(0.35, 0.84 - widest), 0.77), facecolor=theme.surface)
    _frame(axes, shown, across, theme)
    for entry in shown:
        style = look[entry.name]
        xs, ys = entry.curve(across)
        line = Line2D(xs, ys, color=style.colour(theme), linewidth=2.0 if style.private else 1.5, antialiased=True)
        line.set_linestyle((0, style.dashes) if style.dashes else "-")
        line.set_solid_capstyle("round")
        line.set_solid_joinstyle("round")
        line.set_zorder(4 if style.private else 3)
        axes.add_line(line)
        line.set_clip_on(False)
    lasts = [(xs[-1], ys[-1]) for xs, ys in (entry.curve(across) for entry in shown)]
    ends = [(float(x), float(y)) for x, y in axes.transData.transform(lasts)]
    _place(axes, [look[entry.name] for entry in shown], ends, labels, theme)
    picture = io.BytesIO()
    canvas.print_png(picture, metadata={"Software": None})
    return picture.getvalue()


def _font(size: float, weight: str = "normal") -> FontProperties:
    return FontProperties(family=FONT, size=size, weight=weight)


def _text(figure: Figure, text: str, font: FontProperties, colour: str) -> Text:
    # A name is shown as it is: "$" would start a formula, and a bad formula raises.
    made = Text(0, 0, text, fontproperties=font, color=colour, parse_math=False, usetex=False, va="center", ha="left")
    made.set_path_effects([withStroke(linewidth=3, foreground=figure.get_facecolor())])
    figure.add_artist(made)
    return made


def _label(figure: Figure, entry: Entry, across: str, style: Style, theme: Theme) -> tuple[Text, Text]:
    """The name of the run, and its last value."""
    name = entry.name if len(entry.name) <= LONGEST_NAME else f"{entry.name[: LONGEST_NAME - 1]}…"
    last = words.percent(entry.curve(across)[1][-1])
    value = last if entry.private else f"{last}, not private"
    colour = style.colour(theme)
    return _text(figure, name, _font(8.8, "bold"), colour), _text(figure, value, _font(7.6), colour)


def _frame(axes: Axes, shown: Sequence[Entry], across: str, theme: Theme) -> None:
    xs = [x for entry in shown for x in entry.curve(across)[0]]
    ends = [entry.curve(across)[0][-1] for entry in shown]
    ys = [y for entry in shown for y in entry.curve(across)[1]]
    if min(xs) > 0 and max(ends) > 25 * min(ends):
        axes.set_xscale("log")
        axes.set_xlim(min(xs), max(xs))
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if max(xs) > 100 * min(xs) else (1.0, 2.0, 5.0)))
    else:
        axes.set_xlim(0 if min(xs) >= 0 else min(xs), max(xs) if max(xs) > 0 else 1)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
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
        AXES[across] + suffix, fontproperties=_font(8.2), color=theme.muted, loc="right", labelpad=5, usetex=False
    )


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
    look: Sequence[Style],
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
    for style, end, height, (name, value) in zip(look, ends, heights, labels, strict=True):
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
