"""Whether evaluating a loss leaves anything behind: state would carry one record's values into the losses of others."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import torch
from torch import Tensor, nn

from sottovoce.objective.companies import agreement
from sottovoce.objective.evaluation import evaluating, from_seed
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import Tree, leaves_of, move, repeat
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import QueryError


def refuse_memory(objective: ModuleObjective, example: Tree, size: int) -> None:
    """The example gives the same again after others were there: looked at before anything that a NaN may spoil."""
    copies = repeat(example, size)
    once = objective.losses_from_seed(copies)
    with suppress(Exception):  # the model does not take the made-up record
        objective.losses_from_seed(repeat(variants(example)["noise"], size))
    agreement(once, objective.losses_from_seed(copies))


def refuse_changed_state(objective: ModuleObjective, example: Tree, size: int) -> None:
    """State that a loss changes would carry private records past the door, so every evaluation puts it back.

    Whoever relies on such state learns of it here. All made-up records are tried, as some losses change state at
    unusual values only, and nothing is put back before the end.
    """
    with evaluating(objective.module, objective.loss, trained=objective.strategy == "fast"):
        _refuse_state_changed_by(objective, [example, *variants(example).values()], size)


def _refuse_state_changed_by(objective: ModuleObjective, records: list[Tree], size: int) -> None:
    module = objective.module
    held = {name: (tensor, _version(tensor), _digest(tensor)) for name, tensor in _held(module)}
    stored = _stored(module)
    for record in records:
        batch = move(repeat(record, size), objective.parameters.device)
        versions = [_version(leaf) for leaf in leaves_of(batch)]
        try:
            with from_seed(objective.parameters.device), torch.no_grad():
                objective.loss(module, batch)
        except Exception:  # the model does not take the made-up record; the example was tried before
            continue
        if versions != [_version(leaf) for leaf in leaves_of(batch)]:
            raise QueryError(
                "evaluating the loss wrote into its batch: what it sees next would depend on what it did before. "
                "Work on a copy, as in inputs = inputs.clone()."
            )
    changed = [
        name
        for name, tensor in _held(module)  # values too, as what is written into .data leaves no trace in the version
        if name not in held
        or (isinstance(tensor, nn.Parameter) and held[name][:2] != (tensor, _version(tensor)))
        or _digest(tensor) != held[name][2]
    ]
    for name, tensors in _stored(module).items():
        before = stored.get(name, [])
        same = len(before) == len(tensors) and all(
            a is b and v == w for (a, v), (b, w) in zip(before, tensors, strict=True)
        )
        changed += [] if same else [name]
    if changed:
        raise QueryError(
            f"evaluating the loss changed {', '.join(map(repr, changed[:3]))} of the model, which would carry private "
            "records out. In evaluation mode the forward pass must leave parameters and buffers alone and "
            "store no tensor in the model (an attribute such as self.last_attention)."
        )


def _stored(module: nn.Module) -> dict[str, list[tuple[Tensor, int]]]:
    """The tensors that each attribute of each part holds, in lists and dicts too, with their versions."""
    found: dict[str, list[tuple[Tensor, int]]] = {}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name in ("_parameters", "_buffers", "_modules") or isinstance(value, nn.Module):
                continue
            parts = [value]
            for held in parts:
                if isinstance(held, Tensor):
                    found.setdefault(f"{path}.{name}".lstrip("."), []).append((held, _version(held)))
                elif isinstance(held, dict):
                    parts.extend(held.values())
                elif isinstance(held, list | tuple | set):
                    parts.extend(held)
    return found


def _held(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _digest(tensor: Tensor) -> bytes:
    """Of the bits, so that no copy of a large model is needed."""
    if tensor.layout is not torch.strided or tensor.is_quantized or not tensor.numel():
        return b""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return hashlib.blake2b(plain.view(-1).view(torch.uint8).numpy().data).digest()
