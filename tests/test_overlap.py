"""What is declared public and is the private data is found, as far as it can be without reading private values."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

import sottovoce as sv
from sottovoce.overlap import refuse_private_as_public

X, Y = torch.randn(64, 3), torch.randint(0, 2, (64,))


class Items(Dataset[Any]):
    """A data set of the user's own around tensors, arrays or another data set."""

    def __init__(self, *held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return len(self.held[0])

    def __getitem__(self, index: int) -> Any:
        return tuple(each[index] for each in self.held)


class Slotted(Dataset[Any]):
    """Keeps them in slots."""

    __slots__ = ("held",)

    def __init__(self, *held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return tuple(each[index].clone() for each in self.held)


class Plain:
    """The same, and not a torch Dataset; its items are copies."""

    def __init__(self, *held: Any) -> None:
        self.columns = {"all": list(held)}

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return tuple(each[index].clone() for each in self.columns["all"])


class Views:
    """Items are views of what no attribute shows."""

    __slots__ = ("_get",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._get = tensor.__getitem__

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._get(index)


TD, OWN, PLAIN, LIST = TensorDataset(X, Y), Items(X, Y), Plain(X, Y), [(X[i], Y[i]) for i in range(64)]
SHUFFLED = torch.randperm(64).tolist()

SHARED: dict[str, tuple[Any, Any]] = {
    "one object": (OWN, OWN),
    "a tensor data set and its subset": (TD, Subset(TD, range(16))),
    "tensors and a subset of their data set": ((X, Y), Subset(TD, range(16))),
    "a slice and a subset of the data set": ((X[10:20], Y[10:20]), Subset(TD, [3, 12])),
    "subsets of two data sets of the same tensors": (Subset(TD, range(32)), Subset(TensorDataset(X, Y), range(31, 40))),
    "subsets of a tensor data set": (Subset(TD, range(64)), Subset(TD, range(16))),
    "subsets of a tensor": (Subset(X, range(9)), Subset(X, range(8, 20))),  # pyright: ignore
    "subsets of a list": (Subset(LIST, range(64)), Subset(LIST, range(16))),  # pyright: ignore
    "a list's items and its tensors": (Subset(LIST, range(8)), (X[7:9], Y[7:9])),  # pyright: ignore
    "subsets of a plain object": (Subset(PLAIN, range(64)), Subset(PLAIN, range(16))),  # pyright: ignore
    "a plain object and its subset": (PLAIN, Subset(PLAIN, range(16))),  # pyright: ignore
    "a negative index": (Subset(PLAIN, [63]), Subset(PLAIN, [-1])),  # pyright: ignore
    "subsets of subsets": (Subset(Subset(OWN, range(10, 20)), [3]), Subset(Subset(OWN, range(12, 20)), [1])),
    "tensors and what wraps them": ((X, Y), OWN),
    "what wraps tensors and these": (OWN, (X, Y)),
    "two around the same tensors": (OWN, Items(X, Y)),
    "two around them that give copies": (PLAIN, Plain(X, Y)),
    "one that keeps them in slots": (Slotted(X, Y), (X[:9], Y[:9])),
    "tensors and views of them": (X, Views(X)),
    "a data set and its concatenation": (OWN, ConcatDataset([OWN])),
    "parts of two concatenations": (
        Subset(ConcatDataset([TensorDataset(Y), OWN]), range(60, 70)), Subset(ConcatDataset([OWN, OWN]), [64 + 5]),
    ),
    "around a data set": (Subset(OWN, range(9)), Items(Subset(OWN, range(8, 12)))),
    "in a stack": (OWN, StackDataset(OWN)),
    "dicts of another kind": (UserDict(x=X, y=Y), UserDict(x=X, y=Y)),
    "an array and its tensor": ((X.numpy(), Y.numpy()), (X[:16], Y[:16])),
    "an array backwards": (X.numpy()[::-1], X[:2]),
    "one leaf of two": ([X, Y], (torch.zeros(2, 3), Y[3:5])),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARED)
def test_what_is_shared_is_refused(case: str):
    private, public = SHARED[case]
    for one, other in ((private, public), (public, private)):
        if case == "tensors and views of them" and one is public:
            continue  # private items are never read
        with pytest.raises(sv.DataError, match=r"^validate= and private= .* validate= must be other records"):
            refuse_private_as_public(one, other, "validate=")


APART: dict[str, tuple[Any, Any]] = {
    "slices": ((X[:40], Y[:40]), (X[40:], Y[40:])),
    "copies": ((X, Y), (X.clone(), Y.clone())),
    "wrapped copies": (OWN, Items(X.clone(), Y.clone())),
    **{
        f"subsets of {name}": (Subset(source, SHUFFLED[:40]), Subset(source, SHUFFLED[40:]))
        for name, source in {
            "a tensor data set": TD, "a data set": OWN, "a plain object": PLAIN, "a list": LIST,
            "a concatenation": ConcatDataset([TD, Items(X.clone(), Y.clone())]), "a subset": Subset(OWN, range(64)),
            "a tensor": X,
        }.items()
    },
    "subsets of two data sets of the same tensors": (
        Subset(TD, SHUFFLED[:40]), Subset(TensorDataset(X, Y), SHUFFLED[40:]),
    ),
    "around disjoint subsets": (Items(Subset(TD, range(32))), Items(Subset(TD, range(32, 64)))),
    "a slice and a subset": ((X[:10], Y[:10]), Subset(TD, range(10, 64))),
    "one part of a concatenation and another": (Subset(ConcatDataset([TD, PLAIN]), range(9)), (X[9:], Y[9:])),  # pyright: ignore
    "indices that are not there": (Subset(OWN, range(60, 70)), Subset(OWN, [0, 70, -99])),
    "numbers": ([1.0, 2.0], [1.0, 2.0]),
    "sparse tensors": (X.to_sparse(), X),
    "no rows": (X[:0], X),
    "not data": (iter([1]), "a path"),
}  # fmt: skip


@pytest.mark.parametrize("case", APART)
def test_what_lies_apart_is_allowed(case: str):
    for one, other in (APART[case], APART[case][::-1]):
        refuse_private_as_public(one, other)


def test_private_items_are_not_read_and_few_public_ones():
    class Counted(Items):
        read = 0

        def __getitem__(self, index: int) -> Any:
            Counted.read += 1
            raise KeyError(index)

    long = torch.zeros(5000, 2)
    refuse_private_as_public(Counted(X), long)
    assert Counted.read == 0
    refuse_private_as_public(X, Counted(long))
    assert Counted.read == 256


def test_public_dicts_of_any_kind_are_taken():
    def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        return sv.losses.cross_entropy(model, (batch["x"], batch["y"]))

    session = sv.Session(
        torch.nn.Linear(3, 2), loss, private=UserDict(x=X, y=Y), public=UserDict(x=X.clone()[:9], y=np.zeros(9, int)),
        method=sv.DPMD(lr=0.1, public_batch=4), budget=sv.Budget(epsilon=1.0, delta=1e-3), batch_size=8, steps=2,
    )  # fmt: skip
    assert len(list(session)) == 2
