import math
from dataclasses import replace

import pytest
from report_fakes import INFINITE, NAN, at, comparison, entry, plain_statement, private_statement, sweep

from sottovoce.report import headline, words


def said(*entries) -> str:
    return headline(entries).replace(words.SPACE, " ")


def test_the_demo_is_summed_up_with_its_own_numbers():
    assert said(*comparison()) == (
        "At epsilon 1, DP-SGD reaches 93.1 % where SGD without privacy reaches 98.0 %: privacy costs 4.9 points. "
        "DPZero (zeroth-order, two forward passes a direction) reaches 80.2 % in a third of the memory "
        "and twice the time."
    )


def test_the_cost_is_the_difference_of_the_figures_that_are_shown():
    """0.98046 and 0.93054 are shown as 98.0 and 93.1: a reader who subtracts finds what is written."""
    assert "costs 4.9 points" in said(entry("a", 0.93054), entry("b", 0.98046, private=False))


def test_one_point_is_singular():
    assert said(entry("a", 0.93), entry("b", 0.94, private=False)).endswith("privacy costs 1.0 point.")


def test_one_private_run_alone():
    assert said(entry("DP-SGD", 0.9)) == (
        "At epsilon 1, DP-SGD reaches 90.0 %; no run without privacy is here to compare it with."
    )


def test_one_reference_alone_promises_nothing():
    assert said(entry("SGD", 0.98, private=False)) == (
        "Nothing here is private: SGD reaches 98.0 % without any guarantee."
    )


def test_identical_accuracies_cost_nothing():
    text = said(entry("A", 0.9), entry("B", 0.9, peak_memory=100.0), entry("S", 0.9, private=False))
    assert text == (
        "At epsilon 1, B reaches 90.0 %, the same as S without privacy. "
        "A (what A is) reaches the same 90.0 % in 2.4 times the memory."
    )
    assert "costs" not in text


def test_a_private_run_above_the_reference_is_not_called_a_cost():
    text = said(entry("A", 0.95), entry("S", 0.9, private=False))
    assert text == "At epsilon 1, A reaches 95.0 %, above the 90.0 % of S without privacy."


@pytest.mark.parametrize("broken", [NAN, INFINITE])
def test_a_run_without_an_accuracy_is_named_and_wins_nothing(broken):
    text = said(entry("A", 0.9), entry("Lost", broken), entry("S", broken, private=False))
    assert text.startswith("At epsilon 1, A reaches 90.0 %; no run without privacy")
    assert text.endswith("Lost and S ended without an accuracy: diverged, or never evaluated.")


def test_only_broken_private_runs():
    text = said(entry("A", NAN), entry("S", 0.9, private=False))
    assert text.startswith("No private run ended with an accuracy that could be measured.")
    assert "privacy costs" not in text


def test_different_budgets_are_told_run_by_run():
    other = entry("B", 0.8, statement=private_statement(epsilon=2.0))
    text = said(entry("A", 0.9), other)
    assert text.startswith("A (epsilon 1) reaches 90.0 %")
    assert "B (what B is; epsilon 2) reaches 80.0 %" in text


def test_a_long_note_stays_out_of_the_headline():
    assert "word" not in said(entry("A", 0.9), entry("B", 0.8, note="word " * 30))


def test_non_finite_costs_are_left_out():
    text = said(entry("A", 0.9), entry("B", 0.8, seconds=NAN, peak_memory=INFINITE))
    assert text.endswith("B (what B is) reaches 80.0 %.")


def test_accounting_figures_of_a_run_without_privacy_are_never_shown():
    """Under a testing switch the accountant's figure is finite, and no guarantee all the same."""
    switched = entry("A", 0.9, statement=plain_statement(epsilon_spent=0.9987))
    assert not switched.private
    assert words.spent(switched) == "no guarantee"


@pytest.mark.parametrize("change", [{"epsilon": INFINITE}, {"epsilon_spent": NAN}])
def test_a_private_statement_without_a_finite_bound_counts_as_not_private(change):
    odd = entry("A", 0.9)
    odd = replace(odd, statement=replace(odd.statement, **change))
    assert not odd.private
    assert "Nothing here is private" in said(odd)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1"),
        (0.998701, "0.9988"),
        (0.99991, "1"),
        (2.00001, "2.001"),
        (1e-5, "1e-5"),
        (0.0, "0"),
        (INFINITE, "no guarantee"),
    ],
)
def test_bounds_are_rounded_up(value, shown):
    assert words.at_most(value) == shown
    if math.isfinite(value):
        assert float(shown) >= value


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.421, "0.42"), (8.31, "8.3"), (99.94, "99.9"), (99.96, "100"), (12480.0, "12,480"), (NAN, "not measured")],
)
def test_numbers_are_short(value, shown):
    assert words.number(value) == shown


def test_several_epsilons_are_summed_up_at_the_main_one_and_at_the_smallest():
    assert said(*sweep()) == (
        "At epsilon 1, DP-SGD reaches 94.1 % where SGD without privacy reaches 97.8 %: privacy costs 3.7 points. "
        "The public records alone, without any private one, give 93.0 %; PAZO-P, which uses both, comes out "
        "0.5 points above. "
        "PAZO-P (what PAZO-P is) reaches 93.5 %. "
        "At epsilon 0.1, PAZO-P reaches 91.2 %, the most of 2 methods, and DP-SGD 88.1 %, the least."
    )


def test_what_public_records_give_alone_is_no_reference_without_privacy():
    public = entry("public only", 0.93, private=False, trains_on="public")
    text = said(at("A", 1.0, 0.9), public)
    assert "no run without privacy is here" in text
    assert text.endswith("The public records alone, without any private one, give 93.0 %.")


@pytest.mark.parametrize(
    ("accuracy", "ending"),
    [(0.92, "1.0 point below."), (0.9302, "at the same figure."), (0.95, "2.0 points above.")],
)
def test_a_method_with_public_data_is_held_against_the_public_data_alone(accuracy, ending):
    public = entry("public only", 0.93, private=False, trains_on="public")
    both = at("P", 1.0, accuracy, trains_on="private and public")
    worse = at("Q", 1.0, 0.5, trains_on="private and public")
    assert f"give 93.0 %; P, which uses both, comes out {ending}" in said(both, public)
    assert f"give 93.0 %; of the methods that use both, P comes out best, {ending}" in said(worse, both, public)
