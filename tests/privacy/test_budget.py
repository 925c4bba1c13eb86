import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import sottovoce as sv
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError


def test_the_default_relation_leaves_the_number_of_records_public():
    budget = Budget(epsilon=1.0, delta=1e-6)
    assert (budget.neighbours, budget.unit) == ("zero-out", "record")


def test_a_budget_cannot_be_changed_after_the_fact():
    budget = Budget(epsilon=1.0, delta=1e-6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.epsilon = 2.0  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_must_be_positive_and_finite(epsilon: float):
    with pytest.raises(ConfigurationError, match="epsilon"):
        Budget(epsilon=epsilon, delta=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2.0, math.nan])
def test_delta_must_lie_between_0_and_1(delta: float):
    with pytest.raises(ConfigurationError, match="delta"):
        Budget(epsilon=1.0, delta=delta)


def test_unknown_relations_and_units_are_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError, match="zero-out, add-remove, replace-one"):
        Budget(epsilon=1.0, delta=1e-6, neighbours="swap")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="record"):
        Budget(epsilon=1.0, delta=1e-6, unit="user")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("number", [np.float32(1), np.float16(1), np.float64(1), torch.tensor(1.0), Fraction(1), 1])
def test_every_kind_of_number_becomes_a_float(number: Any):
    """The arithmetic of narrower floats would never meet the tolerances of accounting."""
    budget = sv.Budget(epsilon=number, delta=1e-6)
    assert type(budget.epsilon) is float and budget.epsilon == 1.0


@pytest.mark.parametrize("given", ["1", None, True, [1.0]])
def test_what_is_not_a_number_is_refused(given: Any):
    for wrong in ({"epsilon": given, "delta": 1e-6}, {"epsilon": 1.0, "delta": given}):
        with pytest.raises(sv.ConfigurationError, match="a number is needed"):
            sv.Budget(**wrong)
