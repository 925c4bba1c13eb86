"""What a method is: a frozen configuration, a plan, and one step."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Protocol, runtime_checkable

from sottovoce.objective.directions import Key
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.plan import Plan
from sottovoce.privacy.sampling import Sampler
from sottovoce.update import Estimate


@runtime_checkable
class Method(Protocol):
    """A private method. It holds no state: that lives in the session."""

    private: ClassVar[bool]

    @property
    def lr(self) -> float:
        """The learning rate that the estimate is multiplied with."""
        ...

    def plan(self, sampler: Sampler) -> Plan:
        """Everything that a run will release; frozen before any data is read."""
        ...

    def check(self, objective: ModuleObjective) -> None:
        """Raise `ConfigurationError` if the method does not fit this model."""
        ...

    def step(self, batch: Batch, objective: ModuleObjective, key: Key) -> Estimate:
        """Ask the batch, and turn its noisy answers into an estimate of the gradient."""
        ...


def require_positive(**values: float) -> None:
    """Every value is positive and finite."""
    for name, value in values.items():
        if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
            raise ConfigurationError(f"{name}={value!r}: it must be a positive, finite number.")


def require_learning_rate(lr: Any) -> None:
    """At least zero: a learning rate of 0 is a legitimate dry run."""
    if not (isinstance(lr, int | float) and math.isfinite(lr) and lr >= 0):
        raise ConfigurationError(f"lr={lr!r}: the learning rate must be a finite number, at least 0.")


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """One of the known words."""
    if value not in choices:
        raise ConfigurationError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}.")
