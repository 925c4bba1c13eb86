"""From per-record rows of floats to one exact integer sum whose sensitivity is certain.

Every row is sanitised, clipped in l2, rounded towards zero onto the grid, and then its *integer* norm is
checked: floating-point rounding can never let a record through with more than its bound. The rows are integers
held in float64 (entries below 2^25, squared norms at most 2^50, sums below 2^53 for up to 2^28 records), so every
sum is exact in any order.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST_COUNT = 2**28
"""Records in one sum: more could pass 2^53, where float64 stops counting."""

_HUGE = 1e150  # squares of larger floats overflow
_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 25}  # handled at once, in one buffer: bounds the memory

_WIDE = 1024  # from here on one dot product for each row is several times faster than a batched one


def clipped_sum(rows: Tensor, kept: Tensor, *, bound: float, grid: float, prescale: float = 1.0) -> Tensor:
    """The exact sum, in grid units, of the kept rows of ``prescale * rows``, each clipped to ``bound`` in l2.

    Guarantee: adding, removing or changing to zero one row moves the sum by an integer vector of Euclidean norm
    at most floor(bound / grid), whatever the row holds. A row that is not kept or not finite counts as zero.

    Args:
        rows: ``[B, k]``, of any floating type.
        kept: ``[B]``, false for padding and for records that could not be evaluated.
        bound: the l2 bound of a row after scaling.
        grid: the power of two that the result counts in.
        prescale: a public factor applied to every row before the clip.
    """
    largest = math.floor(bound / grid)
    width = max(1, rows.shape[1])
    at_once = max(1, _ELEMENTS.get(rows.device.type, 1 << 22) // width)
    values = torch.empty(min(at_once, rows.shape[0]), rows.shape[1], dtype=torch.float64, device=rows.device)
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    ones = torch.ones(len(values), dtype=torch.float64, device=rows.device)
    kept = kept.to(rows.device)
    for start in range(0, rows.shape[0], at_once):
        part = rows[start : start + at_once].detach()
        integers = _quantised(values[: len(part)], part, kept[start : start + at_once], largest, prescale / grid)
        total.addmv_(integers.T, ones[: len(part)])  # the sum of the rows, added in one pass
    return total


def _quantised(values: Tensor, rows: Tensor, kept: Tensor, largest: int, scale: float) -> Tensor:
    """Fills ``values`` with ``scale * rows`` as integers, each row of squared norm at most ``largest ** 2``."""
    values.copy_(rows)
    if rows.dtype == torch.float64:  # narrower types have finite squares in float64
        kept = kept & torch.isfinite(values).all(dim=1)
        values.clamp_(-_HUGE, _HUGE)
    norms = _squared_norms(values).sqrt()
    kept = kept & torch.isfinite(norms)
    values.masked_fill_(~kept[:, None], 0.0)
    values.mul_(torch.where(kept, _factors(norms, largest, scale), 0.0)[:, None]).trunc_()
    # The float norm may have been an ulp short; the integer norm is what counts, so it has the last word.
    too_long = torch.nonzero(_squared_norms(values) > largest**2)[:, 0]
    shorter = values[too_long].mul(1 - 2.0**-20).trunc()
    shorter[_squared_norms(shorter) > largest**2] = 0.0
    values[too_long] = shorter
    return values


def _factors(norms: Tensor, largest: int, scale: float) -> Tensor:
    return torch.where(norms > 0, torch.clamp(largest / norms, max=scale), 0.0)


def _squared_norms(values: Tensor) -> Tensor:
    """Of integers exact, in any order of addition: every partial sum is an integer below 2^53."""
    if values.device.type != "cpu" or values.shape[1] < _WIDE or not len(values):
        return torch.einsum("bk,bk->b", values, values)
    return torch.stack([torch.dot(row, row) for row in values])
