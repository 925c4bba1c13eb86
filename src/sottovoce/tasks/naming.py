"""What is said to someone who gave a name that is not known, and how options are checked."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sottovoce.privacy.errors import ConfigurationError


def nearest(given: Any, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, if one is near, and all of them."""
    known = list(known)
    if not known:
        return "it has no options."
    near = difflib.get_close_matches(str(given), known, n=1, cutoff=0.5)
    return (f"did you mean {near[0]!r}? " if near else "") + f"Known are {', '.join(known)}."


def require_known_options(
    builder: Callable[..., Any], options: Mapping[str, Any], what: str, *, hidden: Iterable[str] = ()
) -> None:
    """Refuse an option that is not a parameter of ``builder``, or is one of the ``hidden`` ones."""
    known = [option for option in inspect.signature(builder).parameters if option not in tuple(hidden)]
    for option in options:
        if option not in known:
            raise ConfigurationError(f"unknown option {option!r} of {what}: {nearest(option, known)}")


def require_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse what is not one of the known words."""
    if value not in tuple(choices):
        raise ConfigurationError(f"{name}={value!r}: {nearest(value, choices)}")


def require_counts(**options: Any) -> None:
    """Every option is a whole number of at least one."""
    for option, value in options.items():
        if not is_count(value):
            raise ConfigurationError(f"{option}={value!r}: a positive whole number is needed.")


def is_count(value: Any) -> bool:
    """Whether ``value`` is a whole number of at least one."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
