"""Public random directions, replayed from a key instead of stored.

Nothing here is secret and nothing here protects anybody: noise and batch membership come from another source,
which cannot be seeded. A direction may be published, and whoever knows the key can draw it again.

Replay. Element i of a parameter's part of a direction depends on the key, the query, the parameter's name and i
alone: not on the other parameters, their order or sizes, on the slices asked for, nor on the device. A method
folds the step into the key (``key.fold(step)``). Elements are float32 from numpy's SFC64 streams, one for every
`BLOCK` elements, seeded by 128 bits of BLAKE2b of the whole path. Numpy may change how it turns bits into normals
from one version to another; a test pins the values. Two exceptions: a sphere direction is divided by its norm,
which depends on all parameters; orthonormal directions depend on each other, and replay bit for bit only with the
same linear algebra library.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.privacy.errors import ConfigurationError

BLOCK = 2**16
"""Elements that share one random stream."""

Kind = Literal["sphere", "gaussian", "rademacher"]

_Draw = Callable[[np.random.Generator, NDArray[np.float32]], None]

_BYTE_SIGNS = (
    1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float32)
).astype(np.float32)
"""The eight signs of each byte: bit 0 is +1, bit 1 is -1, the lowest bit first."""


@dataclass(frozen=True)
class Key:
    """A public, immutable, counter-based key.

    There is no hidden position to advance: the key of step 7 is ``key.fold(7)``, so a resumed run needs the step
    number alone, and two purposes never share draws if their paths differ. ``1`` and ``"1"`` are different
    parts, and ``fold("a", "b")`` is not ``fold("ab")``.
    """

    seed: int
    path: tuple[str | int, ...] = ()

    def __post_init__(self) -> None:
        try:
            parts = tuple(part if isinstance(part, str) else index(part) for part in self.path)
            object.__setattr__(self, "seed", index(self.seed))
        except TypeError:
            raise ConfigurationError(
                f"A key is a whole number and a path of strings and whole numbers, not {self.seed!r}, {self.path!r}."
            ) from None
        object.__setattr__(self, "path", parts)

    def fold(self, *parts: str | int) -> Key:
        """The key for one purpose below this one."""
        return Key(self.seed, (*self.path, *parts))

    def generator(self) -> np.random.Generator:
        """A fresh generator at the start of this key's stream."""
        digest = hashlib.blake2b(digest_size=16, person=b"sottovoce-public")
        for part in (self.seed, *self.path):
            encoded = str(part).encode()
            digest.update(f"{'s' if isinstance(part, str) else 'i'}{len(encoded)}:".encode() + encoded)
        return np.random.Generator(np.random.SFC64(int.from_bytes(digest.digest(), "little")))


@dataclass(frozen=True)
class Layout:
    """How one vector of parameters is made of named ones, in order."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes) or len(set(self.names)) != len(self.names):
            raise ConfigurationError("A layout has one size for each name, and no name twice.")
        if any(size < 0 for size in self.sizes) or sum(self.sizes) < 1:
            raise ConfigurationError("A layout needs at least one parameter with at least one element.")

    @cached_property
    def numel(self) -> int:
        """The length of the whole vector."""
        return sum(self.sizes)

    @cached_property
    def spans(self) -> dict[str, slice]:
        """Where each name's elements lie in the whole vector."""
        ends = np.cumsum(self.sizes).tolist()
        return {name: slice(end - size, end) for name, size, end in zip(self.names, self.sizes, ends, strict=True)}


class Directions(Protocol):
    """A number of directions in the space of a layout."""

    @property
    def count(self) -> int:
        """How many directions there are."""
        ...

    @property
    def numel(self) -> int:
        """The dimension."""
        ...

    def block(self, query: int, name: str, start: int, stop: int) -> torch.Tensor:
        """Elements ``start`` to ``stop`` of parameter ``name`` in direction ``query``: float32 on the CPU."""
        ...

    def vector(self, query: int) -> torch.Tensor:
        """The whole direction, float32 on the CPU, parameters in the layout's order."""
        ...


def sphere(layout: Layout, *, count: int, key: Key, radius: float | None = None) -> Directions:
    """Independent directions, uniform on the sphere of this radius; by default sqrt(numel), so E u u^T = I.

    The norm is taken in float64 over all blocks, once for each direction: the first `block` of a direction
    draws it all. The norm of what is returned is the radius to float32 rounding.
    """
    radius = math.sqrt(layout.numel) if radius is None else radius
    _check_size("radius", radius)
    return _Replayed(layout, count, key.fold("normal"), _normals, radius=radius)


def gaussian(layout: Layout, *, count: int, key: Key, scale: float = 1.0) -> Directions:
    """Independent directions of independent normal elements with this standard deviation."""
    _check_size("scale", scale)
    return _Replayed(layout, count, key.fold("normal"), _normals, scale=scale)


def rademacher(layout: Layout, *, count: int, key: Key) -> Directions:
    """Independent directions of independent signs, +1 or -1 with equal probability; a bit each."""
    return _Replayed(layout, count, key.fold("sign"), _signs)


def draw(kind: Kind, layout: Layout, *, count: int, key: Key) -> Directions:
    """Directions of a kind that a configuration names, scaled so that E u u^T is the identity."""
    makers = {"sphere": sphere, "gaussian": gaussian, "rademacher": rademacher}
    if kind not in makers:
        raise ConfigurationError(f"Unknown kind of direction {kind!r}: it is one of {', '.join(makers)}.")
    return makers[kind](layout, count=count, key=key)


def orthonormal(layout: Layout, *, count: int, key: Key) -> Directions:
    """Orthonormal directions, uniformly distributed; held in memory, count x numel float32.

    Up to ``numel`` of them are the first columns of a Haar-distributed orthogonal matrix: the QR factors of a
    normal matrix, with the diagonal of R made positive (Mezzadri 2007). A multiple of ``numel`` gives that
    many independent bases, one after the other. Orthonormality holds to float32 rounding.
    """
    numel = layout.numel
    if count > numel and count % numel:
        raise ConfigurationError(
            f"{count} directions are neither at most the dimension {numel} nor a multiple of it: "
            f"ask for {count - count % numel} or {count + numel - count % numel}."
        )
    normals = gaussian(layout, count=count, key=key.fold("orthonormal"))
    rows = torch.empty(count, numel)
    for first in range(0, count, numel):
        basis = range(first, min(count, first + numel))
        columns = torch.stack([normals.vector(query) for query in basis], dim=1)
        q, r = np.linalg.qr(columns.numpy().astype(np.float64))
        q *= np.where(np.diagonal(r) < 0, -1.0, 1.0)
        rows[first : basis.stop] = torch.from_numpy(q.T)
    return _Held(layout, rows)


def held(layout: Layout, rows: torch.Tensor) -> Directions:
    """The rows of a ``[count, numel]`` matrix as directions; they must not change afterwards."""
    if rows.ndim != 2 or rows.shape[1] != layout.numel:
        raise ConfigurationError(f"rows of shape {tuple(rows.shape)}: directions here have {layout.numel} elements.")
    return _Held(layout, rows.detach().to("cpu", torch.float32))


def combine(directions: Directions, coefficients: Sequence[float] | torch.Tensor) -> torch.Tensor:
    """sum_j c_j u_j as a float32 vector on the CPU, added in float32 in the order of the queries."""
    weights = torch.as_tensor(coefficients, dtype=torch.float64)
    if weights.shape != (directions.count,):
        raise ConfigurationError(f"{directions.count} directions need a vector of as many coefficients.")
    total = torch.zeros(directions.numel)
    for query, weight in enumerate(weights.tolist()):
        total.add_(directions.vector(query), alpha=weight)
    return total


def pieces(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The range ``start`` to ``stop`` cut at block borders: (block, first and end within the block)."""
    while start < stop:
        block, first = divmod(start, BLOCK)
        end = min(BLOCK, first + stop - start)
        yield block, first, end
        start += end - first


class _OfLayout:
    """The checks that all kinds share."""

    def __init__(self, layout: Layout, count: int) -> None:
        if count < 1:
            raise ConfigurationError(f"At least one direction is needed, not {count}.")
        self._layout = layout
        self.count = count
        self.numel = layout.numel

    def _check(self, query: int) -> None:
        if not 0 <= query < self.count:
            raise ConfigurationError(f"There is no direction {query}: there are {self.count}, from 0 on.")

    def _span(self, query: int, name: str, start: int, stop: int) -> tuple[int, int]:
        self._check(query)
        span = self._layout.spans.get(name)
        if span is None:
            raise ConfigurationError(f"There is no parameter {name!r} in the layout of these directions.")
        if not 0 <= start <= stop <= span.stop - span.start:
            raise ConfigurationError(
                f"Elements {start} to {stop} are not within the {span.stop - span.start} of parameter {name!r}."
            )
        return span.start + start, span.start + stop


class _Held(_OfLayout):
    """Directions kept as the rows of a matrix; what is handed out is a copy."""

    def __init__(self, layout: Layout, rows: torch.Tensor) -> None:
        super().__init__(layout, len(rows))
        self._rows = rows

    def block(self, query: int, name: str, start: int, stop: int) -> torch.Tensor:
        first, end = self._span(query, name, start, stop)
        return self._rows[query, first:end].clone()

    def vector(self, query: int) -> torch.Tensor:
        self._check(query)
        return self._rows[query].clone()


class _Replayed(_OfLayout):
    """Directions drawn anew each time; only a norm for each direction is remembered, where one is needed."""

    def __init__(
        self,
        layout: Layout,
        count: int,
        key: Key,
        fill: _Draw,
        *,
        scale: float = 1.0,
        radius: float | None = None,
    ) -> None:
        super().__init__(layout, count)
        self._key, self._fill, self._scale, self._radius = key, fill, scale, radius
        self._drawn_before: dict[int, tuple[Key, float]] = {}

    def block(self, query: int, name: str, start: int, stop: int) -> torch.Tensor:
        self._span(query, name, start, stop)
        key, factor = self._stream(query)
        drawn = np.empty(stop - start, dtype=np.float32)
        done = 0
        for block, first, end in pieces(start, stop):
            self._draw(key.fold(name, block), first, drawn[done : done + end - first])
            done += end - first
        return _scaled(drawn, factor)

    def vector(self, query: int) -> torch.Tensor:
        self._check(query)
        drawn = np.empty(self.numel, dtype=np.float32)
        if self._radius is not None and query not in self._drawn_before:
            _, factor = self._stream(query, drawn)
        else:
            key, factor = self._stream(query)
            for _ in self._blocks(key, drawn):
                pass
        return _scaled(drawn, factor)

    def _stream(self, query: int, out: NDArray[np.float32] | None = None) -> tuple[Key, float]:
        """The key of one direction and the factor that its elements take; fills ``out`` where it draws them all."""
        key = self._key.fold(query)
        if self._radius is None:
            return key, self._scale
        if query not in self._drawn_before:
            # A float32 normal is zero once in 2^23 draws, which in one dimension leaves nothing to normalise.
            while (norm := _norm(self._blocks(key, out))) == 0:
                key = key.fold("again")
            self._drawn_before[query] = key, self._radius / norm
        return self._drawn_before[query]

    def _blocks(self, key: Key, out: NDArray[np.float32] | None) -> Iterator[NDArray[np.float32]]:
        """Every block before scaling: within ``out``, or one after the other in the same buffer."""
        buffer = np.empty(BLOCK if out is None else 0, dtype=np.float32)
        for name, span in self._layout.spans.items():
            for block, _, end in pieces(0, span.stop - span.start):
                at = span.start + block * BLOCK
                drawn = buffer[:end] if out is None else out[at : at + end]
                self._draw(key.fold(name, block), 0, drawn)
                yield drawn

    def _draw(self, key: Key, first: int, out: NDArray[np.float32]) -> None:
        """Elements from ``first`` on of one block: a stream's beginning does not depend on how far it is read."""
        if first == 0:
            self._fill(key.generator(), out)
        else:
            whole = np.empty(first + out.size, dtype=np.float32)
            self._fill(key.generator(), whole)
            out[:] = whole[first:]


def _norm(blocks: Iterator[NDArray[np.float32]]) -> float:
    # Squares of float32 are exact in float64; fsum makes the sum over blocks independent of their order.
    return math.sqrt(math.fsum(float(np.sum(np.square(block, dtype=np.float64))) for block in blocks))


def _scaled(drawn: NDArray[np.float32], factor: float) -> torch.Tensor:
    if factor != 1:
        drawn *= np.float32(factor)
    return torch.from_numpy(drawn)


def _normals(generator: np.random.Generator, out: NDArray[np.float32]) -> None:
    generator.standard_normal(dtype=np.float32, out=out)


def _signs(generator: np.random.Generator, out: NDArray[np.float32]) -> None:
    words = generator.bit_generator.random_raw(-(-out.size // 64))
    octets = np.asarray(words, dtype="<u8").view(np.uint8)
    whole = out.size // 8
    # Without "clip" numpy would buffer the result; the indices are bytes and cannot be out of range.
    np.take(_BYTE_SIGNS, octets[:whole], axis=0, out=out[: 8 * whole].reshape(-1, 8), mode="clip")
    if out.size % 8:
        out[8 * whole :] = _BYTE_SIGNS[octets[whole], : out.size % 8]


def _check_size(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigurationError(f"The {name} of a direction is positive and finite, not {value}.")
