"""Where protective randomness comes from: the operating system, and nothing else.

Noise and batch membership are drawn from an `Entropy`. In production it is `OperatingSystemEntropy`, which
holds no key and no state and cannot be seeded. The switches of `sottovoce.testing` can put a replayable
stream in its place; whatever is made under a switch says NOT PRIVATE.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Entropy(Protocol):
    """A source of independent, uniform 64-bit words."""

    def fork(self, *purpose: str | int) -> Entropy:
        """A source for one purpose, such as ``("noise", step)``.

        Only replayable sources tell purposes apart.
        """
        ...

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words."""
        ...


class OperatingSystemEntropy:
    """`os.urandom`. No key is kept, so nothing that the process later reveals can replay a draw."""

    def fork(self, *purpose: str | int) -> Entropy:
        """The same source: the operating system's words are independent whatever they are for."""
        return self

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of the operating system's generator."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The testing switches in force. They are read once, when a curator is made."""

    no_noise: bool = False
    expose_answers: bool = False
    fixed_entropy: Entropy | None = None

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the switches that are on; empty in production."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name))

    @property
    def entropy(self) -> Entropy:
        """The operating system's entropy unless a test fixed it."""
        return self.fixed_entropy or OperatingSystemEntropy()


switches: ContextVar[Switches] = ContextVar("sottovoce_testing_switches", default=Switches())
"""Set by `sottovoce.testing` alone."""
