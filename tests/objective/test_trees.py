from collections import namedtuple

import numpy as np
import pytest
import torch

from sottovoce.objective.records import batch_size, leaves_of, map_leaves, repeat, select, stack, zeros_like_one
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import DataError

Pair = namedtuple("Pair", "left right")


def test_trees_keep_their_form():
    tree = {"a": (torch.ones(3), [torch.zeros(3, 2)]), "b": Pair(torch.arange(3), torch.ones(3, 1))}
    doubled = map_leaves(lambda leaf: 2 * leaf, tree)
    assert isinstance(doubled["b"], Pair)
    assert isinstance(doubled["a"][1], list)
    assert torch.equal(doubled["b"].left, torch.tensor([0, 2, 4]))
    assert batch_size(tree) == 3
    one = select(tree, 1)
    assert [leaf.shape for leaf in leaves_of(one)] == [(), (2,), (), (1,)]
    again = stack([select(tree, row) for row in range(3)])
    assert all(torch.equal(x, y) for x, y in zip(leaves_of(tree), leaves_of(again), strict=True))
    assert leaves_of(repeat(one, 5))[1].shape == (5, 2)
    assert not leaves_of(zeros_like_one(tree))[0].any()


def test_unusable_batches_are_explained():
    with pytest.raises(DataError, match="common leading dimension"):
        batch_size((torch.ones(3), torch.ones(4)))
    with pytest.raises(DataError, match="there is no tensor"):
        batch_size(())
    with pytest.raises(DataError, match="common leading dimension"):
        batch_size(torch.tensor(1.0))
    with pytest.raises(DataError, match=r"ndarray.*torch\.as_tensor"):
        batch_size((np.ones(3),))


def test_made_up_records_have_the_example_s_form_and_are_always_the_same():
    example = (torch.randn(4, dtype=torch.float64), torch.tensor([3, 9, 5]), torch.tensor(True))
    made = variants(example)
    assert set(made) == {"noise", "large noise", "zeros", "ones", "NaN", "integers up to 255", "padding"}
    for name, record in made.items():
        for leaf, original, again in zip(record, example, variants(example)[name], strict=True):
            assert leaf.shape == original.shape
            assert leaf.dtype == original.dtype
            assert torch.equal(torch.nan_to_num(leaf), torch.nan_to_num(again))
    assert sorted(made["noise"][1].tolist()) == [3, 5, 9]
    assert made["NaN"][0].isnan().all()
    assert "NaN" not in variants(torch.tensor([1, 2]))
