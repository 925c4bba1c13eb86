"""Public randomness of each record's own, from a key and the record's number: orthonormal bases, points of a ball."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.objective.directions import Key

_ROUNDING = 1e-8
"""A row's squared length may be off by this; rounding beyond it tells of normals that were nearly dependent."""


def haar_bases(dimension: int, key: Key, numbers: Sequence[int], basis: int = 0) -> Tensor:
    """``[len(numbers), d, d]`` in float64: the rows of each matrix are a Haar-distributed orthonormal basis.

    It depends on the key, the record's number and the basis' number alone, not on which others are asked for.

    Normal rows N, made orthonormal by the triangular factor of N N^T: what Gram-Schmidt gives, hence Haar-distributed,
    and several times faster than Householder's QR for many small matrices. It loses the square of N's condition; where
    that shows, QR takes over. Every row by itself is uniform on the sphere. Orthonormality holds to rounding: what
    rests on it for privacy is enforced by a clip.
    """
    drawn = _normals((dimension, dimension), key, numbers, basis)
    normals = torch.from_numpy(drawn)
    factor, failed = torch.linalg.cholesky_ex(normals @ normals.mT)
    rows = torch.linalg.solve_triangular(factor, normals, upper=False)
    off = torch.einsum("pij,pij->pi", rows, rows).sub_(1).abs_().amax(dim=1)
    bad = torch.nonzero((failed != 0) | ~(off < _ROUNDING))[:, 0]
    if len(bad):
        rows[bad] = _by_householder(normals[bad])
    return rows


def points_of_ball(dimension: int, key: Key, numbers: Sequence[int], draw: int = 0) -> NDArray[np.float64]:
    """``[len(numbers), d]``: uniform in the unit ball; the same for the same key, record and draw.

    The first d of d + 2 coordinates of a point that is uniform on the sphere are uniform in the ball.
    """
    normals = _normals((dimension + 2,), key, numbers, draw)
    return normals[:, :dimension] / np.linalg.norm(normals, axis=1, keepdims=True)


def _normals(shape: tuple[int, ...], key: Key, numbers: Sequence[int], part: int) -> NDArray[np.float64]:
    """One counter-based stream, entered where each record's part of it begins: 2^128 numbers from the next."""
    words = key.generator().bit_generator.random_raw(2)
    stream = np.random.Philox(key=words)
    fresh, generator = stream.state, np.random.Generator(stream)
    out = np.empty((len(numbers), *shape))
    for row, number in enumerate(numbers):
        fresh["state"]["counter"][:] = (0, 0, part, number)
        stream.state = fresh
        generator.standard_normal(out=out[row])
    return out


def _by_householder(rows: Tensor) -> Tensor:
    q, r = torch.linalg.qr(rows.mT)
    signs = torch.where(torch.diagonal(r, dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(rows.dtype)
    return (q * signs[..., None, :]).mT
