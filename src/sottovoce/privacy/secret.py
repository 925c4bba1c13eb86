"""What must not leave the process, nor show itself in a log or a debugger."""

from __future__ import annotations

from typing import NoReturn


class Secret:
    """Has a constant representation and cannot be copied or pickled; its classes declare ``__slots__``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is private: it is not copied or pickled.")
