"""Where protective randomness comes from: the operating system, and nothing else.

Noise and batch membership are drawn from an `Entropy`. In production it is `OperatingSystemEntropy`, which
holds no key and no state and cannot be seeded. The switches of `sottovoce.testing` can put a replayable
stream in its place; whatever is made under a switch says NOT PRIVATE.
"""

from __future__ import annotations

import hashlib
import os
from contextvars import ContextVar
from dataclasses import dataclass
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


class ReplayableEntropy:
    """NOT PRIVATE. A stream fixed by its key, for tests that compare neighbouring runs."""

    def __init__(self, key: str) -> None:
        self._key = key
        seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "little")
        self._generator = np.random.Philox(key=seed)

    def fork(self, *purpose: str | int) -> Entropy:
        """An independent stream that depends on this key and the purpose alone, not on what was drawn."""
        return ReplayableEntropy("/".join([self._key, *map(str, purpose)]))

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of this stream."""
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The testing switches in force. They are read once, when a curator is made."""

    no_noise: bool = False
    fixed_entropy: str | None = None
    expose_answers: bool = False

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the switches that are on; empty in production."""
        named = {
            "no_noise": self.no_noise,
            "fixed_entropy": self.fixed_entropy is not None,
            "expose_answers": self.expose_answers,
        }
        return tuple(name for name, on in named.items() if on)

    def entropy(self) -> Entropy:
        """The operating system's entropy unless a test fixed it."""
        if self.fixed_entropy is None:
            return OperatingSystemEntropy()
        return ReplayableEntropy(self.fixed_entropy)


PRODUCTION = Switches()
switches: ContextVar[Switches] = ContextVar("sottovoce_testing_switches", default=PRODUCTION)
"""Set by `sottovoce.testing` alone."""
