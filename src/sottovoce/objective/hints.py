"""What to add to the message of a loss that failed on the public example: the two mistakes that are made most."""

from __future__ import annotations

from collections.abc import Set

import torch

from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import Tree, leaves_of, map_leaves

_CONVERT = {torch.float64: "double", torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat16"}


def short(dtype: torch.dtype) -> str:
    """The name of a type, such as float32."""
    return str(dtype).removeprefix("torch.")


def how_losses_are_called(loss: object) -> str:
    """A hint for torch's own losses, which take outputs and targets."""
    if not str(getattr(loss, "__module__", "")).startswith("torch.nn"):
        return ""
    return (
        " [a loss is called as loss(model, batch): use sv.losses.cross_entropy, or lambda model, batch: "
        "F.cross_entropy(model(batch[0]), batch[1], reduction='none')]"
    )


def how_types_agree(objective: ModuleObjective, records: Tree) -> str:
    """A hint where the loss works as soon as some of the records have the parameters' type."""
    wanted, leaves = objective.parameters.dtypes[0], leaves_of(records)
    floating = {i for i, leaf in enumerate(leaves) if leaf.is_floating_point() and leaf.dtype != wanted}
    whole = [i for i, leaf in enumerate(leaves) if not (leaf.is_floating_point() or leaf.is_complex())]
    for chosen in [floating, *(floating | {i} for i in whole)]:
        try:
            objective.losses_from_seed(_converted(records, chosen, wanted))
        except Exception:  # this was not it
            continue
        if not chosen or wanted not in _CONVERT:
            return ""
        given = leaves[min(chosen)].dtype
        part = f"part {min(chosen) + 1} of the records is" if len(leaves) > 1 else "the records are"
        mend = f"convert the records with `.{_CONVERT[wanted]}()`"
        mend += f" or `.astype({short(wanted)!r})`" if wanted != torch.bfloat16 else ""
        mend += f", or the model with `.{_CONVERT[given]}()`" if given in _CONVERT else ""
        return f" [{part} {short(given)}, the model {short(wanted)}: {mend}]"
    return ""


def _converted(records: Tree, chosen: Set[int], dtype: torch.dtype) -> Tree:
    """The records with the chosen ones of their leaves in another type."""
    numbers = iter(range(len(leaves_of(records))))
    return map_leaves(lambda leaf: leaf.to(dtype) if next(numbers) in chosen else leaf, records)
