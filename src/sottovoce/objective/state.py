"""What a model holds beside its trainable parameters is, after an evaluation, what it was before.

A buffer or an attribute that a forward pass changes would be a second door: private records would leave through it
exactly, and one record's value would reach the losses of others. So nothing that an evaluation leaves behind stays.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_KEPT_ELEMENTS = 1 << 20
"""Statistics that a model updates as it goes are small; of what is larger, the probe alone sees that it stays."""

_TABLES = (
    "_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip


class ModelState:
    """The attributes of every part of a model and of a loss that is an object, and the values of its tensors.

    Attributes and hooks are those of before afterwards, whatever was set, replaced or deleted. Buffers and frozen
    parameters of up to a million elements are so bit for bit, and trainable parameters if that is asked for; all of
    them have their own memory again, whatever was put in its place (``.data``). Not undone: what is written into larger
    buffers, into a container or another object of the user's own (``self.seen.append(...)``), or anywhere else. The
    probe refuses what it sees of that.

    Args:
        module: the model.
        loss: a function, or an object that is called or whose bound method is.
        trained: whether to keep the trainable parameters, which takes as much memory again.
    """

    def __init__(self, module: nn.Module, loss: object = None, *, trained: bool = False) -> None:
        owner = getattr(loss, "__self__", loss)
        roots = [each for each in (module, owner) if isinstance(each, nn.Module)]
        keepers: list[Any] = list(dict.fromkeys(part for root in roots for part in root.modules()))
        if hasattr(owner, "__dict__") and not isinstance(owner, nn.Module | type | ModuleType):
            keepers.append(owner)
        self._attributes = [(part, *_attributes(part)) for part in keepers]
        trainable = [p for p in module.parameters() if p.requires_grad]
        self._gradients = [(parameter, parameter.grad) for parameter in trainable]
        tensors = {tensor for root in roots for tensor in (*root.parameters(), *root.buffers()) if _is_plain(tensor)}
        self._memory = [(tensor, tensor.data) for tensor in tensors]
        kept = [tensor for tensor in tensors - {*trainable} if tensor.numel() <= _KEPT_ELEMENTS]
        kept += [tensor for tensor in trainable if trained and tensor in tensors]
        self._values = [(tensor, tensor.detach().clone()) for tensor in kept]

    def put_back(self) -> None:
        """Undo what has changed since."""
        for tensor, memory in self._memory:
            if _place(tensor) != _place(memory):
                tensor.data = memory
        for part, attributes, tables in self._attributes:
            _set(part, attributes, tables)
        for parameter, gradient in self._gradients:
            if not parameter.requires_grad:
                parameter.requires_grad_(True)
            if parameter.grad is not gradient:
                parameter.grad = gradient
        with torch.no_grad():
            for tensor, value in self._values:
                if _differs(tensor, value):
                    tensor.detach().copy_(value)


def _is_plain(tensor: Tensor) -> bool:
    """Whether it has memory of its own that can be read and written as numbers."""
    return tensor.layout is torch.strided and not (tensor.is_inference() or tensor.is_quantized or tensor.is_conj())


def _place(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride()


def _differs(tensor: Tensor, value: Tensor) -> bool:
    """Nothing is written without need: memory may be shared, or for reading only."""
    if tensor.device.type != "cpu":  # where looking would wait for the device
        return not any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
    return not torch.equal(_integers(tensor), _integers(value))


def _integers(tensor: Tensor) -> Tensor:
    """The bits, so that NaN equals NaN."""
    plain = tensor.detach().resolve_neg().contiguous().view(-1)
    return plain.view({2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.element_size(), torch.uint8))


def _attributes(part: Any) -> tuple[dict[str, Any], dict[str, dict[Any, Any]]]:
    """What a part holds, and what is in those of its own tables that are changed in place."""
    found = dict(vars(part))
    tables = {name: dict(found[name]) for name in _TABLES if isinstance(found.get(name), dict)}
    return found, tables if isinstance(part, nn.Module) else {}


def _set(part: Any, attributes: dict[str, Any], tables: dict[str, dict[Any, Any]]) -> None:
    """Only what differs is touched, so that a compiled model sees no change where there is none."""
    present = vars(part)
    for name in [name for name in present if name not in attributes]:
        del present[name]
    for name, value in attributes.items():
        if present.get(name, _ABSENT) is not value:
            present[name] = value
    for name, content in tables.items():
        table = present[name]
        if table.keys() != content.keys() or any(table[key] is not content[key] for key in content):
            table.clear()  # the same object: handles of hooks refer to it
            table.update(content)


_ABSENT = object()
