"""What a method is: a frozen configuration, a plan, and one step."""

from __future__ import annotations

import dataclasses
import numbers
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from sottovoce.arguments import is_finite
from sottovoce.objective.directions import Key
from sottovoce.objective.module import ModuleObjective
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.plan import Plan
from sottovoce.privacy.sampling import Sampler
from sottovoce.public import PublicData
from sottovoce.update import Estimate

AnyMethod = TypeVar("AnyMethod")


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What a step knows beside its batch. All of it is public.

    Attributes:
        objective: the model at the current parameters, and the loss.
        key: the public randomness of this step.
        number: the step's number, from 0.
        of: how many steps the run has.
        rate: the learning rate that the estimate will be multiplied with.
        public_data: the public records, where there are any.
    """

    objective: ModuleObjective
    key: Key
    number: int
    of: int
    rate: float
    public_data: PublicData | None = None

    @property
    def public(self) -> PublicData:
        """The public records of a method that uses some."""
        assert self.public_data is not None, "the session refuses such a method without public data"
        return self.public_data


@runtime_checkable
class Method(Protocol):
    """A private method. It holds no state: that lives in the session.

    A method that uses public data has ``public_batch``, the number of public records in one of its batches.
    """

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

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """Ask the batch, and turn its noisy answers into an estimate of the gradient."""
        ...


def uses_public(method: object) -> bool:
    """Whether a method reads public records."""
    return getattr(method, "public_batch", None) is not None


def require_positive(**values: float) -> None:
    """Every value is positive and finite."""
    for name, value in values.items():
        if not (is_finite(value) and value > 0):
            raise ConfigurationError(f"{name}={value!r}: it must be a positive, finite number.")


def require_counts(**values: int) -> None:
    """Every value is a whole number of at least one."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ConfigurationError(f"{name}={value!r}: it must be a whole number, at least 1.")


def require_share(name: str, value: Any) -> None:
    """Between zero and one, both included."""
    if not (is_finite(value) and 0 <= value <= 1):
        raise ConfigurationError(f"{name}={value!r}: it must lie in [0, 1].")


def require_learning_rate(lr: Any) -> None:
    """At least zero: a learning rate of 0 is a legitimate dry run."""
    if not (is_finite(lr) and lr >= 0):
        raise ConfigurationError(f"lr={lr!r}: the learning rate must be a finite number, at least 0.")


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """One of the known words."""
    if value not in choices:
        raise ConfigurationError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}.")


def with_plain_numbers(method: AnyMethod) -> AnyMethod:
    """The same method with Python's numbers in place of NumPy's, as in ``lr=np.float32(0.1)``."""
    if not dataclasses.is_dataclass(method) or isinstance(method, type):
        return method
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if is_finite(value) and not isinstance(value, int | float):
            changes[field.name] = int(value) if isinstance(value, numbers.Integral) else float(value)
    return dataclasses.replace(method, **changes) if changes else method
