"""What a number given by a user may be: Python's own, NumPy's, and nothing that only looks like one."""

from __future__ import annotations

import math
import numbers
from typing import Any

from sottovoce.privacy.errors import ConfigurationError


def is_finite(value: Any) -> bool:
    """Whether it is a real, finite number; a truth value is none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, of whatever type."""
    return is_finite(value) and int(value) == value


def whole(name: str, value: Any) -> int:
    """The argument as an integer.

    Raises:
        ConfigurationError: it is not a whole number, or below 1.
    """
    if not is_whole(value) or value < 1:
        raise ConfigurationError(f"{name}={value!r}: it must be a whole number, at least 1.")
    return int(value)
