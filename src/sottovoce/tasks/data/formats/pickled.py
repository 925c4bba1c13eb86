"""Reading a pickle of plain values and byte arrays without letting it run anything.

A pickle is a program: unpickling one calls whatever it names. Here the only names that resolve are those with which
NumPy pickles an array, and they resolve not to NumPy but to inert stand-ins that merely record their arguments; the
array is then built by this module after its shape and size have been checked. Every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.errors import DataError


class PickledArray:
    """The recorded parts of a pickled NumPy array; nothing of it is trusted until :meth:`as_bytes`."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: Any = None

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def as_bytes(self, origin: Path) -> npt.NDArray[np.uint8]:
        """The array, which must be a whole one of unsigned bytes."""
        match self._state:
            case (int(), tuple(shape), _Type(code="u1" | b"u1"), bool() | int() as fortran, bytes(raw)):
                sizes_are_plain = all(type(size) is int and size >= 0 for size in shape)
                if sizes_are_plain and math.prod(shape) == len(raw):
                    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")
        raise DataError(f"{origin}: its array is damaged or is not one of unsigned bytes. Get the file again.")


class _Type:
    """The recorded code of a pickled element type."""

    __slots__ = ("code",)
    __match_args__ = ("code",)

    def __init__(self, code: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """The byte order and the like, which unsigned bytes do not have."""


class _Inert:
    """A name that may be mentioned and called, and has no attributes to tamper with."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a name of NumPy is given a state")


class _ArrayClass(_Inert):
    __slots__ = ()


class _Reconstruct(_Inert):
    __slots__ = ()

    def __call__(self, kind: Any, shape: Any, code: Any) -> PickledArray:
        if not isinstance(kind, _ArrayClass):
            raise pickle.UnpicklingError("an array of a class other than numpy.ndarray")
        return PickledArray()


class _TypeClass(_Inert):
    __slots__ = ()

    def __call__(self, code: Any, align: Any = False, copy: Any = True) -> _Type:
        return _Type(code)


class _Encode(_Inert):
    """How Python 3 writes bytes in the pickle formats of Python 2: as text, to be encoded again."""

    __slots__ = ()

    def __call__(self, text: Any, encoding: Any) -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("an encoding other than latin1")
        return text.encode("latin1")


_NAMES: dict[tuple[str, str], _Inert] = {
    ("numpy", "ndarray"): _ArrayClass(),
    ("numpy", "dtype"): _TypeClass(),
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
    ("_codecs", "encode"): _Encode(),
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _NAMES[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}") from None

    def persistent_load(self, pid: Any, /) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def load_plain(content: bytes, origin: Path) -> Any:
    """The value pickled in ``content``, made of builtin containers, numbers, text and :class:`PickledArray` alone.

    Text written by Python 2 arrives as bytes.

    Raises:
        DataError: the pickle is malformed, or asks for anything else; nothing it names has then been called.
    """
    try:
        return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a malformed pickle raises nearly anything
        raise DataError(
            f"{origin}: this pickle is refused ({error or type(error).__name__}). A batch of CIFAR-10 holds an array "
            "and a list only; the file is damaged or is not the original. Take the binary version."
        ) from error
