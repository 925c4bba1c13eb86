"""Items of a data set as records parse: of whatever type one of them is, all others count as they do without it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from test_neighbours import integer_distance
from torch.utils.data import Dataset, Subset, TensorDataset

import sottovoce as sv
from sottovoce.privacy.noise import grid_for
from sottovoce.privacy.records import Records

RECORDS, CLIP = 40, 1e-3
BUDGET = sv.Budget(epsilon=1.0, delta=1e-3)
UNREADABLE = object()
INPUTS = torch.randn(RECORDS, 3, generator=torch.Generator().manual_seed(5))
EXAMPLES = {"float": (torch.zeros(3), torch.tensor(0.0)), "integer": (torch.zeros(3), torch.tensor(0))}

ODD: dict[str, Any] = {
    "a number": 1.0, "an integer": 1, "a boolean": True, "half": 0.5, "NaN": math.nan, "infinite": math.inf,
    "unreadable": UNREADABLE, "nothing": None, "text": "1", "too large": 2**70, "complex": 1j, "double": np.float64(1),
    "narrow": torch.tensor(1, dtype=torch.uint8), "misshapen": [1, 1], "a tree": {"y": 1},
}  # fmt: skip


class Rows(Dataset[Any]):
    """Inputs and a target as a table gives them; the first record's is odd."""

    def __init__(self, first: Any, usual: Any) -> None:
        self.first, self.usual = first, usual

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        if index == 0 and self.first is UNREADABLE:
            raise OSError("no such file")
        return INPUTS[index].numpy().astype(np.float64), self.first if index == 0 else self.usual


def sums(private: Any, example: Any, loss: Any) -> list[torch.Tensor]:
    model = torch.nn.Linear(3, 1 if loss is sv.losses.squared_error else 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
    with sv.testing.fixed_entropy("forms"), sv.testing.expose_answers():
        session = sv.Session(
            model, loss, private=private, example=example, method=sv.DPSGD(lr=0.0, clip=CLIP), budget=BUDGET,
            sampling="full-batch", steps=1,
        )  # fmt: skip
        for _ in session:
            pass
    return session.exposed


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_type_of_one_record_does_not_decide_whether_others_count(kind: str, odd: str):
    """Once the first record's form was taken for all: one number that parses otherwise silenced everybody else."""
    loss = sv.losses.squared_error if kind == "float" else sv.losses.cross_entropy
    usual = 0.5 if kind == "float" else 1
    (without,) = sums(Rows(UNREADABLE, usual), EXAMPLES[kind], loss)
    (found,) = sums(Rows(ODD[odd], usual), EXAMPLES[kind], loss)
    limit = math.floor(CLIP / grid_for(CLIP))
    assert without.double().norm() > 10 * limit, "the others count"
    moved = integer_distance(found, without)
    assert moved <= limit**2
    counts = {"a number", "an integer", "a boolean", "double", "narrow"} | ({"half"} if kind == "float" else set())
    assert (moved > 0.99 * limit**2) == (odd in counts)


def test_items_take_the_example_s_types_where_these_hold_them():
    def kept(example: Any, item: Any) -> Any:
        records = Records([item], torch.as_tensor(example), torch.as_tensor)
        batch, readable = records.batch(np.arange(1), 1, torch.device("cpu"))
        return batch[0].item() if bool(readable[0]) else None

    byte, half = torch.tensor(0, dtype=torch.uint8), torch.tensor(0.0, dtype=torch.float16)
    assert [kept(0, item) for item in (3, 3.0, True, 2.5, math.nan, 1e30)] == [3, 3, 1, None, None, None]
    assert [kept(byte, item) for item in (255, 256, -1, 7.0)] == [255, None, None, 7]
    assert [kept(0.0, item) for item in (3, True, 2.5, 2j)] == [3.0, 1.0, 2.5, None]
    assert [kept(half, item) for item in (3, 2.5, np.float64(0.5))] == [3.0, 2.5, 0.5]
    assert [kept(True, item) for item in (True, 1, 0.0, 2)] == [True, True, False, None]


def test_the_form_of_tensors_needs_no_example_and_public_records_are_one():
    data = TensorDataset(INPUTS, torch.ones(RECORDS))
    for private in (data, Subset(data, range(30)), Subset(Subset(data, range(30)), range(1, 20))):
        session = sv.Session(
            torch.nn.Linear(3, 1), sv.losses.squared_error, private=private, method=sv.DPSGD(lr=0.1), budget=BUDGET,
            batch_size=5, steps=2,
        )  # fmt: skip
        assert len(list(session)) == 2
    public = (torch.randn(8, 3), torch.ones(8))
    for given in (public, TensorDataset(*public), [*public], Subset(TensorDataset(*public), range(2, 8))):
        session = sv.Session(
            torch.nn.Linear(3, 1), sv.losses.squared_error, private=Rows(1, 0.5), public=given, budget=BUDGET,
            method=sv.DPMD(lr=0.1, public_batch=4), batch_size=5, steps=2,
        )  # fmt: skip
        first = session.objective.example
        assert first is not None
        assert torch.equal(first[0], public[0][0] if not isinstance(given, Subset) else public[0][2])
        assert len(list(session)) == 2


def test_a_tensor_data_set_with_items_of_its_own_is_asked_for_them():
    class Doubled(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            inputs, target = super().__getitem__(index)
            return torch.cat([inputs, inputs]), target

    own = Doubled(INPUTS, torch.ones(RECORDS))
    for private in (own, Subset(own, range(9))):
        with pytest.raises(sv.DataError, match="a data set of items"):
            sums(private, None, sv.losses.squared_error)
