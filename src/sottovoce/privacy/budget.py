"""The privacy budget of a run or of a data set, and the relation between the worlds that it speaks of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, SupportsFloat, get_args

from sottovoce.privacy.errors import ConfigurationError

Neighbours = Literal["zero-out", "add-remove", "replace-one"]
Unit = Literal["record"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """An (epsilon, delta) guarantee and what it protects.

    Args:
        epsilon: the bound on the privacy loss, positive and finite.
        delta: the probability mass outside that bound, in (0, 1); keep it well below 1 / records.
        neighbours: which data sets must look alike. ``"zero-out"`` (the default): one record is replaced
            by one that contributes nothing, and the number of records is public. ``"add-remove"``: one record
            is added or removed; the rate, the steps and the divisor must be fixed independently of the data.
            ``"replace-one"``: one record takes any other value.
        unit: what a neighbour differs in. Only ``"record"`` exists today.
    """

    epsilon: float
    delta: float
    neighbours: Neighbours = "zero-out"
    unit: Unit = "record"

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            given: object = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, SupportsFloat):
                raise ConfigurationError(f"{name}={given!r}: a number is needed, such as 1.0 or 1e-6.")
            object.__setattr__(self, name, float(given))  # narrower floats would keep their arithmetic
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ConfigurationError(f"epsilon={self.epsilon!r}: it must be a positive, finite number, such as 1.0.")
        if not (math.isfinite(self.delta) and 0 < self.delta < 1):
            raise ConfigurationError(f"delta={self.delta!r}: it must lie in (0, 1); a tenth of 1/records is usual.")
        for name, known in (("neighbours", get_args(Neighbours)), ("unit", get_args(Unit))):
            if getattr(self, name) not in known:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(known)}.")
