"""Memory that the lean strategy lends to a large parameter."""

import gc
from pathlib import Path

import pytest
import torch
from objective_models import cross_entropy
from torch import nn

from sottovoce.objective.directions import Key, gaussian
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.room import MAPPED_BYTES, room_like

LARGE = (1200, 1000)  # 2.3 MiB even in bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_it_has_the_format_that_torch_would_choose(dtype):
    plain = torch.empty(LARGE, dtype=dtype)
    images = torch.empty((64, 64, 20, 20), dtype=dtype).to(memory_format=torch.channels_last)
    for parameter in (plain, plain.t(), plain[:, ::2], images, plain[:2], plain[0, 0]):
        room, usual = room_like(parameter), torch.empty_like(parameter)
        assert (room.shape, room.stride(), room.dtype) == (usual.shape, usual.stride(), usual.dtype)
        assert room.data_ptr() % 64 == 0
        room.fill_(1.0)
        assert bool((room == 1.0).all())


def resident() -> int:
    """Bytes of this process that are in memory now."""
    (line,) = [row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmRSS")]
    return 1024 * int(line.split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel's account of memory is Linux's")
def test_it_is_given_back_with_the_last_tensor_that_views_it():
    parameter = torch.empty(1 << 24)  # 64 MiB, never touched
    gc.collect()
    before = resident()
    room = room_like(parameter).fill_(1.0)
    corner = room[:1, ...]
    assert resident() - before > 60 << 20
    del room
    assert resident() - before > 60 << 20
    assert float(corner) == 1.0
    del corner
    assert resident() - before < 4 << 20


class Positions(nn.Module):
    """Its output is a view of its parameter, used after its forward has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*LARGE))

    def forward(self, rows: int) -> torch.Tensor:
        return self.weight[:rows]


class WithPositions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()
        self.first = nn.Linear(LARGE[1], LARGE[0])
        self.second = nn.Linear(LARGE[0], 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = self.positions(1)
        hidden = self.first(x).tanh()  # memory of the same size is lent and given back meanwhile
        return self.second(hidden + 0 * hidden) + (positions * x).sum(-1, keepdim=True)


def test_views_of_a_lent_parameter_outlive_the_forward():
    """The lean strategy agrees with the fast one, bit for bit, on layers large enough to be mapped."""
    torch.manual_seed(0)
    model = WithPositions().eval()
    assert model.first.weight.numel() * 4 > MAPPED_BYTES
    batch = (torch.randn(5, LARGE[1]), torch.tensor([0, 1, 2, 0, 1]))
    losses = []
    for strategy in ("fast", "lean"):
        objective = ModuleObjective(model, cross_entropy, strategy=strategy)
        u = gaussian(objective.parameters.layout, count=1, key=Key(3))
        losses.append([objective.losses_along(batch, u, 0, scale) for scale in (1e-2, -1e-2)])
    fast, lean = losses
    for one, other in zip(fast, lean, strict=True):
        assert torch.equal(one, other)
