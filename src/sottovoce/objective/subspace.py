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

    Gram and Schmidt's, in the k x k Gram matrix: no second matrix of length d is made, and it is the same basis on
    every device but for rounding. A row that lies in the span of those before it adds nothing.
    """
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for part in rows.split(_CHUNK, dim=1):
        wide = part.to(torch.float64)
        gram += wide @ wide.T
    gram = gram.cpu()
    mix: list[Tensor] = []
    for own in torch.eye(len(rows), dtype=torch.float64):
        left = own.clone()
        for _ in range(2):  # the second pass removes what rounding left of the first
            for unit in mix:
                left -= (unit @ gram @ left) * unit
        square = float(left @ gram @ left)
        if square > _LEAST_SHARE:
            mix.append(left / square**0.5)
    return torch.stack(mix)


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
