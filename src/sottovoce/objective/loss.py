"""What a loss is, and the check that it gives one number per record."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from sottovoce.privacy.errors import QueryError


class Loss(Protocol):
    """One loss per record: a floating-point tensor of shape [B]."""

    def __call__(self, model: Any, batch: Any, /) -> Tensor:
        """The losses of the batch's records."""
        ...


def checked_losses(values: Any, size: int) -> Tensor:
    """What the user's loss returned, if it is one floating-point number per record; its values are not looked at."""
    if not isinstance(values, Tensor):
        raise QueryError(
            f"the loss returned a {type(values).__name__}; a tensor with one value per record, of shape [{size}], is "
            "needed."
        )
    shape = list(values.shape)
    if shape != [size]:
        if values.numel() == 1:
            mend = (
                "it looks like a mean or a sum over the batch: return one value per record, for instance with "
                "F.cross_entropy(outputs, targets, reduction='none')"
            )
        elif shape == [size, 1]:
            mend = "drop the last dimension with .squeeze(1)"
        elif shape[:1] == [size]:
            mend = "reduce the other dimensions, for instance with .flatten(1).mean(1)"
        else:
            mend = "the first dimension must be the batch's, and the only one"
        raise QueryError(f"the loss returned shape {shape} for {size} records; [{size}] is needed: {mend}.")
    if not values.dtype.is_floating_point:
        raise QueryError(
            f"the loss returned {values.dtype}; a floating-point type is needed: convert it with .float()."
        )
    return values
