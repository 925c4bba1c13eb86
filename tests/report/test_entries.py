import pytest
from report_fakes import NAN, at, comparison, entry, sweep
from rich.console import Console

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.report import table, words
from sottovoce.report.entries import epsilons, main_runs, ordered


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


def test_of_several_runs_the_main_one_comes_first_then_the_others_by_epsilon():
    assert [(one.name, one.epsilon) for one in ordered(sweep()) if one.private] == [
        ("DP-SGD", 1.0), ("DP-SGD", 0.1), ("DP-SGD", 3.0), ("PAZO-P", 1.0), ("PAZO-P", 0.1),
    ]  # fmt: skip
    assert [one.name for one in main_runs(sweep())] == ["DP-SGD", "PAZO-P", "public only", "SGD"]
    assert epsilons(sweep()) == [0.1, 1.0, 3.0]


def test_the_main_epsilon_is_that_of_most_methods_then_the_nearest_to_1():
    most = [at("A", 2.0, 0.5), at("B", 2.0, 0.5), at("A", 1.0, 0.5), at("C", 8.0, 0.5), at("C", 0.1, 0.5)]
    assert {one.name: one.epsilon for one in main_runs(most)} == {"A": 2.0, "B": 2.0, "C": 8.0}
    assert [one.epsilon for one in main_runs([at("A", 0.2, 0.9), at("A", 4.0, 0.5), at("A", 30.0, 0.5)])] == [4.0]


def test_only_private_runs_at_different_epsilons_share_a_name():
    with pytest.raises(ConfigurationError, match="'A' was given twice at epsilon 2"):
        ordered([at("A", 1.0, 0.9), at("A", 2.0, 0.9), at("A", 2.0, 0.8)])
    for other in (entry("A", 0.8, private=False), entry("A", 0.8, private=False, trains_on="public")):
        with pytest.raises(ConfigurationError, match="'A' was given twice"):
            ordered([at("A", 1.0, 0.9), other])


def test_what_trained_on_public_records_is_neither_private_nor_a_reference():
    public = entry("public only", 0.9, private=False, trains_on="public")
    assert (public.private, public.kind) == (False, "public")
    assert entry("SGD", 0.9, private=False).kind == "reference"
    assert entry("A", 0.9, trains_on="private and public").kind == "private"
    with pytest.raises(ConfigurationError, match=r"trains_on='both'.*'private and public'"):
        entry("A", 0.9, trains_on="both")


def test_the_terminal_table_has_one_row_a_method_and_the_other_epsilons_beside():
    lines = shown(sweep()).splitlines()
    dpsgd = [line for line in lines if "DP-SGD" in line]
    assert len(dpsgd) == 1
    assert [cell.strip() for cell in dpsgd[0].split("│")[4:-1]] == ["94.1 %", "50.0", "240 MB", "88.1 %", "95.2 %"]
    pazo = next(line for line in lines if "PAZO-P" in line)
    assert [cell.strip() for cell in pazo.split("│")[-3:-1]] == ["91.2 %", ""]
    public = next(line for line in lines if "public only" in line)
    assert "public data" in public and "NOT PRIVATE" not in public
    assert "epsilon 1 " not in shown(sweep())
