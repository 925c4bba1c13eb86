"""Neighbour replay: the same testing entropy on two neighbouring data sets.

Everything public is identical (batches, shapes, number of releases, statement), and every exact integer sum
differs by an integer vector of norm at most floor(bound / grid). The runs use learning rate 0, because a neighbour
may change the iterates: what is compared is one step's answer at equal public state, as in the definition.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_runs import METHODS, RECORDS, SAMPLING, NullRecord, data, model, without
from torch import Tensor

import sottovoce as sv
from sottovoce.privacy.noise import grid_for
from sottovoce.privacy.sampling import Poisson

VICTIM = 17


def replay(private: tuple[Tensor, Tensor], method: Any, shapes: list[Any], **options: Any) -> sv.Session:
    """Run under fixed entropy with the answers exposed, noting every shape the model was shown."""
    network = model()
    network.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    budget = options.pop("budget", sv.Budget(epsilon=1.0, delta=1e-3))
    with sv.testing.fixed_entropy("neighbours"), sv.testing.expose_answers():
        session = sv.Session(network, NullRecord(), private=private, method=method, budget=budget, **options)
        for _ in session:
            pass
    return session


def bound_of(method: Any) -> float:
    per_query = getattr(method, "clipping", "joint") == "per-query"
    return method.clip * (math.sqrt(method.queries) if per_query else 1.0)


def integer_distance(one: Tensor, other: Tensor) -> int:
    return sum(int(value) ** 2 for value in (one.to(torch.int64) - other.to(torch.int64)).tolist())


def assert_neighbours(one: sv.Session, other: sv.Session, method: Any) -> None:
    limit = math.floor(bound_of(method) / grid_for(bound_of(method)))
    assert len(one.exposed) == len(other.exposed) == one.steps == one.steps_run
    assert [a.shape for a in one.exposed] == [b.shape for b in other.exposed]
    distances = [integer_distance(a, b) for a, b in zip(one.exposed, other.exposed, strict=True)]
    assert max(distances) <= limit**2
    assert max(distances) > 0, "the victim was never in a batch: the test would prove nothing"


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", METHODS)
def test_zeroing_a_record_out_moves_each_sum_by_its_bound_at_most(name: str, sampling: str):
    method = replace(METHODS[name], lr=0.0, clip=1e-3)  # a tight clip: every record is at its bound
    shapes: tuple[list[Any], list[Any]] = ([], [])
    one = replay(data(), method, shapes[0], **SAMPLING[sampling])
    other = replay(without(data(), VICTIM), method, shapes[1], **SAMPLING[sampling])
    assert shapes[0] == shapes[1]
    assert one.statement == other.statement
    assert_neighbours(one, other, method)


@pytest.mark.parametrize("sampling", SAMPLING)
def test_the_bound_is_reached(sampling: str):
    """The declared sensitivity is not only an upper bound: a record at its clip moves the sum by nearly all of it."""
    method = replace(METHODS["DPSGD"], lr=0.0, clip=1e-3)
    one = replay(data(), method, [], **SAMPLING[sampling])
    other = replay(without(data(), VICTIM), method, [], **SAMPLING[sampling])
    limit = math.floor(method.clip / grid_for(method.clip))
    moved = max(integer_distance(a, b) for a, b in zip(one.exposed, other.exposed, strict=True))
    assert math.sqrt(moved) > 0.999 * limit


@pytest.mark.parametrize("name", METHODS)
def test_adding_a_record_moves_each_sum_by_its_bound_at_most(name: str):
    """Add/remove under Poisson: rate, steps and divisor are given, n and n + 1 records; fixed shape, other slots."""
    method = replace(METHODS[name], lr=0.0, clip=1e-3)
    budget = sv.Budget(epsilon=1.0, delta=1e-3, neighbours="add-remove")
    options = {"budget": budget, "records": RECORDS, "batch_size": 12, "steps": 16}
    shapes: tuple[list[Any], list[Any]] = ([], [])
    larger, smaller = data(), tuple(leaf[:-1] for leaf in data())
    one = replay(larger, method, shapes[0], **options)
    other = replay(smaller, method, shapes[1], **options)  # pyright: ignore[reportArgumentType]
    assert shapes[0] == shapes[1]
    assert one.statement == other.statement, "nothing public tells n from n + 1"
    assert_neighbours(one, other, method)


@pytest.mark.parametrize("sampling", SAMPLING)
def test_batches_do_not_depend_on_what_the_records_hold(sampling: str):
    """The layout is drawn before anything is read: the same members in both worlds."""
    layouts: list[list[list[int]]] = []
    for records in (data(), without(data(), VICTIM)):
        seen: list[list[int]] = []
        inputs, targets = records
        tagged = torch.cat([inputs, torch.arange(1.0, len(inputs) + 1)[:, None]], dim=1)

        def loss(network: Any, batch: tuple[Tensor, Tensor], seen: list[list[int]] = seen) -> Tensor:
            seen.append(batch[0][:, -1].tolist())
            return sv.losses.cross_entropy(network, (batch[0][:, :-1], batch[1]))

        with sv.testing.fixed_entropy("layout"):
            method = sv.DPZero(lr=0.0, clip=1.0)
            session = sv.Session(
                model(), loss, private=(tagged, targets), method=method, budget=sv.Budget(epsilon=1.0, delta=1e-3),
                **SAMPLING[sampling],
            )  # fmt: skip
            seen.clear()
            for _ in session:
                pass
        layouts.append(seen)
    assert layouts[0] == layouts[1]


def test_an_accounting_event_is_what_the_sampler_did():
    """The event of a Poisson run is the sampler's own, and the run was drawn by that sampler."""
    with sv.testing.fixed_entropy("event"):
        session = sv.Session(
            model(), NullRecord(), private=data(), method=METHODS["DPSGD"], budget=sv.Budget(epsilon=1.0, delta=1e-3),
            batch_size=12, steps=6,
        )  # fmt: skip
    curator = session._curator
    assert curator is not None
    sampler = curator.plan.stages[0].sampler
    assert isinstance(sampler, Poisson)
    assert curator.plan.events(2.5)[0] == sampler.event(2.5)
    assert session.statement.sampler[0]["rate"] == 12 / RECORDS
