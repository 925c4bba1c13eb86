"""Who takes part: the paper's methods, their references without privacy, and the controls that it lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sottovoce.bench.controls import NoiseOnly
from sottovoce.methods import DPMD, DPSGD, GEP, SGD, DopeSGD, DPZero, Method, MeZO, PazoM, PazoP, PazoS, PlainMethod
from sottovoce.privacy.errors import ConfigurationError

Family = Literal["FO", "FO+PUB", "ZO", "ZO+PUB", "control", "reference"]


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A row of the tables.

    Attributes:
        name: what the tables call it.
        family: first or zeroth order, with or without public data; or what it is compared with.
        make: the method's class.
        fixed: arguments that make it what it is, whatever the grid says.
        settings_of: whose grid and whose chosen settings it uses: its own, or those of the method that it controls.
        trains_on: ``"private"`` records, or ``"public"`` ones alone.
        silent: whether every private answer is replaced by zero plus the same noise.
    """

    name: str
    family: Family
    make: type[Any]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings_of: str | None = None
    trains_on: Literal["private", "public"] = "private"
    silent: bool = False

    @property
    def private(self) -> bool:
        """Whether it takes a budget."""
        return bool(self.make.private)

    @property
    def uses_public(self) -> bool:
        """Whether it reads public records."""
        return any(field.name == "public_batch" for field in dataclasses.fields(self.make))

    def method(self, settings: Mapping[str, Any]) -> Method | PlainMethod:
        """The method with these settings."""
        made = self.make(**{**settings, **self.fixed})
        return NoiseOnly(made) if self.silent else made


_PAZO = {
    "PAZO-M": Contestant(name="PAZO-M", family="ZO+PUB", make=PazoM),
    "PAZO-P": Contestant(name="PAZO-P", family="ZO+PUB", make=PazoP, fixed={"basis": "orthonormal"}),
    "PAZO-P normalised": Contestant(
        name="PAZO-P normalised", family="ZO+PUB", make=PazoP, fixed={"basis": "normalised"}
    ),
    "PAZO-S": Contestant(name="PAZO-S", family="ZO+PUB", make=PazoS),
}
_ALL = [
    Contestant(name="DP-SGD", family="FO", make=DPSGD),
    Contestant(name="DPMD", family="FO+PUB", make=DPMD),
    Contestant(name="DOPE-SGD", family="FO+PUB", make=DopeSGD),
    Contestant(name="GEP", family="FO+PUB", make=GEP),
    Contestant(name="DPZero", family="ZO", make=DPZero),
    *_PAZO.values(),
    *(
        dataclasses.replace(each, name=f"{name} (noise only)", family="control", settings_of=name, silent=True)
        for name, each in _PAZO.items()
    ),
    Contestant(name="public only", family="control", make=SGD, trains_on="public"),
    Contestant(name="SGD", family="reference", make=SGD),
    Contestant(name="MeZO", family="reference", make=MeZO),
]
CONTESTANTS: Mapping[str, Contestant] = {each.name: each for each in _ALL}
"""All of them by name, in the order of the tables."""


def find(name: str) -> Contestant:
    """The contestant of this name."""
    if name not in CONTESTANTS:
        raise ConfigurationError(f"unknown method {name!r}: known are {', '.join(CONTESTANTS)}.")
    return CONTESTANTS[name]
