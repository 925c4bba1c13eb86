"""The known data sets by name."""

from __future__ import annotations

import difflib

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks.data.catalogue import IMAGES, TEXTS, WEIGHTS
from sottovoce.tasks.data.specs import DatasetSpec, Kind

REGISTRY: dict[str, DatasetSpec] = {entry.name: entry for entry in (*IMAGES, *TEXTS, *WEIGHTS)}


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """The names of the known data sets, or of those of one ``kind``."""
    return tuple(name for name, entry in REGISTRY.items() if kind in (None, entry.kind))


def spec(name: str) -> DatasetSpec:
    """The entry called ``name``.

    Raises:
        ConfigurationError: there is none; the message names the nearest one.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    near = difflib.get_close_matches(name.lower().replace("_", "-"), REGISTRY, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigurationError(f"unknown data set {name!r}: {hint}Known are {', '.join(REGISTRY)}.")


def spec_of_kind(name: str, kind: Kind) -> DatasetSpec:
    """The entry called ``name``, which must be of this ``kind``.

    Raises:
        ConfigurationError: there is none, or it is of another kind.
    """
    entry = spec(name)
    if entry.kind != kind:
        raise ConfigurationError(
            f"{name} holds {entry.kind}, not {kind}. Of {kind} there are {', '.join(names(kind))}."
        )
    return entry
