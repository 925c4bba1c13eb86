"""Neighbour replay for the methods that use public data: a record that is zeroed out, and bad ones.

Zeroed out means that its row is zero, whatever the query: its loss and gradient are not numbers here. (A constant
loss would not do: less a public gradient, or as a loss, it is something.)
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small_runs import SAMPLING, data, model, without
from test_neighbours import VICTIM, integer_distance
from torch import Tensor, nn

import sottovoce as sv
from sottovoce.privacy.noise import grid_for

# name: the method at a tight clip, and the bounds of a step's releases
CLIP = 1e-3
METHODS: dict[str, tuple[Any, tuple[float, ...]]] = {
    "PazoM": (sv.PazoM(lr=0.0, clip=CLIP, queries=3, public_batch=4), (CLIP,)),
    "PazoP": (sv.PazoP(lr=0.0, clip=CLIP, queries=3, subspace=2, public_batch=4), (CLIP,)),
    "PazoP-normalised": (sv.PazoP(lr=0.0, clip=CLIP, subspace=2, basis="normalised", public_batch=4), (CLIP,)),
    "PazoS": (sv.PazoS(lr=0.0, clip=CLIP, candidates=3, public_batch=4), (math.sqrt(3) * CLIP, CLIP)),
    "DPMD": (sv.DPMD(lr=0.0, clip=CLIP, public_batch=4), (CLIP,)),
    "DopeSGD": (sv.DopeSGD(lr=0.0, clip=CLIP, public_batch=4), (CLIP,)),
    "GEP": (sv.GEP(lr=0.0, clip=CLIP, residual_clip=CLIP, bases=3, groups=2, public_batch=4), (1.0,)),
}


class Absent:
    """The loss; records whose inputs are all zero are not there, and the marked one is bad in some way."""

    def __init__(self, kind: str = "absent") -> None:
        self.kind = kind

    def __call__(self, network: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, _ = batch
        gone = (inputs == 0).all(dim=1)
        values = sv.losses.cross_entropy(network, batch) * torch.where(gone, torch.nan, 1.0)
        marked = (inputs == 7).all(dim=1)
        # "looks" has the control flow of "raises", so that gradients are computed by the same engine.
        if self.kind in ("raises", "looks") and bool(marked.any()) and self.kind == "raises":
            raise ValueError(f"bad record {inputs[marked]}")
        return values * torch.where(marked, {"infinite": math.inf}.get(self.kind, math.nan), 1.0)


def public() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(12, 5, generator=generator)
    return inputs, inputs[:, :3].argmax(dim=1)


def replay(private: tuple[Tensor, Tensor], method: Any, shapes: list[Any], kind: str = "absent", **options: Any) -> Any:
    network = model()
    network.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    with sv.testing.fixed_entropy("public neighbours"), sv.testing.expose_answers():
        session = sv.Session(
            network, Absent(kind), private=private, public=public(), method=method,
            budget=sv.Budget(epsilon=1.0, delta=1e-3), **options,
        )  # fmt: skip
        released = [step.released for step in session]
    return session, released


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", METHODS)
def test_zeroing_a_record_out_moves_each_sum_by_its_bound_at_most(name: str, sampling: str):
    method, bounds = METHODS[name]
    shapes: tuple[list[Any], list[Any]] = ([], [])
    one, _ = replay(data(), method, shapes[0], **SAMPLING[sampling])
    other, _ = replay(without(data(), VICTIM), method, shapes[1], **SAMPLING[sampling])
    assert one.statement == other.statement
    assert len(one.exposed) == len(other.exposed) == one.steps * len(bounds)
    moved = [integer_distance(a, b) for a, b in zip(one.exposed, other.exposed, strict=True)]
    limits = [math.floor(bound / grid_for(bound)) for bound in bounds] * one.steps
    # PazoS asks its last candidate after the first answers, which differ: what is compared is each sum on its own.
    assert all(distance <= limit**2 for distance, limit in zip(moved, limits, strict=True))
    assert max(moved) > 0.2 * max(limits) ** 2, "the victim, at its clip, moves a sum by nearly all that it may"


@pytest.mark.parametrize("kind", ["nan", "infinite", "raises"])
@pytest.mark.parametrize("name", METHODS)
def test_a_bad_record_is_one_that_is_not_there(name: str, kind: str):
    method, _ = METHODS[name]
    bad = data()
    bad[0][VICTIM] = 7.0
    if kind == "infinite" and name == "PazoS":
        pytest.skip("an infinite loss is a large loss: it is cut off at the clip")
    _, one = replay(bad, method, [], kind, **SAMPLING["poisson"])
    calm = "looks" if kind == "raises" else "absent"
    _, other = replay(without(data(), VICTIM), method, [], calm, **SAMPLING["poisson"])
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
