"""SGD and MeZO: references WITHOUT PRIVACY, for comparing what privacy costs.

They take no budget, read the records directly and leave a statement that says NOT PRIVATE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch

from sottovoce.methods.base import require_choice, require_counts, require_learning_rate, require_positive
from sottovoce.objective.directions import Key, Kind, draw
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import repeat
from sottovoce.privacy.errors import QueryError
from sottovoce.queries import slopes
from sottovoce.update import Along, Dense, Estimate


@runtime_checkable
class PlainMethod(Protocol):
    """A method without privacy: its step sees the records themselves."""

    private: ClassVar[bool]

    @property
    def lr(self) -> float:
        """The learning rate."""
        ...

    def check(self, objective: ModuleObjective) -> None:
        """Raise if the method does not fit this model or its loss; tried on the example, before the first step."""
        ...

    def plain_step(self, records: Any, objective: ModuleObjective, key: Key) -> Estimate:
        """The gradient estimate on these records."""
        ...


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent. NOT PRIVATE.

    Args:
        lr: the learning rate.
    """

    private: ClassVar[bool] = False

    lr: float

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)

    def check(self, objective: ModuleObjective) -> None:
        """The loss must have a gradient."""
        try:
            objective.mean_gradient(repeat(objective.example, 1))
        except Exception as error:
            raise QueryError(
                f"the loss cannot be differentiated on the example ({type(error).__name__}: {error}). SGD needs a "
                "differentiable loss; MeZO does not."
            ) from error

    def plain_step(self, records: Any, objective: ModuleObjective, key: Key) -> Estimate:
        """The mean gradient by back-propagation."""
        return Dense(objective.mean_gradient(records))


@dataclass(frozen=True, kw_only=True)
class MeZO:
    """Zeroth-order descent (Malladi et al. 2023): mean slopes along random directions. NOT PRIVATE.

    Args:
        lr: the learning rate.
        smoothing: the radius of the two-point difference.
        queries: directions in a step.
        directions: ``"gaussian"`` as published, ``"sphere"`` or ``"rademacher"``.
    """

    private: ClassVar[bool] = False

    lr: float
    smoothing: float = 1e-3
    queries: int = 1
    directions: Kind = "gaussian"

    def __post_init__(self) -> None:
        require_learning_rate(self.lr)
        require_positive(smoothing=self.smoothing)
        require_counts(queries=self.queries)
        require_choice("directions", self.directions, ("sphere", "gaussian", "rademacher"))

    def check(self, objective: ModuleObjective) -> None:
        """The smoothing must move the parameters in their own precision."""
        objective.check_smoothing(math.sqrt(objective.parameters.numel()), self.smoothing)

    def plain_step(self, records: Any, objective: ModuleObjective, key: Key) -> Estimate:
        """The mean combination of the batch's mean slopes."""
        u = draw(self.directions, objective.parameters.layout, count=self.queries, key=key)
        answers = slopes(objective, u, self.smoothing)(records).mean(dim=0)
        return Along(u, answers.to("cpu", torch.float64) / self.queries)
