"""Directions inside the span of a few public vectors."""

from __future__ import annotations

import torch
from torch import Tensor

from sottovoce.objective.directions import Directions, Key, Layout, held

_LEAST_SHARE = 1e-10
"""Squared length, of vectors scaled to length 1, below which a direction is float32 rounding and not a direction."""


_CHUNK = 1 << 20
"""Columns that are converted to float64 at a time."""


def normalised(rows: Tensor) -> Tensor:
    """The rows scaled to length 1; rows that are zero or not finite are left out."""
    rows = rows.detach()
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    usable = torch.isfinite(norms) & (norms > 0)
    return rows[usable] / norms[usable, None].to(rows.dtype)


def orthonormal_mix(rows: Tensor) -> Tensor:
    """``[r, k]``: the combinations of k unit rows that are an orthonormal basis of their span, whose rank is r.

    From the eigenvectors of the k x k Gram matrix: no second matrix of length d is made. Any orthonormal basis of
    the span serves as well as that of Gram and Schmidt, because what is drawn in it is invariant under rotation.
    """
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for part in rows.split(_CHUNK, dim=1):
        wide = part.to(torch.float64)
        gram += wide @ wide.T
    squares, vectors = torch.linalg.eigh(gram.cpu())
    kept = squares > _LEAST_SHARE
    return (vectors[:, kept] / squares[kept].sqrt()).T


def within(layout: Layout, rows: Tensor, *, count: int, key: Key, orthonormalise: bool = True) -> Directions | None:
    """Random directions ``G u`` with u uniform on the sphere of radius sqrt(rank); None if the rows span nothing.

    G's columns are an orthonormal basis of the span of the rows, or the rows scaled to length 1 (then the sphere
    has as many dimensions as there are rows that are not zero).
    """
    unit = normalised(rows)
    if not len(unit):
        return None
    mix = orthonormal_mix(unit) if orthonormalise else torch.eye(len(unit), dtype=torch.float64)
    normals = torch.as_tensor(key.fold("within").generator().standard_normal((count, len(mix))))
    spherical = normals * (len(mix) ** 0.5 / torch.linalg.vector_norm(normals, dim=1, keepdim=True))
    return held(layout, (spherical @ mix).to(unit.device, unit.dtype) @ unit)
