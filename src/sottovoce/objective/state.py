"""What a model holds beside its trainable parameters is, after an evaluation, what it was before.

A buffer or an attribute that a forward pass changes would be a second door: private records would leave through it
exactly, and one record's value would reach the losses of others. So nothing that an evaluation leaves behind stays.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import nn

_KEPT_ELEMENTS = 1 << 20
"""Statistics that a model updates as it goes are small; of what is larger, the probe alone sees that it stays."""

_TABLES = ("_parameters", "_buffers", "_modules")


class ModelState:
    """The attributes of every part of a model and of a loss that is an object, and the values of buffers and frozen
    parameters.

    Attributes are those of before afterwards, whatever was set, replaced or deleted. Buffers and frozen parameters of
    up to a million elements are so bit for bit. Not undone: what is written into larger ones, into trainable
    parameters behind autograd's back (``.data``), into a container or another object of the user's own
    (``self.seen.append(...)``), or anywhere else. The probe refuses what it sees of that.

    Args:
        module: the model.
        loss: a function, or an object that is called or whose bound method is.
    """

    def __init__(self, module: nn.Module, loss: object = None) -> None:
        owner = getattr(loss, "__self__", loss)
        roots = [each for each in (module, owner) if isinstance(each, nn.Module)]
        keepers: list[Any] = list(dict.fromkeys(part for root in roots for part in root.modules()))
        if hasattr(owner, "__dict__") and not isinstance(owner, nn.Module | type | ModuleType):
            keepers.append(owner)
        self._attributes = [(part, _attributes(part)) for part in keepers]
        trained = {p for p in module.parameters() if p.requires_grad}
        held = {tensor for root in roots for tensor in (*root.parameters(), *root.buffers())} - trained
        self._values = [
            (tensor, tensor.detach().clone())
            for tensor in held
            if tensor.numel() <= _KEPT_ELEMENTS and not tensor.is_inference() and tensor.layout is torch.strided
        ]

    def put_back(self) -> None:
        """Undo what has changed since. It costs the same whether or not anything has."""
        for part, attributes in self._attributes:
            _set(part, attributes)
        with torch.no_grad():
            for tensor, value in self._values:
                tensor.detach().copy_(value)


def _attributes(part: Any) -> dict[str, Any]:
    found = dict(vars(part))
    return found | {name: dict(found[name]) for name in _TABLES if name in found}


def _set(part: Any, attributes: dict[str, Any]) -> None:
    """Only what differs is touched, so that a compiled model sees no change where there is none."""
    present = vars(part)
    for name in [name for name in present if name not in attributes]:
        del present[name]
    for name, value in attributes.items():
        if name in _TABLES:
            table = present.get(name)
            if table is None or table.keys() != value.keys() or any(table[key] is not value[key] for key in value):
                present[name] = dict(value)
        elif present.get(name, _ABSENT) is not value:
            present[name] = value


_ABSENT = object()
