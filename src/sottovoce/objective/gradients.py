"""Per-example gradients: row i is the gradient of record i's loss, whatever the other records are.

``vmap`` differentiates one record's loss and maps it over the batch (torch.func). Hooks that capture each layer's
input and output gradient were measured against it on a small CNN (26,010 parameters, batch 320, two cores, best of
12 runs: 47 ms against 50 ms) and gain too little to be worth their restrictions. ``loop`` differentiates record by
record, for models that vmap cannot trace (control flow that depends on the data).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sottovoce.objective.loss import Loss, checked_losses
from sottovoce.objective.parameters import ParameterVector
from sottovoce.objective.records import Tree, batch_size, map_leaves, select, stack
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import QueryError

Engine = Literal["vmap", "loop"]

_ROWS_BYTES = 1 << 30
"""Rows are mapped in chunks of one shape, whose gradients together stay below this size."""


class _LossOfModel(nn.Module):
    """The loss as a module, so that functional_call reaches the model's submodules however the loss uses them."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self._loss = loss

    def forward(self, record: Tree) -> Tensor:
        return checked_losses(self._loss(self.model, map_leaves(lambda leaf: leaf.unsqueeze(0), record)), 1)[0]


def _flat(gradients: list[Tensor], like: ParameterVector) -> Tensor:
    """Gradients by parameter, with the same leading dimensions, as one matrix or vector."""
    named = like.named.values()
    rows = [
        gradient.reshape(*gradient.shape[: gradient.ndim - parameter.ndim], parameter.numel()).to(
            like.device, like.dtype
        )
        for gradient, parameter in zip(gradients, named, strict=True)
    ]
    return rows[0] if len(rows) == 1 else torch.cat(rows, dim=-1)


def by_vmap(model: nn.Module, loss: Loss, parameters: ParameterVector, records: Tree) -> Tensor:
    """Per-example gradients ``[B, d]`` through torch.func."""
    wrapped = _LossOfModel(model, loss)
    values = {f"model.{name}": p.detach() for name, p in parameters.named.items()}

    def loss_of_one(at: dict[str, Tensor], record: Tree) -> Tensor:
        return functional_call(wrapped, at, (record,))

    def mapped(at: dict[str, Tensor], part: Tree) -> dict[str, Tensor]:
        with _without_fallback_warnings():
            return vmap(grad(loss_of_one), in_dims=(None, 0), randomness="different")(at, part)

    size = batch_size(records)
    rows = max(1, min(size, _ROWS_BYTES // (parameters.numel() * parameters.dtype.itemsize)))
    if rows == size:
        return _flat(list(mapped(values, records).values()), parameters)
    found = torch.empty(size, parameters.numel(), dtype=parameters.dtype, device=parameters.device)
    for start in (min(start, size - rows) for start in range(0, size, rows)):  # the last overlaps: one shape
        part = mapped(values, select(records, slice(start, start + rows)))
        found[start : start + rows] = _flat(list(part.values()), parameters)
    return found


@contextmanager
def _without_fallback_warnings() -> Iterator[None]:
    """A kernel without a batching rule is run row by row, which is right. Torch says so on standard error, past
    Python's warnings, once for each evaluation: that would tell how many there were.
    """
    switch: Callable[[bool], None] | None = getattr(
        getattr(torch._C, "_functorch", None), "_set_vmap_fallback_warning_enabled", None
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        try:
            if switch is not None:
                switch(False)
            yield
        finally:
            if switch is not None:
                switch(True)


def by_loop(model: nn.Module, loss: Loss, parameters: ParameterVector, records: Tree) -> Tensor:
    """Per-example gradients ``[B, d]``, one backward pass for each record, alone in its batch."""
    size = batch_size(records)
    found = torch.empty(size, parameters.numel(), dtype=parameters.dtype, device=parameters.device)
    for row in range(size):
        found[row] = of_sum(model, loss, parameters, select(records, slice(row, row + 1)))
    return found


def of_sum(model: nn.Module, loss: Loss, parameters: ParameterVector, records: Tree) -> Tensor:
    """The gradient ``[d]`` of the sum of the losses, by plain back-propagation."""
    with torch.enable_grad():
        total = checked_losses(loss(model, records), batch_size(records)).sum()
        found = torch.autograd.grad(total, list(parameters.named.values()), materialize_grads=True)
    return _flat([gradient.detach() for gradient in found], parameters)


def choose_engine(model: nn.Module, loss: Loss, parameters: ParameterVector, example: Tree) -> Engine:
    """``vmap`` where it runs and agrees with plain back-propagation on the example and made-up records.

    No private record is seen: the choice is made on the public example alone. It is a comparison of values since
    functional_call misses, in silence, weights that a module keeps anywhere but in its parameters.
    """
    try:
        by_loop(model, loss, parameters, stack([example]))
    except Exception as error:
        raise QueryError(
            f"the loss cannot be differentiated on the example ({type(error).__name__}: {error}). A first-order method "
            "needs a differentiable loss; a zeroth-order one, such as DPZero, does not."
        ) from error
    records = [example]
    for name in ("noise", "zeros", "ones"):
        record = variants(example)[name]
        try:
            row = by_loop(model, loss, parameters, stack([record]))
        except Exception:  # the model does not take these made-up values
            continue
        if bool(torch.isfinite(row).all()):
            records.append(record)
    batch = stack(records)
    expected = by_loop(model, loss, parameters, batch)
    try:
        found = by_vmap(model, loss, parameters, batch)
    except Exception:
        return "loop"
    usable = torch.isfinite(expected).all(dim=1)  # the example's own gradient may be infinite
    error, size = (found - expected)[usable].norm(), expected[usable].norm()
    tolerance = max(1e-4, 16 * torch.finfo(parameters.dtype).eps)
    return "vmap" if bool(error <= tolerance * size) else "loop"
