"""Who takes part: the paper's methods, their references without privacy, and the controls that it lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
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


def _silenced(method: Contestant) -> Contestant:
    name = f"{method.name} (noise only)"
    return dataclasses.replace(method, name=name, family="control", settings_of=method.name, silent=True)


_PAZO = [
    Contestant(name="PAZO-M", family="ZO+PUB", make=PazoM),
    Contestant(name="PAZO-P", family="ZO+PUB", make=PazoP, fixed={"basis": "orthonormal"}),
    Contestant(name="PAZO-P normalised", family="ZO+PUB", make=PazoP, fixed={"basis": "normalised"}),
    Contestant(name="PAZO-S", family="ZO+PUB", make=PazoS),
]
_ALL = [
    Contestant(name="DP-SGD", family="FO", make=DPSGD),
    Contestant(name="DPMD", family="FO+PUB", make=DPMD),
    Contestant(name="DOPE-SGD", family="FO+PUB", make=DopeSGD),
    Contestant(name="GEP", family="FO+PUB", make=GEP),
    Contestant(name="DPZero", family="ZO", make=DPZero),
    *(row for each in _PAZO for row in (each, _silenced(each))),  # the control directly under its method
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


def with_controls(names: Iterable[str]) -> tuple[str, ...]:
    """These contestants, each followed by the controls that go by its settings."""
    found: dict[str, None] = {}
    for name in names:
        found[find(name).name] = None
        found |= dict.fromkeys(each.name for each in CONTESTANTS.values() if each.settings_of == name)
    return tuple(found)
