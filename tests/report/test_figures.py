import io
import itertools
import struct

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from matplotlib.figure import Figure
from matplotlib.image import imread
from report_fakes import NAN, at, comparison, curve, entry, sweep

from sottovoce.report import figures
from sottovoce.report.entries import ordered


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def shows(png: bytes, colour: str) -> bool:
    """Whether at least a hundred pixels have exactly this colour."""
    pixels = imread(io.BytesIO(png))[..., :3]
    wanted = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return int((np.abs(pixels - wanted) < 1e-3).all(axis=-1).sum()) >= 100


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [figures.LIGHT, figures.DARK], ids=["light", "dark"])
def test_every_text_colour_is_legible_on_its_surface(theme):
    for colour in (*theme.colours, theme.ink, theme.muted, theme.reference):
        low, high = sorted((luminance(colour), luminance(theme.surface)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour


def test_private_runs_are_solid_and_coloured_the_others_dashed_and_grey():
    look = figures.styles(ordered(comparison()))
    for name, style in look.items():
        private = name.startswith("DP")
        assert bool(style.dashes) != private
        assert (style.colour(figures.LIGHT) == figures.LIGHT.reference) != private
    assert len({(style.private, style.marker) for style in look.values()}) == 4


def test_a_figure_is_the_same_each_time_and_leaves_matplotlib_as_it_was():
    before = dict(mpl.rcParams)
    entries = ordered(comparison())
    first, second = (figures.draw(entries, "step", figures.LIGHT) for _ in range(2))
    assert first == second
    assert size_of(first) == (figures.WIDTH * figures.DENSITY, figures.HEIGHT * figures.DENSITY)
    assert dict(mpl.rcParams) == before


def test_names_that_look_like_formulas_are_drawn_as_they_are():
    figures.draw([entry(r"$\nosuchcommand{$", 0.9)], "step", figures.LIGHT)


@pytest.mark.parametrize(
    "history",
    [
        curve(0.9)[:1],
        curve(1.0, steps=10),
        [{"step": 0, "seconds": 0.0, "accuracy": 0.0}],
        [{"step": 1, "seconds": 0.0, "accuracy": 1.0}, {"step": 2, "seconds": 0.0, "accuracy": 1.0}],
    ],
)
def test_short_and_flat_curves_are_drawn(history):
    for across in figures.AXES:
        assert shows(figures.draw([entry("A", 0.9, history=history)], across, figures.DARK), figures.DARK_COLOURS[0])


def test_very_different_lengths_are_drawn_on_a_logarithmic_axis():
    entries = [entry("A", 0.9, history=curve(0.9, steps=100)), entry("B", 0.8, history=curve(0.8, steps=9000))]
    picture = figures.draw(entries, "step", figures.LIGHT)
    assert shows(picture, figures.LIGHT_COLOURS[0])
    assert shows(picture, figures.LIGHT_COLOURS[1])


def test_the_words_for_a_figure_tell_runs_and_ends():
    text = figures.describe(ordered(comparison()), "seconds")
    assert "accuracy on the public test set against training time in seconds" in text
    assert "SGD (NOT PRIVATE, dashed)" in text
    assert "DP-SGD (private) goes from" in text


@given(
    wanted=some.lists(some.floats(-50, 450), min_size=1, max_size=12),
    gap=some.floats(1, 60),
)
@settings(max_examples=200, deadline=None)
def test_labels_keep_their_order_their_distance_and_the_range(wanted, gap):
    placed = figures.spread(wanted, gap=gap, low=0, high=400)
    assert len(placed) == len(wanted)
    assert min(placed) >= -1e-6
    assert max(placed) <= 400 + 1e-6
    inner = min(gap, 400 / max(1, len(wanted) - 1))
    order = np.argsort(wanted, kind="stable")
    for one, other in itertools.pairwise(order):
        assert placed[other] - placed[one] >= inner - 1e-6


def test_labels_with_room_stay_where_they_belong():
    assert figures.spread([300.0, 10.0, 100.0], gap=30, low=0, high=400) == [300.0, 10.0, 100.0]
    assert figures.spread([100.0, 100.0], gap=30, low=0, high=400) == [85.0, 115.0]


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.98), (0.93, 0.945), (1.0, 1.0), (0.0, 0.0), (0.5, 0.5)])
def test_the_axis_of_accuracies_encloses_them_and_stays_within_0_and_100(low, high):
    bottom, top, ticks = figures._percents(low, high)
    assert -1e-9 <= bottom <= low + 1e-9
    assert high - 1e-9 <= top <= 1 + 1e-9
    assert 2 <= len(ticks) <= 7


def test_accuracy_against_epsilon_needs_two_epsilons_with_an_accuracy():
    assert figures.drawable(ordered(comparison()), figures.EPSILON) == []
    assert figures.drawable(ordered([at("A", 1.0, 0.9), at("A", 0.1, NAN)]), figures.EPSILON) == []
    names = [one.name for one in figures.drawable(ordered(sweep()), figures.EPSILON)]
    assert names == ["DP-SGD", "PAZO-P", "public only", "SGD"]


def test_the_words_for_accuracy_against_epsilon_tell_every_point():
    text = figures.describe(ordered(sweep()), figures.EPSILON)
    assert "against the epsilon of the guarantee, on a logarithmic scale" in text
    assert "DP-SGD (private) reaches 88.1 % at 0.1, 94.1 % at 1 and 95.2 % at 3" in text.replace("\xa0", " ")
    assert "public only (public data only, dash-dotted) is level at 93.0 %" in text.replace("\xa0", " ")
    assert "SGD (NOT PRIVATE, dashed) is level at 97.8 %" in text.replace("\xa0", " ")


@pytest.mark.parametrize("theme", [figures.LIGHT, figures.DARK], ids=["light", "dark"])
def test_accuracy_against_epsilon_shows_every_kind_in_its_colour(theme):
    picture = figures.draw(ordered(sweep()), figures.EPSILON, theme)
    assert size_of(picture) == (figures.WIDTH * figures.DENSITY, figures.HEIGHT * figures.DENSITY)
    for colour in (*theme.colours[:2], theme.reference, theme.ink):
        assert shows(picture, colour), colour
    assert not shows(picture, theme.colours[2])


def test_the_axis_of_epsilons_is_logarithmic_and_ticked_where_there_are_runs():
    axes = Figure().add_axes((0.1, 0.1, 0.8, 0.8))
    figures._frame(axes, figures._lines(ordered(sweep()), figures.EPSILON), figures.EPSILON, figures.LIGHT)
    assert axes.get_xscale() == "log"
    assert "(logarithmic)" in axes.get_xlabel()
    low, high = axes.get_xlim()
    assert low < 0.1 and 3 < high < 3.5
    assert list(axes.get_xticks()) == [0.1, 1.0, 3.0]
    assert [axes.xaxis.get_major_formatter()(tick) for tick in axes.get_xticks()] == ["0.1", "1", "3"]


def test_where_methods_end_at_different_epsilons_their_labels_say_where():
    values = figures._values(figures._lines(ordered(sweep()), figures.EPSILON), figures.EPSILON)
    assert [value.replace("\xa0", " ") for value in values] == [
        "95.2 % at 3", "93.5 % at 1", "93.0 %, public data", "97.8 %, not private",
    ]  # fmt: skip
    same = ordered([at("A", 0.1, 0.8), at("A", 1.0, 0.9)])
    assert figures._values(figures._lines(same, figures.EPSILON), figures.EPSILON) == ["90.0\xa0%"]


def test_learning_curves_show_the_main_runs_alone():
    text = figures.describe(ordered(sweep()), "step")
    assert text.count("DP-SGD") == 1


def test_public_data_alone_is_drawn_like_nothing_else():
    look = figures.styles(ordered(sweep()))
    public = look["public only"]
    assert public.colour(figures.LIGHT) == figures.LIGHT.ink
    assert public.dashes not in {(), *figures.DASHES}
    assert not public.private
