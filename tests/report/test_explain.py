import math

import pytest
from report_fakes import comparison, entry, private_statement, sweep

from sottovoce.report import explain


def text_of(entries) -> str:
    return " ".join(paragraph for _, paragraphs in explain.sections(entries) for paragraph in paragraphs)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 1e-5), (3.0, 0.1), (8.0, 1e-3)])
def test_the_best_guess_is_that_of_the_extreme_mechanism(epsilon, delta):
    """The mechanism that tells all with probability delta, and else answers at random with odds e^epsilon."""
    told = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    assert explain.belief(epsilon, delta) == pytest.approx(told, rel=1e-12)


def test_no_budget_is_a_blind_guess_and_a_huge_one_none():
    assert explain.belief(0.0, 0.0) == 0.5
    assert explain.belief(1e6, 0.0) == 1.0


def test_epsilon_is_explained_with_the_number_of_this_page():
    assert "right at most 74 times in 100" in text_of([entry("A", 0.9)])
    huge = entry("A", 0.9, statement=private_statement(epsilon=50.0, epsilon_spent=49.0))
    assert "protects little" in text_of([huge])


def test_the_relation_in_use_is_explained():
    assert "Zero-out neighbours" in text_of([entry("A", 0.9)])
    replaced = text_of([entry("A", 0.9, statement=private_statement(neighbours="replace-one"))])
    assert "Replace-one neighbours" in replaced
    assert "which of two values one record had" in replaced
    assert "Zero-out" not in replaced


def test_references_are_explained_only_where_there_are_some():
    assert "NOT PRIVATE" in text_of(comparison())
    assert "NOT PRIVATE" not in text_of([entry("A", 0.9)])


def test_several_runs_together_cost_the_sum():
    points = " ".join(explain.not_covered(comparison()))
    assert "at most epsilon 1.998, delta 2e-5" in points
    assert "neither they nor this page may be shown" in points
    assert "together" not in " ".join(explain.not_covered([entry("A", 0.9)]))


def test_bounds_under_different_relations_are_not_added():
    entries = [entry("A", 0.9), entry("B", 0.9, statement=private_statement(neighbours="replace-one"))]
    points = " ".join(explain.not_covered(entries))
    assert "together" in points
    assert "addition" not in points


def test_without_private_runs_no_protection_is_described():
    text = text_of([entry("S", 0.9, private=False)])
    assert "No run on this page has such a bound." in text
    assert "neighbours" not in text


def test_each_epsilon_of_the_page_is_turned_into_guesses():
    text = text_of(sweep())
    assert "At the 0.999 spent here" in text
    assert "right at most 74 times in 100" in text
    assert "It is 53 at epsilon 0.1 and 96 at epsilon 3." in text
    assert "It is" not in text_of(comparison())


def test_a_run_on_public_data_alone_is_explained_and_not_called_a_danger():
    entries = [one for one in sweep() if one.kind != "reference"]
    text = text_of(entries)
    assert "PAZO-P uses both." in text
    assert "NOT PRIVATE" not in text
    assert "NOT PRIVATE" not in " ".join(explain.not_covered(entries))
    assert "public records" not in text_of(comparison())


def test_the_sum_counts_every_run():
    assert "the 5 private runs together" in " ".join(explain.not_covered(sweep()))
    assert "at most epsilon 5.195, delta 5e-5" in " ".join(explain.not_covered(sweep()))
