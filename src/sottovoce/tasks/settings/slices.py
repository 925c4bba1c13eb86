"""Who is private, public or kept for validation: slices of a training part, cut by a fixed public permutation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks.data.permutation import order
from sottovoce.tasks.naming import is_count, require_choice

Imbalance = Literal["none", "slight", "half", "big"]
"""How the sizes of the public classes differ.

``slight`` falls evenly from 1 for the first class to 0.85 for the last, ``big`` from 1 to 0.1, and ``half`` is the mean
of the two: the mildest, the largest and the middle shift of the paper's Table 7. ``none`` gives equal classes.
"""

_LAST: dict[str, float] = {"none": 1.0, "slight": 0.85, "big": 0.1}


@dataclass(frozen=True)
class Slices:
    """Record numbers of three disjoint slices, in the permutation's order."""

    private: list[int]
    public: list[int]
    validation: list[int]


def cut(
    labels: Sequence[int] | np.ndarray[Any, Any],
    *,
    name: str,
    classes: int,
    public: int,
    validation: int,
    imbalance: Imbalance = "slight",
    limit: int | None = None,
) -> Slices:
    """Slices of records that carry ``labels``.

    The first ``validation`` records of the permutation called ``name`` are kept for validation. Of the rest, the first
    of each class are public, so many that there are ``public`` in all, in the shares of ``imbalance``. What remains is
    private, or its first ``limit`` records. The public and validation slices do not depend on ``limit``.

    Raises:
        ConfigurationError: the records do not suffice; the message says for what.
    """
    require_choice("imbalance", imbalance, get_args(Imbalance))
    require_size("public_records", public)
    require_size("validation_records", validation)
    left = order(name, len(labels))
    kept, left = left[:validation], left[validation:]
    wanted = class_sizes(public, classes, imbalance)
    chosen: list[int] = []
    private: list[int] = []
    for number in left:
        label = int(labels[number])
        if wanted[label]:
            wanted[label] -= 1
            chosen.append(number)
        else:
            private.append(number)
    if any(wanted) or not private:
        raise ConfigurationError(
            f"{len(labels)} records do not suffice for public_records={public}, validation_records={validation} and a "
            "private part: take smaller slices."
        )
    return Slices(limited(private, limit), chosen, kept)


def class_sizes(total: int, classes: int, imbalance: Imbalance) -> list[int]:
    """``total`` records shared among the classes; rounding leaves the sum as it is."""
    if imbalance == "half":
        upper = class_sizes(total - total // 2, classes, "slight")
        return [one + other for one, other in zip(upper, class_sizes(total // 2, classes, "big"), strict=True)]
    shares = np.linspace(1.0, _LAST[imbalance], classes)
    ends = np.rint(np.cumsum(shares) / shares.sum() * total).astype(int)
    return [int(size) for size in np.diff(ends, prepend=0)]


def limited(private: list[int], limit: int | None) -> list[int]:
    """The first ``limit`` of the private records, or all."""
    if limit is None:
        return private
    if not is_count(limit) or limit > len(private):
        raise ConfigurationError(f"limit={limit!r}: the private part has {len(private)} records.")
    return private[:limit]


def require_size(name: str, value: Any) -> None:
    """A positive whole number."""
    if not is_count(value):
        raise ConfigurationError(f"{name}={value!r}: a positive whole number is needed.")
