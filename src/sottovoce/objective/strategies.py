"""How the model comes to be evaluated at x + scale * u while its parameters stay, bit for bit, what they are.

Both strategies lend a Parameter other memory for a while (``parameter.data = ...``) and give the same memory back.
Replacing the Parameter objects in ``module._parameters`` instead would have to find every place that holds one:
several modules for a tied weight, the list of flat weights inside nn.LSTM, the guards of a compiled module, a
closure in the user's loss. All these hold the object, so lending memory to the object reaches them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from sottovoce.objective.directions import Directions
from sottovoce.objective.parameters import ParameterVector
from sottovoce.objective.room import room_like

Strategy = Literal["auto", "fast", "lean"]
"""``fast`` keeps a perturbed copy and recent directions, ``lean`` needs no more than the largest layer."""

FAST_BYTES = 1 << 30
"""``auto`` is lean where the copies of the fast strategy would exceed a gigabyte."""


class ObjectiveWarning(UserWarning):
    """Something about the model or the loss costs time, memory or accuracy; the guarantee is not touched."""


def choose(strategy: Strategy, parameters: ParameterVector) -> Literal["fast", "lean"]:
    """``auto`` is fast unless a perturbed copy and one direction together exceed a gigabyte."""
    if strategy != "auto":
        return strategy
    copies = sum(p.numel() * (p.element_size() + 4) for p in parameters.named.values())
    return "fast" if copies <= FAST_BYTES else "lean"


def runs_compiled(module: nn.Module) -> bool:
    """Whether a compiled graph may run in place of the module's forward and hooks."""
    return (
        isinstance(module, torch.jit.ScriptModule)
        or getattr(module, "_orig_mod", None) is not None
        or getattr(module, "_compiled_call_impl", None) is not None
    )


class Perturbation(Protocol):
    """A way to stand at x + scale * u."""

    def at(self, directions: Directions, query: int, scale: float) -> Any:
        """A context in which the model's parameters are those of x + scale * direction."""
        ...


class FastPerturbation:
    """A second copy of the parameters, kept between queries, is written once and lent to all of them."""

    def __init__(self, parameters: ParameterVector) -> None:
        self._parameters = parameters
        self._scratch: dict[str, Tensor] = {}

    @contextmanager
    def at(self, directions: Directions, query: int, scale: float) -> Iterator[None]:
        """The parameters are those of x + scale * direction inside, and x, bit for bit, afterwards."""
        named = self._parameters.named
        for name, parameter in named.items():
            self._parameters.write_perturbed(name, self._room(name, parameter), directions, query, scale)
        own = {name: parameter.data for name, parameter in named.items()}
        try:
            for name, parameter in named.items():
                parameter.data = self._scratch[name]
            yield
        finally:
            for name, parameter in named.items():
                parameter.data = own[name]

    def _room(self, name: str, parameter: nn.Parameter) -> Tensor:
        """Memory of the parameter's own format, since the kernel chosen, hence the rounding, may depend on it."""
        room = self._scratch.get(name)
        if (
            room is None
            or room.dtype != parameter.dtype
            or room.device != parameter.device
            or room.shape != parameter.shape
            or room.stride() != parameter.stride()
        ):
            room = self._scratch[name] = torch.empty_like(parameter.detach())
        return room


class LeanPerturbation:
    """Each module's own parameters are perturbed for the duration of its forward only.

    The memory needed beyond a plain forward is one perturbed layer and one block of a direction. It holds for
    models in which a parameter is read within the forward of a module that owns it, which ``readers_outside``
    checks on public records.
    """

    def __init__(self, module: nn.Module, parameters: ParameterVector) -> None:
        self._parameters = parameters
        self._module = module

    @contextmanager
    def at(self, directions: Directions, query: int, scale: float) -> Iterator[None]:
        """The modules compute at x + scale * direction inside; the parameters are x, bit for bit, afterwards."""
        named = self._parameters.named

        def perturbed(name: str) -> Tensor:
            out = room_like(named[name].detach())
            self._parameters.write_perturbed(name, out, directions, query, scale)
            return out

        with self._within_forwards(perturbed):
            yield

    def readers_outside(self, evaluate: Callable[[], Tensor]) -> list[str]:
        """The parameters that ``evaluate`` reads outside the forward of a module that owns them.

        Outside those forwards the parameters are NaN (one NaN, expanded: no memory), inside they are themselves; a
        loss that changes has read the NaN. ``evaluate`` sees public records only, and must be repeatable.
        """
        expected = evaluate()

        def reads(names: list[str]) -> bool:
            try:
                with self._poisoned(names):
                    found = evaluate()
            except Exception:  # e.g. sampling from NaN probabilities
                return True
            return not torch.equal(expected.view(torch.int64), found.view(torch.int64))

        everything = list(self._parameters.layout.names)
        if bool(torch.isnan(expected).all()):
            return everything  # nothing can be told apart from NaN
        return [name for name in everything if reads([name])] or everything if reads(everything) else []

    @contextmanager
    def _poisoned(self, names: list[str]) -> Iterator[None]:
        named = self._parameters.named
        own = {name: parameter.data for name, parameter in named.items()}
        try:
            for name in names:
                memory = own[name]
                poison = torch.full((), torch.nan, dtype=memory.dtype, device=memory.device)
                named[name].data = poison.expand(memory.shape)
            with self._within_forwards(own.__getitem__):
                yield
        finally:
            for name, parameter in named.items():
                parameter.data = own[name]

    @contextmanager
    def _within_forwards(self, lent: Callable[[str], Tensor]) -> Iterator[None]:
        """Lend each parameter the memory ``lent(name)`` while a module that owns it computes."""
        named = self._parameters.named
        depth = dict.fromkeys(named, 0)  # a tied weight's owners may call one another
        own: dict[str, Tensor] = {}
        handles: list[Any] = []

        def around(names: list[str]) -> tuple[Callable[..., None], Callable[..., None]]:
            def enter(*_: Any) -> None:
                for name in names:
                    if depth[name] == 0:
                        memory = lent(name)
                        own[name] = named[name].data
                        named[name].data = memory
                    depth[name] += 1

            def leave(*_: Any) -> None:
                for name in names:
                    # After an exception in ``enter`` only some were entered.
                    depth[name] = max(0, depth[name] - 1)
                    if depth[name] == 0 and name in own:
                        named[name].data = own.pop(name)

            return enter, leave

        try:
            for module, names in self._owners():
                enter, leave = around(names)
                handles.append(module.register_forward_pre_hook(enter, prepend=True))
                handles.append(module.register_forward_hook(leave, always_call=True))
            yield
        finally:
            for handle in handles:
                handle.remove()
            for name, memory in own.items():
                named[name].data = memory

    def _owners(self) -> list[tuple[nn.Module, list[str]]]:
        """Which parameters each module's forward may read."""
        name_of = {id(parameter): name for name, parameter in self._parameters.named.items()}
        owned: dict[nn.Module, dict[str, None]] = {}

        def visit(module: nn.Module, reader: nn.Module) -> None:
            if not isinstance(module, _HOLDERS):
                reader = module
            whole = isinstance(module, _READERS_OF_CHILDREN)
            for parameter in module.parameters(recurse=whole):
                if id(parameter) in name_of:
                    owned.setdefault(reader, {})[name_of[id(parameter)]] = None
            for child in module.children():
                visit(child, reader)

        visit(self._module, self._module)
        return [(module, list(names)) for module, names in owned.items()]


_HOLDERS = (nn.ParameterList, nn.ParameterDict)
"""These hold parameters for the module they belong to, and have no forward of their own."""

_READERS_OF_CHILDREN = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""These read their children's parameters without calling the children (the fused paths of attention)."""
