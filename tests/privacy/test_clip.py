"""Clipping and exact summation: no record moves a sum by more than its bound, whatever it holds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sottovoce.privacy import clip
from sottovoce.privacy.clip import clipped_sum
from sottovoce.privacy.noise import grid_for

BOUNDS = st.floats(1e-3, 1e3)
ANY_FLOAT = st.floats(width=64, allow_nan=True, allow_infinity=True)


def integer_norm(sums: torch.Tensor) -> int:
    """The exact squared norm, in Python integers."""
    assert torch.equal(sums, sums.trunc())
    return sum(int(value) ** 2 for value in sums.tolist())


@settings(max_examples=300, deadline=None)
@given(arrays("float64", st.tuples(st.integers(1, 3), st.integers(1, 6)), elements=ANY_FLOAT), BOUNDS)
def test_no_row_exceeds_its_bound_exactly(rows, bound: float):
    """Exact integer arithmetic, for any floats at all: NaN, infinities, subnormals and 1e308 included."""
    grid = grid_for(bound)
    limit = math.floor(bound / grid)
    for row in torch.from_numpy(rows):
        sums = clipped_sum(row[None], torch.ones(1, dtype=torch.bool), bound=bound, grid=grid)
        assert integer_norm(sums) <= limit**2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [1, 2, 7, 1000, 50_000])
def test_long_rows_are_clipped_to_just_below_the_bound(dtype: torch.dtype, width: int):
    """The clip must not be too timid either: within one grid cell a coordinate."""
    rows = torch.randn(4, width, generator=torch.Generator().manual_seed(width)).to(dtype) * 100
    for bound in (1.0, 0.7, 1.9999):
        grid = grid_for(bound)
        for row in rows:
            sums = clipped_sum(row[None], torch.ones(1, dtype=torch.bool), bound=bound, grid=grid)
            square = integer_norm(sums)
            assert square <= math.floor(bound / grid) ** 2
            assert math.sqrt(square) >= bound / grid - math.sqrt(width) - bound / grid * 2**-19


@pytest.mark.parametrize("excess", [2.0**-40, 2.0**-24, 2.0**-23, 2.0**-10, 1.0])
@pytest.mark.parametrize("width", [1, 3, 2000])
def test_the_integer_norm_has_the_last_word(excess: float, width: int, monkeypatch: pytest.MonkeyPatch):
    """Whatever floating point does to the clip (here its factor is too large on purpose), no row gets through."""
    honest = clip._factors
    monkeypatch.setattr(clip, "_factors", lambda *given: honest(*given) * (1 + excess))
    generator = torch.Generator().manual_seed(width)
    grid = grid_for(1.0)
    for row in torch.randn(50, 1, width, dtype=torch.float64, generator=generator):
        # Rows of whole grid cells at the bound lose nothing by rounding, so an excess stays visible.
        whole = clipped_sum(row * 9, torch.ones(1, dtype=torch.bool), bound=1.0, grid=grid) * grid
        sums = clipped_sum(whole[None], torch.ones(1, dtype=torch.bool), bound=1.0, grid=grid)
        assert integer_norm(sums) <= 2**48


def test_rounding_is_towards_zero():
    """Rounding away from zero would let a short row grow and a row at the bound pass it."""
    sums = clipped_sum(
        torch.tensor([[0.49, -0.49], [1.99, -1.99]], dtype=torch.float64) * 2.0**-24,
        torch.ones(2, dtype=torch.bool),
        bound=1.0,
        grid=2.0**-24,
    )
    assert sums.tolist() == [1.0, -1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_that_are_not_finite_or_not_kept_count_as_zero(dtype: torch.dtype):
    rows = torch.tensor([[0.25], [math.nan], [math.inf], [-math.inf], [0.5]], dtype=dtype)
    kept = torch.tensor([True, True, True, True, False])
    assert clipped_sum(rows, kept, bound=1.0, grid=2.0**-24).tolist() == [0.25 * 2**24]


def test_the_sum_is_a_sum_and_exact_in_any_order():
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(500, 3, generator=generator)
    kept = torch.ones(500, dtype=torch.bool)
    forwards = clipped_sum(rows, kept, bound=2.0, grid=grid_for(2.0))
    order = torch.randperm(500, generator=generator)
    assert torch.equal(forwards, clipped_sum(rows[order], kept, bound=2.0, grid=grid_for(2.0)))
    one_by_one = sum(
        clipped_sum(row[None], torch.ones(1, dtype=torch.bool), bound=2.0, grid=grid_for(2.0)) for row in rows
    )
    assert torch.equal(forwards, torch.as_tensor(one_by_one))


def test_a_prescale_is_applied_before_the_clip():
    rows = torch.tensor([[4.0], [0.5]])
    sums = clipped_sum(rows, torch.ones(2, dtype=torch.bool), bound=1.0, grid=2.0**-24, prescale=0.5)
    assert sums.tolist() == [1.25 * 2**24]


@pytest.mark.parametrize("width", [3, 70_000])
def test_a_row_s_share_does_not_depend_on_the_other_rows(width: int):
    """Bit for bit at one shape, with company of NaN, zeros and huge values."""
    generator = torch.Generator().manual_seed(9)
    row = torch.randn(1, width, generator=generator)
    alone: set[tuple[float, ...]] = set()
    for company in (torch.zeros, lambda *s: torch.full(s, math.nan), lambda *s: torch.full(s, 3e38)):
        rows = torch.cat([row, company(4, width)])
        kept = torch.tensor([True, False, False, False, False])
        alone.add(tuple(clipped_sum(rows, kept, bound=1.0, grid=2.0**-24).tolist()))
    assert len(alone) == 1
