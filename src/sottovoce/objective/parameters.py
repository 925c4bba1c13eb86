"""A module's trainable parameters as one vector, updated with one rounding and never re-pointed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from sottovoce.objective.directions import Directions, Layout
from sottovoce.objective.replay import Replay
from sottovoce.privacy.errors import ConfigurationError

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type in which a parameter's update is computed, before it is rounded once."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@contextmanager
def flat(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor's elements in row-major order, to be read and written, whatever its memory format."""
    if tensor.is_contiguous():
        yield tensor.view(-1)
    else:
        copy = tensor.reshape(-1)
        yield copy
        tensor.copy_(copy.view(tensor.shape))


def trainable_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require a gradient, each once under its first name, checked to be usable."""
    found: dict[str, nn.Parameter] = {}
    others: list[str] = []
    for name, parameter in module.named_parameters():
        if isinstance(parameter, UninitializedParameter) or parameter.is_meta:
            raise ConfigurationError(
                f"the parameter {name} has no values yet: run the model once on an example (lazy layers), or move it "
                "off the meta device, before training."
            )
        if not parameter.requires_grad:
            others.append(f"{name} ({parameter.dtype})")
        elif parameter.dtype not in _DTYPES:
            raise ConfigurationError(
                f"the trainable parameter {name} is {parameter.dtype}; float32, float64, bfloat16 or float16 is "
                f"needed. Freeze it with .requires_grad_(False), or convert the model with model.float()."
            )
        elif parameter.numel():
            found[name] = parameter
    if not found:
        raise ConfigurationError(
            "the model has no trainable parameter"
            + (f": these are frozen or integers: {', '.join(others[:5])}" if others else "")
            + ". Give it at least one floating-point parameter with requires_grad=True."
        )
    _refuse_shared_memory(found)
    return found


def _refuse_shared_memory(parameters: dict[str, nn.Parameter]) -> None:
    """Two Parameters over one memory would be perturbed and updated twice."""
    owners: dict[tuple[torch.device, int], str] = {}
    for name, parameter in parameters.items():
        other = owners.setdefault((parameter.device, parameter.data_ptr()), name)
        if other != name:
            raise ConfigurationError(
                f"the parameters {other} and {name} are two objects over the same memory: to tie them, assign the same "
                "Parameter to both modules."
            )


class ParameterVector:
    """A module's trainable parameters as one vector.

    Every parameter counts once, however many modules share it; frozen ones are left out. The vector is a view
    of the module: updates are written into the parameters' own memory, and nothing is ever re-pointed.

    Args:
        module: the model.
        replay: where blocks of directions come from; by default recently used ones are kept.
    """

    def __init__(self, module: nn.Module, replay: Replay | None = None) -> None:
        self._named = trainable_parameters(module)
        self.layout = Layout(
            names=tuple(self._named),
            sizes=tuple(parameter.numel() for parameter in self._named.values()),
        )
        self.replay = Replay(self.layout) if replay is None else replay

    def __repr__(self) -> str:
        return f"ParameterVector(numel={self.numel()}, tensors={len(self._named)})"

    def numel(self) -> int:
        """The number of coordinates, d."""
        return self.layout.numel

    @property
    def named(self) -> dict[str, nn.Parameter]:
        """The parameters by canonical name, in the vector's order."""
        return dict(self._named)

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The different types of the parameters."""
        return tuple(dict.fromkeys(parameter.dtype for parameter in self._named.values()))

    @property
    def dtype(self) -> torch.dtype:
        """The narrowest type that holds every parameter exactly."""
        dtype = self.dtypes[0]
        for other in self.dtypes[1:]:
            dtype = torch.promote_types(dtype, other)
        return dtype

    @property
    def device(self) -> torch.device:
        """The device of the first parameter."""
        return next(iter(self._named.values())).device

    def copy(self) -> Tensor:
        """A flat copy, float64 if any parameter is float64 and float32 otherwise: exact for every parameter."""
        wide = _wide(self.dtype)
        return torch.cat([p.detach().reshape(-1).to(self.device, wide, copy=True) for p in self._named.values()])

    @torch.no_grad()
    def copy_(self, vector: Tensor) -> None:
        """Set the parameters to a flat vector, rounded once; what ``copy`` gave comes back bit for bit."""
        for parameter, part in zip(self._named.values(), self._split(vector), strict=True):
            parameter.copy_(part.view(parameter.shape))

    @torch.no_grad()
    def add_(self, directions: Directions, coefficients: Tensor | Sequence[float], plus: Tensor | None = None) -> None:
        """x += sum of coefficient j times direction j (+ plus), summed in float32 (or float64) and rounded once.

        Where directions are not kept, they are replayed block by block and no vector of length d exists. If all
        coefficients are zero and there is no ``plus``, x keeps every bit, the sign of zeros and NaN payloads included.
        """
        factors = self._check(directions, coefficients)
        if not factors:
            if plus is not None:
                self.add_vector_(plus)
            return
        extra = dict(zip(self._named, self._split(plus), strict=True)) if plus is not None else {}
        for name, parameter in self._named.items():
            wide, device = _wide(parameter.dtype), parameter.device
            parts = [self.replay.pieces(directions, query, name, device) for query, _ in factors]
            with flat(parameter.detach()) as target:
                for pieces in zip(*parts, strict=True):
                    # Products and sums are rounded one by one: a fused multiply-add may round differently at the
                    # edge of a block, and the strategies must agree bit for bit.
                    total: Tensor | None = None
                    for (_, piece), (_, factor) in zip(pieces, factors, strict=True):
                        term = piece.to(wide) * factor
                        total = term if total is None else total.add_(term)
                    assert total is not None
                    span = pieces[0][0]
                    if name in extra:
                        total.add_(extra[name][span].to(device, wide))
                    here = target[span]
                    here.copy_(total.add_(here))

    @torch.no_grad()
    def add_vector_(self, vector: Tensor, scale: float = 1.0) -> None:
        """x += scale * vector, computed in float32 (float64 for float64 parameters) and rounded once."""
        if not math.isfinite(scale):
            raise ConfigurationError(f"the scale of an update is {scale}; a finite number is needed.")
        parts = self._split(vector)
        if scale == 0.0:
            return
        for parameter, part in zip(self._named.values(), parts, strict=True):
            step = part.to(parameter.device, _wide(parameter.dtype)) * scale
            parameter.copy_(step.view(parameter.shape).add_(parameter))

    @torch.no_grad()
    def write_perturbed(self, name: str, out: Tensor, directions: Directions, query: int, scale: float) -> None:
        """Write one parameter of x + scale * direction into ``out``, rounded once from float32 (or float64).

        The result does not depend on how the direction is cut into blocks.
        """
        parameter = self._named[name]
        wide = _wide(parameter.dtype)
        source = parameter.detach().reshape(-1)
        with flat(out) as target:
            for span, piece in self.replay.pieces(directions, query, name, parameter.device):
                there, here = target[span], source[span]
                if there.dtype == torch.float32:
                    torch.mul(piece, scale, out=there).add_(here)  # two roundings, see add_
                else:
                    there.copy_((piece.to(wide) * scale).add_(here))

    def share_changed(self, directions: Directions, query: int, scale: float) -> float:
        """The share of coordinates in which x + scale * direction differs from x, after rounding."""
        changed = 0
        for name, parameter in self._named.items():
            moved = torch.empty_like(parameter.detach())
            self.write_perturbed(name, moved, directions, query, scale)
            changed += int((moved != parameter.detach()).sum())
        return changed / self.numel()

    def _split(self, vector: Tensor) -> list[Tensor]:
        if vector.shape != (self.numel(),) or not vector.dtype.is_floating_point:
            raise ConfigurationError(
                f"a vector of shape {tuple(vector.shape)} and type {vector.dtype} was given; the parameters need a "
                f"floating-point one of shape ({self.numel()},)."
            )
        return list(vector.detach().split(list(self.layout.sizes)))

    def _check(self, directions: Directions, coefficients: Tensor | Sequence[float]) -> list[tuple[int, float]]:
        """The queries with a coefficient other than zero, and those coefficients."""
        values = torch.as_tensor(coefficients, dtype=torch.float64).detach().cpu()
        if values.shape != (directions.count,) or directions.numel != self.numel():
            raise ConfigurationError(
                f"coefficients of shape {tuple(values.shape)} for {directions.count} directions of length "
                f"{directions.numel} were given; one for each direction, of length {self.numel()}, is needed."
            )
        if not bool(torch.isfinite(values).all()):
            raise ConfigurationError("a coefficient of an update is not finite; lower the learning rate.")
        return [(query, factor) for query, factor in enumerate(values.tolist()) if factor != 0.0]
