"""Noise for running sums: what to add to each prefix of a sum that grows leaf by leaf.

The workload of all prefixes is the lower-triangular all-ones matrix A. A factorisation A = B C releases
C x + sigma Z and decodes with B, so prefix t carries the noise (B sigma Z)_t. Two are offered:

``"fenwick"``: row b of C is the node (b - lowbit(b), b] and prefix t is the sum of the nodes of t's set bits
(Chan, Shi and Song 2011; the node function of Zhang et al. 2024, Algorithm 5). Exact: the noise is a sum of
exact integers, in memory O(width log length).

``"toeplitz"``: B = C is the lower-triangular Toeplitz square root of A (Henzinger, Upadhyay and Upadhyay 2023):
2.3 to 3.5 times less noise at the worst prefix than the tree, in memory O(width x length). Approximate: a
float64 combination of normals, rounded once; see `rounding_bound`.

Guarantee. Assume that the record at stake takes part in one leaf alone, that leaf i changes by at most s_i in
Euclidean norm whatever was released before, and that sigma is the standard deviation of Z. Then all prefixes
together are mu-Gaussian-DP with mu = max_i s_i |C[:, i]| / sigma, also when leaves are chosen from earlier
prefixes: C is lower triangular, so before its leaf the record changes nothing, and later rows have fresh noise
(Denisov et al. 2022, Theorem 2.1). It is tight. The papers' sqrt(2 ln n) in place of the column norm is too small
for n = 1, 2 and 4, and no noise at all for n = 1 (Zhang et al. 2024, Theorem 4.3; "Improved Sample Complexity for
Private Nonsmooth Nonconvex Optimization", Proposition 2.5, sqrt(ln n)).

Stopping and resuming. The noise is calibrated to the planned length. Stopping early is free, also when the stop
depends on what was released. Going past the planned length is forbidden: start a new running sum on other
records. The noise of the prefixes is correlated through past draws, so drawing it again for the same
records would be a second release of them. The state lives in this process alone and refuses to be copied or
pickled; a run that is resumed ends the running sum it was in and starts a new one with records not yet used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.privacy.entropy import Entropy
from sottovoce.privacy.errors import ConfigurationError, PlanViolation
from sottovoce.privacy.noise import grid_normals, rounded_normals
from sottovoce.privacy.secret import Secret

Factorisation = Literal["toeplitz", "fenwick"]

LARGEST_NORMAL = 12.0
"""A standard normal exceeds this in size with probability below 4e-33."""

LARGEST_SCALE = 2.0**45
"""Beyond it, noise would leave the range in which float64 holds every integer."""


def sensitivity(factorisation: Factorisation, leaf_sensitivities: Sequence[float]) -> float:
    """max_i s_i |C[:, i]|: divided by mu, the standard deviation of Z that gives mu-Gaussian-DP.

    ``leaf_sensitivities`` bounds the Euclidean change of every planned leaf under the chosen relation. A leaf
    known to be zero may have 0, but not all of them.
    """
    leaves = np.asarray(leaf_sensitivities, dtype=np.float64)
    if leaves.ndim != 1 or not (np.all(np.isfinite(leaves)) and np.all(leaves >= 0) and np.any(leaves > 0)):
        raise ConfigurationError("Leaf sensitivities are finite numbers of at least 0, and not all are 0.")
    if factorisation == "toeplitz":
        squared_norms = np.cumsum(_square_root_coefficients(leaves.size) ** 2)[::-1]
    else:
        squared_norms = _covering_nodes(leaves.size)
    return float(np.max(leaves * np.sqrt(squared_norms)))


def prefix_noise(
    factorisation: Factorisation, *, length: int, width: int, scale: float, entropy: Entropy
) -> PrefixNoise:
    """Noise for the ``length`` prefixes of a running sum of vectors of ``width`` integers.

    ``scale`` is the standard deviation of Z in grid units: `sensitivity` / (mu x grid). It must be positive,
    for a running sum of a single leaf too. Leaf t's draws come from ``entropy.fork("prefix", t)``, so a
    replayable ``entropy`` must belong to this running sum alone.
    """
    _check(factorisation, length, width, scale)
    kind = _ToeplitzNoise if factorisation == "toeplitz" else _FenwickNoise
    return kind(length, width, scale, entropy)


def rounding_bound(length: int, scale: float) -> float:
    """How far, in grid units, a coordinate of Toeplitz noise can be from the ideal before its one rounding.

    The ideal is scale x sum_{k<t} c_k N_{t-k} in real arithmetic, with exact c_k and continuous normals N.
    Counted are each normal's rounding to its grid of 2^-30, and the error of a float64 inner product in any order
    of summation: at most sum |terms| m u / (1 - m u), u = 2^-53 (Higham 2002, section 3.1), where at most
    m = 3 length + 2 operations touch a term: 2 k of them in c_k, then the sum, the scale, and the half that is
    added before the floor. It holds unless a normal exceeds 12 in size.
    """
    _check("toeplitz", length, 1, scale)
    touched = (3 * length + 2) * 2.0**-53
    each = 2.0**-31 + LARGEST_NORMAL * touched / (1 - touched)
    return scale * float(np.sum(_square_root_coefficients(length))) * each + 2.0**-53


class PrefixNoise(Secret):
    """The noise of the prefixes 1, 2, ... of one running sum. Its state cannot leave the process."""

    def __init__(self, length: int, width: int, scale: float, entropy: Entropy) -> None:
        self._length, self._width, self._scale, self._entropy = length, width, scale, entropy
        self._prefix = 0

    def next(self) -> NDArray[np.int64]:
        """Noise of the next prefix, in grid units. Raises `PlanViolation` past the planned length."""
        if self._prefix >= self._length:
            raise PlanViolation(
                f"This running sum of {self._length} planned prefixes has ended. "
                "Start a new one, on records that it has not used."
            )
        # If the draw is interrupted half way the sum has ended: never a prefix whose node noise is missing.
        prefix, self._prefix = self._prefix + 1, self._length
        noise = self._draw(prefix)
        self._prefix = prefix
        return noise

    def _draw(self, prefix: int) -> NDArray[np.int64]:
        raise NotImplementedError


class _FenwickNoise(PrefixNoise):
    """Exact noise of the binary tree; holds the open nodes of the current prefix, one for each set bit."""

    def __init__(self, length: int, width: int, scale: float, entropy: Entropy) -> None:
        super().__init__(length, width, scale, entropy)
        self._open: list[NDArray[np.int64]] = []
        self._total = np.zeros(width, dtype=np.int64)

    def _draw(self, prefix: int) -> NDArray[np.int64]:
        node = rounded_normals(self._width, self._scale, self._entropy.fork("prefix", prefix))
        # Node (prefix - lowbit, prefix] replaces the open nodes it covers: one per trailing zero of prefix.
        for _ in range((prefix & -prefix).bit_length() - 1):
            self._total -= self._open.pop()
        self._open.append(node)
        self._total += node
        return self._total.copy()


class _ToeplitzNoise(PrefixNoise):
    """Approximate noise of the square-root factorisation; keeps every leaf's normals."""

    def __init__(self, length: int, width: int, scale: float, entropy: Entropy) -> None:
        super().__init__(length, width, scale, entropy)
        self._newest_last = np.ascontiguousarray(_square_root_coefficients(length)[::-1])
        self._history = np.empty((0, width))

    def _draw(self, prefix: int) -> NDArray[np.int64]:
        if prefix > len(self._history):
            # Grown by doubling, so that a run which stops early never pays for its whole plan.
            grown = np.empty((min(self._length, 2 * prefix), self._width))
            grown[: prefix - 1] = self._history
            self._history = grown
        self._history[prefix - 1] = grid_normals(self._width, self._entropy.fork("prefix", prefix))
        combined = self._newest_last[self._length - prefix :] @ self._history[:prefix]
        return np.floor(self._scale * combined + 0.5).astype(np.int64)


def _square_root_coefficients(length: int) -> NDArray[np.float64]:
    """The first column of the square root of A: c_0 = 1, c_k = c_{k-1} (2k - 1) / (2k)."""
    doubled = 2.0 * np.arange(1, length)
    return np.concatenate(([1.0], np.cumprod((doubled - 1) / doubled)))


def _covering_nodes(length: int) -> NDArray[np.int64]:
    """How many nodes of a tree of ``length`` leaves cover each leaf: i, then i + lowbit(i), and so on."""
    node = np.arange(1, length + 1)
    covering = np.zeros(length, dtype=np.int64)
    while np.any(inside := node <= length):
        covering += inside
        node += node & -node
    return covering


def _check(factorisation: str, length: int, width: int, scale: float) -> None:
    if factorisation not in ("toeplitz", "fenwick") or length < 1 or width < 1 or not 0 < scale <= LARGEST_SCALE:
        raise ConfigurationError(
            f"A running sum needs noise 'toeplitz' or 'fenwick', a length and width of at least 1, and a scale above "
            f"0 and at most 2^45 grid units, not {factorisation!r}, {length}, {width} and {scale}."
        )
