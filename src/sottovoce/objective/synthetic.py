"""Made-up records of an example's form, to show how a loss behaves in other company without private data."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sottovoce.objective.records import Tree, leaves_of, map_leaves

_SEED = 20_250_617
_NARROW = (torch.uint8, torch.int8, torch.int16)


def _noise(scale: float) -> Callable[[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(_SEED)

    def fill(leaf: Tensor) -> Tensor:
        if leaf.dtype.is_floating_point:
            return scale * torch.randn(leaf.shape, generator=generator)
        return _shuffled(leaf, generator)

    return fill


def _shuffled(leaf: Tensor, generator: torch.Generator) -> Tensor:
    """The example's own values in another order: integers that the model certainly accepts."""
    order = torch.randperm(leaf.numel(), generator=generator)
    return leaf.detach().cpu().flatten()[order].view(leaf.shape)


def _constant(value: float) -> Callable[[Tensor], Tensor]:
    return lambda leaf: torch.full(leaf.shape, value)


def _not_a_number(leaf: Tensor) -> Tensor:
    return torch.full(leaf.shape, torch.nan) if leaf.dtype.is_floating_point else leaf


def _narrow(fill: Callable[[Tensor, torch.iinfo], Tensor]) -> Callable[[Tensor], Tensor]:
    """For integers of 8 or 16 bits, which are quantities such as pixels and not the numbers of words."""

    def made(leaf: Tensor) -> Tensor:
        if leaf.dtype in _NARROW:
            return fill(leaf, torch.iinfo(leaf.dtype))
        return leaf.detach().cpu()

    return made


def _anywhere(leaf: Tensor, info: torch.iinfo) -> Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(info.min, info.max + 1, leaf.shape, generator=generator)


def _is_wide(leaf: Tensor) -> bool:
    """Whole arrays of wide integers: a single one is a label, which would be out of range."""
    return leaf.dtype in (torch.int32, torch.int64) and leaf.numel() > 1


def _up_to_255(leaf: Tensor) -> Tensor:
    if not _is_wide(leaf):
        return leaf.detach().cpu()
    return torch.randint(0, 256, leaf.shape, generator=torch.Generator().manual_seed(_SEED))


def _padded(leaf: Tensor) -> Tensor:
    """Half of it zeros, as where a text is filled up: a loss may look at the longest text of its batch."""
    if not _is_wide(leaf):
        return leaf.detach().cpu()
    length = leaf.shape[-1]
    return (torch.arange(length) < (length + 1) // 2).to(leaf.dtype).expand(leaf.shape)


def variants(example: Tree) -> dict[str, Tree]:
    """Records of the example's form by name; integers may be out of the model's range (guard their use)."""
    fills: dict[str, Callable[[Tensor], Tensor]] = {
        "noise": _noise(1.0),
        "large noise": _noise(100.0),
        "zeros": _constant(0.0),
        "ones": _constant(1.0),
    }
    if any(leaf.dtype.is_floating_point for leaf in leaves_of(example)):
        fills["NaN"] = _not_a_number
    if any(leaf.dtype in _NARROW for leaf in leaves_of(example)):
        fills["integers of full range"] = _narrow(_anywhere)
        fills["the largest integers"] = _narrow(lambda leaf, info: torch.full(leaf.shape, info.max))
    if any(_is_wide(leaf) for leaf in leaves_of(example)):
        fills["integers up to 255"] = _up_to_255
        fills["padding"] = _padded

    def made(fill: Callable[[Tensor], Tensor]) -> Tree:
        def value(leaf: Tensor) -> Tensor:
            if leaf.device.type != "cpu" and not leaf.dtype.is_floating_point:
                # An index out of range stops an accelerator for good, and no exception can be caught.
                return _shuffled(leaf, torch.Generator().manual_seed(_SEED)).to(leaf.device)
            return fill(leaf).to(leaf.device, leaf.dtype)

        return map_leaves(value, example)

    return {name: made(fill) for name, fill in fills.items()}
