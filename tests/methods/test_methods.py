"""Each private method, without noise, against a plain reference written from its paper; and Opacus for DP-SGD."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sottovoce as sv
from sottovoce.objective.directions import Key, sphere
from sottovoce.privacy.noise import grid_for

RECORDS, WIDTH, CLASSES = 40, 6, 3
BUDGET = sv.Budget(epsilon=1.0, delta=1e-3)


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(RECORDS, WIDTH, generator=generator)
    return inputs, inputs[:, :CLASSES].argmax(dim=1)


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def put(model: nn.Module, vector: Tensor) -> None:
    torch.nn.utils.vector_to_parameters(vector, model.parameters())


def gradients(model: nn.Module) -> Tensor:
    """One backward pass a record: the slowest and plainest way."""
    inputs, targets = records()
    rows: list[Tensor] = []
    for index in range(RECORDS):
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs[index : index + 1]), targets[index : index + 1]).backward()
        rows.append(torch.cat([p.grad.reshape(-1).clone() for p in model.parameters() if p.grad is not None]))
    return torch.stack(rows)


def slopes(model: nn.Module, u: Any, smoothing: float) -> Tensor:
    inputs, targets = records()
    x = flat(model)
    columns: list[Tensor] = []
    for query in range(u.count):
        values: list[Tensor] = []
        for sign in (1, -1):
            moved = network()
            put(moved, x + sign * smoothing * u.vector(query))
            with torch.no_grad():
                losses = nn.functional.cross_entropy(moved(inputs), targets, reduction="none")
            values.append(losses.double())
        columns.append((values[0] - values[1]) / (2 * smoothing))
    return torch.stack(columns, dim=1)


def one_step(method: Any, **options: Any) -> tuple[Tensor, sv.Session]:
    """The model after one full-batch step without noise."""
    model = network()
    with sv.testing.no_noise(), sv.testing.expose_answers():
        session = sv.Session(
            model, sv.losses.cross_entropy, private=records(), method=method, budget=BUDGET, sampling="full-batch",
            steps=1, **options,
        )  # fmt: skip
        for _ in session:
            pass
    return flat(model), session


def clipped_mean(rows: Tensor, bound: float) -> Tensor:
    factors = (bound / rows.double().norm(dim=1, keepdim=True)).clamp(max=1)
    return (rows.double() * factors).sum(dim=0) / RECORDS


def quantised_sum(rows: Tensor, bound: float) -> Tensor:
    """The rule, in plain words: clip to a whole number of grid cells, round towards zero, add up."""
    grid = grid_for(bound)
    largest = math.floor(bound / grid)
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for row in rows.double():
        scale = min(1 / grid, largest / float(torch.einsum("k,k->", row, row).sqrt()))
        total += (row * scale).trunc()
    return total


@pytest.mark.parametrize("clip", [0.05, 0.5, 100.0])
def test_dpsgd_is_the_clipped_mean_gradient(clip: float):
    after, session = one_step(sv.DPSGD(lr=0.3, clip=clip))
    rows = gradients(network())
    assert torch.allclose(after.double(), flat(network()).double() - 0.3 * clipped_mean(rows, clip), atol=2e-6)
    grid = grid_for(clip)
    assert (session.exposed[0] * grid / RECORDS - clipped_mean(rows, clip)).abs().max() < grid + 1e-6 * clip


@pytest.mark.parametrize("clip", [0.05, 1.0, 100.0])
@pytest.mark.parametrize("clipping", ["joint", "per-query"])
def test_dpzero_is_the_clipped_mean_slope_times_its_direction(clipping: Any, clip: float):
    method = sv.DPZero(lr=0.1, clip=clip, queries=3, clipping=clipping)
    after, session = one_step(method, seed=9)
    model = network()
    u = sphere(session.objective.parameters.layout, count=3, key=Key(9).fold(0))
    rows = slopes(model, u, method.smoothing)
    if clipping == "joint":
        answer = quantised_sum(rows, clip)
    else:
        answer = quantised_sum(rows.clamp(-clip, clip), math.sqrt(3) * clip)
    bound = clip if clipping == "joint" else math.sqrt(3) * clip
    # The same float32 losses give the same float64 slopes: bit for bit, not nearly.
    assert torch.equal(session.exposed[0].double(), answer)
    coefficients = answer * grid_for(bound) / RECORDS / 3
    expected = flat(model) - 0.1 * sum(float(c) * u.vector(j) for j, c in enumerate(coefficients))
    assert torch.allclose(after, expected, atol=1e-6)


def test_a_quantised_sum_is_within_a_cell_a_record_of_the_real_one():
    _, session = one_step(sv.DPSGD(lr=0.0, clip=0.5))
    rows = gradients(network())
    factors = (0.5 / rows.double().norm(dim=1, keepdim=True)).clamp(max=1)
    real = (rows.double() * factors).sum(dim=0) / grid_for(0.5)
    # The engine's float32 gradients differ from single backward passes in their last bits.
    rounding = RECORDS * 2.0**-20 * 0.5 / grid_for(0.5)
    assert (session.exposed[0] - real).abs().max() <= RECORDS + rounding


def test_epsilon_and_noise_do_not_depend_on_the_number_of_queries():
    sessions = [
        sv.Session(
            network(), sv.losses.cross_entropy, private=records(), budget=BUDGET, batch_size=8, steps=20,
            method=sv.DPZero(lr=0.1, queries=queries, clipping=clipping),
        )
        for queries in (1, 4, 16) for clipping in ("joint", "per-query")
    ]  # fmt: skip
    assert len({session.noise_multiplier for session in sessions}) == 1
    assert len({session.statement.epsilon for session in sessions}) == 1


def test_per_query_noise_is_sqrt_q_times_that_of_one_query():
    """1,600 coefficients a side at a vanishing clip: pure noise; the ratio within 5 standard errors (6e-7)."""
    spreads: list[float] = []
    for queries in (1, 16):
        method = sv.DPZero(lr=0.0, clip=1e-6, queries=queries, clipping="per-query")
        session = sv.Session(
            network(), sv.losses.cross_entropy, private=records(), budget=BUDGET, sampling="full-batch",
            steps=1600 // queries, method=method,
        )  # fmt: skip
        released = torch.cat([step.released * queries for step in session])
        unit = session.noise_multiplier * 1e-6 / RECORDS
        # The clipped means add at most 1 / multiplier of the unit; centre them away.
        spreads.append(float((released - released.mean()).square().mean()) / unit**2)
    assert abs(spreads[1] / spreads[0] / 16 - 1) < 5 * math.sqrt(4 / 1600) + 0.02


def test_opacus_takes_the_same_noiseless_step():
    """One step of Opacus' DP-SGD on the same batch and clip agrees to 1e-5 relative."""
    opacus = pytest.importorskip("opacus")
    from opacus.optimizers import DPOptimizer

    clip, rate = 0.4, 0.7
    wrapped = opacus.GradSampleModule(network())
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=rate), noise_multiplier=0.0, max_grad_norm=clip,
        expected_batch_size=RECORDS,
    )  # fmt: skip
    inputs, targets = records()
    nn.functional.cross_entropy(wrapped(inputs), targets).backward()
    optimizer.step()
    theirs = flat(wrapped._module) - flat(network())
    ours = one_step(sv.DPSGD(lr=rate, clip=clip))[0] - flat(network())
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", [sv.DPZero(lr=0.0, smoothing=0.05, queries=2), sv.DPSGD(lr=0.0)])
@pytest.mark.parametrize("strategy", ["fast", "lean"])
def test_with_learning_rate_zero_the_parameters_keep_every_bit(dtype: torch.dtype, method: Any, strategy: Any):
    """Also with tied weights, which count once."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(WIDTH, WIDTH)
            self.second = nn.Linear(WIDTH, WIDTH)
            self.second.weight = self.first.weight
            self.out = nn.Linear(WIDTH, CLASSES)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.out(torch.tanh(self.second(torch.tanh(self.first(inputs.to(self.out.weight.dtype))))))

    model = Tied().to(dtype)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    session = sv.Session(
        model, sv.losses.cross_entropy, private=records(), method=method, budget=BUDGET, batch_size=8, steps=5,
        strategy=strategy,
    )  # fmt: skip
    for _ in session:
        pass
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old.view(torch.uint8), new.detach().view(torch.uint8))


def test_a_smoothing_too_small_for_bfloat16_is_refused():
    with pytest.raises(sv.ConfigurationError, match="smoothing"):
        sv.Session(
            network().to(torch.bfloat16), sv.losses.cross_entropy, private=(records()[0].bfloat16(), records()[1]),
            method=sv.DPZero(lr=0.1, smoothing=1e-7), budget=BUDGET, batch_size=8, steps=5,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": -1.0}, "learning rate"),
        ({"lr": math.nan}, "learning rate"),
        ({"clip": 0.0}, "clip"),
        ({"smoothing": -1e-3}, "smoothing"),
        ({"queries": 0}, "queries"),
        ({"queries": 1.5}, "queries=1.5"),
        ({"lr": "a"}, "lr='a'"),
        ({"directions": "cube"}, "directions"),
        ({"clipping": "none"}, "clipping"),
    ],
)
def test_bad_settings_are_refused_when_the_method_is_made(change: dict[str, Any], words: str):
    with pytest.raises(sv.ConfigurationError, match=words):
        replace(sv.DPZero(lr=0.1), **change)


@pytest.mark.parametrize("bad", [0, 1.5, "a", True])
def test_the_references_settings_are_checked_too(bad: Any):
    with pytest.raises(sv.ConfigurationError, match=f"queries={bad!r}"):
        sv.MeZO(lr=0.1, queries=bad)


def test_the_references_learn_and_say_that_they_are_not_private():
    for method, steps in ((sv.SGD(lr=1.0), 60), (sv.MeZO(lr=0.02, queries=4), 200)):
        model = network()
        run = sv.fit(
            model, sv.losses.cross_entropy, private=records(), method=method, batch_size=20, steps=steps,
            validate=records(), metrics={"accuracy": sv.losses.accuracy},
        )  # fmt: skip
        assert run.final["accuracy"] > 0.8
        assert not run.statement.private and run.statement.epsilon == math.inf
        assert "NOT PRIVATE" in str(run.statement)
        with pytest.raises(sv.ConfigurationError, match="WITHOUT PRIVACY"):
            sv.Session(
                model, sv.losses.cross_entropy, private=records(), method=method, budget=BUDGET, batch_size=20, steps=2
            )
