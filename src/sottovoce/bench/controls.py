"""Controls: what a method does when the private records say nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sottovoce.methods import Method, Moment
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import batch_size
from sottovoce.privacy.curator import Batch
from sottovoce.privacy.plan import Plan
from sottovoce.privacy.sampling import Sampler
from sottovoce.update import Estimate


@dataclass(frozen=True)
class NoiseOnly:
    """A method whose private answers are zero plus the noise that they would have.

    What is left is its public part and the noise: where this does as well as the method itself, the private
    records contributed nothing. Everything is released, planned and accounted as by the method.
    """

    private: ClassVar[bool] = True

    method: Method

    def __getattr__(self, name: str) -> Any:
        """Everything else (learning rate, public batch) is the method's own."""
        if name.startswith("__") or name == "method":
            raise AttributeError(name)
        return getattr(self.method, name)

    @property
    def lr(self) -> float:
        """As the method."""
        return self.method.lr

    def plan(self, sampler: Sampler) -> Plan:
        """As the method."""
        return self.method.plan(sampler)

    def check(self, objective: ModuleObjective) -> None:
        """As the method."""
        self.method.check(objective)

    def step(self, batch: Batch, at: Moment) -> Estimate:
        """The method's step, with the private part silenced."""
        silenced: Any = _Silenced(batch)
        return self.method.step(silenced, at)


class _Silenced:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def release(self, query: Any, *, bound: float, share: float = 1.0) -> Tensor:
        return self._batch.release(_Nothing(query.width), bound=bound, share=share)

    def skip(self) -> None:
        self._batch.skip()


@dataclass(frozen=True)
class _Nothing:
    width: int
    name: str = "nothing"

    def __call__(self, records: Any) -> Tensor:
        return torch.zeros(batch_size(records), self.width)
