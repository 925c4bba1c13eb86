import pytest
from report_fakes import NAN, comparison, entry
from rich.console import Console

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.report import table, words
from sottovoce.report.entries import ordered


def shown(entries) -> str:
    console = Console(width=140, no_color=True)
    with console.capture() as captured:
        console.print(table(entries))
    return captured.get().replace(words.SPACE, " ")


def test_private_runs_come_first_and_the_best_first_among_each():
    assert [one.name for one in ordered(comparison())] == ["DP-SGD", "DPZero", "SGD", "MeZO"]


def test_runs_without_accuracy_come_last_among_their_kind():
    entries = [entry("a", NAN), entry("b", 0.1), entry("c", 0.9, private=False)]
    assert [one.name for one in ordered(entries)] == ["b", "a", "c"]


def test_the_terminal_table_marks_the_references():
    lines = shown(comparison()).splitlines()
    sgd = next(line for line in lines if " SGD " in line)
    dpsgd = next(line for line in lines if "DP-SGD" in line)
    assert "NOT PRIVATE" in sgd
    assert "no guarantee" in sgd
    assert "NOT PRIVATE" not in dpsgd
    for text in ("yes", "0.9988", "93.1 %", "50.0", "240 MB"):
        assert text in dpsgd


def test_names_are_not_taken_for_markup():
    assert "[bold]A[/bold]" in shown([entry("[bold]A[/bold]", 0.9)])


def test_accuracy_in_per_cent_is_refused_with_the_remedy():
    with pytest.raises(ConfigurationError, match=r"accuracy=93\.1.*fraction between 0 and 1"):
        entry("A", 93.1)


def test_nothing_to_report_and_names_given_twice_are_refused():
    with pytest.raises(ConfigurationError, match="entries is empty"):
        table([])
    with pytest.raises(ConfigurationError, match="'A' was given twice"):
        table([entry("A", 0.9), entry("A", 0.8)])
    with pytest.raises(ConfigurationError, match="needs a name"):
        entry("  ", 0.9)


def test_a_curve_holds_finite_points_alone():
    rows = [{"step": 1, "accuracy": 0.1}, {"step": 2, "accuracy": NAN}, {"step": 3}, {"step": 4, "accuracy": 0.4}]
    made = entry("A", 0.4, history=rows)
    assert made.curve("step") == ([1, 4], [0.1, 0.4])
    assert made.curve("seconds") == ([], [])
