"""The guarantees where the model is on a CUDA device; they need one, and are passed over elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_runs import SAMPLING, data, model, without
from test_neighbours import VICTIM, integer_distance
from test_public_neighbours import METHODS as PUBLIC_METHODS
from test_public_neighbours import Absent, public

import sottovoce as sv
from sottovoce.privacy.clip import clipped_sum
from sottovoce.privacy.noise import grid_for

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

BUDGET = sv.Budget(epsilon=1.0, delta=1e-3)
METHODS: dict[str, Any] = {
    "DPZero": sv.DPZero(lr=0.0, clip=1e-3, queries=3),
    "DPSGD": sv.DPSGD(lr=0.0, clip=1e-3),
    **{name: method for name, (method, _) in PUBLIC_METHODS.items()},
}


def session(method: Any, private: Any, device: str, **options: Any) -> sv.Session:
    wants = hasattr(method, "public_batch")
    return sv.Session(
        model().to(device), Absent(), private=private, public=public() if wants else None, method=method,
        budget=BUDGET, **options,
    )  # fmt: skip


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", METHODS)
def test_a_zeroed_record_moves_each_sum_by_its_bound_at_most(name: str, sampling: str):
    found: list[list[torch.Tensor]] = []
    for records in (data(), without(data(), VICTIM)):
        with sv.testing.fixed_entropy("cuda"), sv.testing.expose_answers():
            run = session(METHODS[name], records, "cuda", **SAMPLING[sampling])
            released = [step.released for step in run]
        assert all(answer.device.type == "cpu" and answer.dtype == torch.float64 for answer in released)
        found.append(run.exposed)
    largest = max(integer_distance(a, b) for a, b in zip(*found, strict=True))
    assert 0 < largest < (3**0.5 * 2**25) ** 2


@pytest.mark.parametrize("name", METHODS)
def test_answers_without_noise_are_those_of_the_cpu(name: str):
    answers: list[list[torch.Tensor]] = []
    for device in ("cpu", "cuda"):
        with sv.testing.no_noise(), sv.testing.fixed_entropy("devices"):
            run = session(METHODS[name], data(), device, **SAMPLING["poisson"])
            answers.append([step.released for step in run])
    if name == "GEP":
        return  # the basis comes from a factorisation whose signs depend on the library
    for one, other in zip(*answers, strict=True):
        assert torch.allclose(one, other, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_learning_rate_zero_keeps_every_bit(name: str):
    run = session(METHODS[name], data(), "cuda", **SAMPLING["full-batch"])
    before = [p.detach().clone() for p in run.objective.module.parameters()]
    for _ in run:
        pass
    for old, new in zip(before, run.objective.module.parameters(), strict=True):
        assert torch.equal(old.view(torch.int32), new.detach().view(torch.int32))


def test_the_user_s_generators_are_as_if_nothing_had_been_drawn():
    torch.cuda.manual_seed(5)
    before = torch.cuda.get_rng_state()
    for _ in session(METHODS["DPZero"], data(), "cuda", **SAMPLING["poisson"]):
        pass
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.cuda.initial_seed() == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sums_are_the_same_integers_on_either_device(dtype: torch.dtype):
    rows = torch.randn(300, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows[7], rows[8, 3], rows[9] = torch.nan, torch.inf, 1e30
    kept = torch.arange(300) % 11 != 0
    for bound in (1e-3, 0.7, 30.0):
        grid = grid_for(bound)
        limit = int(bound / grid)
        on_cpu, on_gpu = (clipped_sum(rows.to(d), kept, bound=bound, grid=grid).cpu() for d in ("cpu", "cuda"))
        # The float norms may differ in the last bit, and with them each of the 300 truncations.
        assert float((on_cpu - on_gpu).abs().max()) <= 300
        assert float(on_gpu.norm()) <= 300 * limit and torch.equal(on_gpu, on_gpu.round())
