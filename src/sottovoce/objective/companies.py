"""Whether a record's loss stays, bit for bit, what it is in whatever company the record is evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import Tree, leaves_of, map_leaves, repeat
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import QueryError

_NEARLY = {"rtol": 1e-3, "atol": 1e-5, "equal_nan": True}
"""How nearly kernels of an accelerator that add in any order must agree with themselves."""


def compare_companies(
    evaluate: Callable[[Tree], Tensor],
    objective: ModuleObjective,
    subjects: list[Tree],
    names: tuple[str, ...] | None,
    size: int,
) -> tuple[str, ...]:
    """The companies in which the first and last row of every subject kept every bit; raises where one did not.

    Args:
        evaluate: what gives a row or a number for each record of a batch.
        objective: the model and its loss.
        subjects: records without a batch dimension, the public example first.
        names: of the made-up records that are company; None for all.
        size: the batch shape.
    """
    compared: dict[str, None] = {}
    for subject in subjects:
        copies = repeat(subject, size)
        alone = evaluate(copies)
        same = agreement(alone, evaluate(copies))
        for name, other in variants(subjects[0]).items():
            if names is not None and name not in names:
                continue
            company = _among(subject, other, size)
            try:
                found = evaluate(company)
            except Exception:  # the model does not take these made-up values
                continue
            if not (same(found[0], alone[0]) and same(found[-1], alone[-1])):
                whose = "the example's own" if subject is subjects[0] else "that of a made-up one"
                raise QueryError(
                    f"the loss of a record depends on the other records of its batch: {whose} was another when the "
                    f"other rows held {name}. {_culprit(evaluate, objective.module, copies, company)} Each record's "
                    "loss must depend on that record alone, or the guarantee does not hold: replace what computes "
                    "across the batch (batch normalisation, batch-wide softmax, in-batch negatives, a scale taken "
                    "from the batch as by dynamic quantisation) by per-record operations."
                )
            compared[name] = None
    return tuple(compared)


def agreement(once: Tensor, again: Tensor) -> Callable[[Tensor, Tensor], bool]:
    """How values are compared: bit for bit, as the same records twice must be, the generators being the same."""
    if torch.equal(bits(once), bits(again)):
        return lambda one, other: torch.equal(bits(one), bits(other))
    if once.device.type != "cpu" and torch.allclose(once, again, **_NEARLY):
        return lambda one, other: torch.allclose(one, other, **_NEARLY)
    raise QueryError(
        "the same records give other losses another time, though every global generator starts from the same seed: the "
        "loss or the model remembers earlier calls (a running mean, a counter, a cache), or draws from a generator of "
        "its own. A record's loss must depend on that record alone, so that nothing of one batch reaches the next."
    )


def bits(values: Tensor) -> Tensor:
    """A float64 tensor's bits, so that NaN equals NaN and 0 differs from -0."""
    return values.double().contiguous().view(torch.int64)


def _among(example: Tree, other: Tree, size: int) -> Tree:
    """A batch of ``other`` whose first and last rows are the example."""
    batch = repeat(other, size)

    def place(rows: Tensor, record: Tensor) -> Tensor:
        rows[0] = record
        rows[-1] = record
        return rows

    return map_leaves(place, batch, example)


def _culprit(evaluate: Callable[[Tree], Tensor], module: nn.Module, copies: Tree, company: Tree) -> str:
    size = leaves_of(copies)[0].shape[0]
    try:
        before = _first_rows(evaluate, module, copies, size)
        after = _first_rows(evaluate, module, company, size)
    except Exception:  # e.g. a scripted module, which takes no hooks
        return "No module could be named."
    for (name, kind, row), (_, _, changed) in zip(before, after, strict=False):
        if row.shape != changed.shape or not torch.equal(bits(row), bits(changed)):
            return f"The first module whose output changed is {name or 'the model itself'!r} ({kind})."
    return "No module's output changed: it happens in the loss function itself."


def _first_rows(
    evaluate: Callable[[Tree], Tensor], module: nn.Module, records: Tree, size: int
) -> list[tuple[str, str, Tensor]]:
    """The first row of every module's output, in the order in which the modules finished."""
    rows: list[tuple[str, str, Tensor]] = []

    def note(name: str) -> Callable[..., None]:
        def hook(part: nn.Module, _: Any, output: Any) -> None:
            try:
                outputs = leaves_of(output)
            except Exception:
                return
            rows.extend(
                (name, type(part).__name__, leaf[0].detach().clone())
                for leaf in outputs
                if leaf.ndim and leaf.shape[0] == size
            )

        return hook

    handles = [part.register_forward_hook(note(name)) for name, part in module.named_modules()]
    try:
        evaluate(records)
    finally:
        for handle in handles:
            handle.remove()
    return rows
