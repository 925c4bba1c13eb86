"""From a gradient estimate to the next iterate: step size schedule, momentum, decay and averaging, written once.

All of it is post-processing of released answers, so none of it touches the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sottovoce.arguments import is_finite
from sottovoce.objective.directions import Directions, combine
from sottovoce.objective.parameters import ParameterVector
from sottovoce.privacy.errors import ConfigurationError

Scheduler = Callable[[torch.optim.Optimizer], Any]
"""Makes a scheduler of ``torch.optim.lr_scheduler`` for an optimiser."""

Schedule = Callable[[float], float]
"""The factor on the learning rate as a function of the fraction of the run that is over."""

SCHEDULES: dict[str, Schedule] = {
    "constant": lambda fraction: 1.0,
    "linear": lambda fraction: 1.0 - fraction,
    "cosine": lambda fraction: 0.5 * (1.0 + math.cos(math.pi * fraction)),
}


class Estimate(Protocol):
    """A method's estimate of the gradient."""

    @property
    def released(self) -> Tensor:
        """The numbers that the estimate is made from; public, and may be logged."""
        ...

    def dense(self) -> Tensor:
        """The estimate as one vector."""
        ...

    def add_to(self, parameters: ParameterVector, scale: float) -> None:
        """x += scale * estimate."""
        ...


@dataclass(frozen=True)
class Along:
    """``sum_j coefficients[j] u_j``: never a whole vector unless somebody asks for one."""

    directions: Directions
    coefficients: Tensor

    @property
    def released(self) -> Tensor:
        """The coefficients."""
        return self.coefficients

    def dense(self) -> Tensor:
        """The combination as one vector."""
        return combine(self.directions, self.coefficients)

    def add_to(self, parameters: ParameterVector, scale: float) -> None:
        """Replays the directions into the parameters."""
        parameters.add_(self.directions, self.coefficients * scale)


@dataclass(frozen=True)
class AlongAnd(Along):
    """``sum_j coefficients[j] u_j + vector``, where the vector is public."""

    vector: Tensor

    def dense(self) -> Tensor:
        """The sum as one vector."""
        return super().dense().to(self.vector.device) + self.vector

    def add_to(self, parameters: ParameterVector, scale: float) -> None:
        """Replays the directions into the parameters, and rounds once."""
        parameters.add_(self.directions, self.coefficients * scale, plus=self.vector * scale)


@dataclass(frozen=True)
class Dense:
    """An estimate that is a vector already.

    Attributes:
        vector: the estimate.
        answers: the released numbers that it was made from, where they are not the vector itself.
    """

    vector: Tensor
    answers: Tensor | None = None

    @property
    def released(self) -> Tensor:
        """The numbers that the estimate was made from."""
        return self.vector if self.answers is None else self.answers

    def dense(self) -> Tensor:
        """The vector."""
        return self.vector

    def add_to(self, parameters: ParameterVector, scale: float) -> None:
        """Adds the scaled vector."""
        parameters.add_vector_(self.vector, scale)


@dataclass(frozen=True, kw_only=True)
class Update:
    """How estimates become steps, for every method alike.

    Args:
        momentum: in [0, 1); the velocity is momentum * velocity + estimate, as in torch.optim.SGD.
        weight_decay: adds weight_decay * x to the estimate.
        schedule: ``"constant"``, ``"linear"``, ``"cosine"``, or a function from the fraction of the run
            that is over, in [0, 1), to a factor on the learning rate.
        scheduler: instead of a schedule, makes any ``torch.optim.lr_scheduler`` that needs no metric from an optimiser,
            as in ``lambda optimizer: StepLR(optimizer, 100)``; it is stepped once a step.
        averaging: the decay of an exponential average of the iterates, in (0, 1); it is what is evaluated, and
            what the model holds when the run ends, be it early by `Session.close`. Off by default.
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str | Schedule = "constant"
    scheduler: Scheduler | None = None
    averaging: float | None = None

    def __post_init__(self) -> None:
        if not (is_finite(self.momentum) and 0 <= self.momentum < 1):
            raise ConfigurationError(f"momentum={self.momentum!r}: it must be a number in [0, 1).")
        if not (is_finite(self.weight_decay) and self.weight_decay >= 0):
            raise ConfigurationError(f"weight_decay={self.weight_decay!r}: it must be a finite number, at least 0.")
        if self.schedule not in SCHEDULES if isinstance(self.schedule, str) else not callable(self.schedule):
            raise ConfigurationError(
                f"schedule={self.schedule!r}: choose one of {', '.join(SCHEDULES)}, or give a function from the "
                "fraction of the run that is over to a factor on the learning rate."
            )
        if self.scheduler is not None and not callable(self.scheduler):
            raise ConfigurationError(
                f"scheduler={self.scheduler!r}: give a function that makes a scheduler from an optimiser, such as "
                "lambda optimizer: StepLR(optimizer, 100)."
            )
        if self.scheduler is not None and self.schedule != "constant":
            raise ConfigurationError("schedule= and scheduler= were given: one of the two sets the learning rate.")
        if self.averaging is not None and not (is_finite(self.averaging) and 0 < self.averaging < 1):
            raise ConfigurationError(f"averaging={self.averaging!r}: the decay must be a number in (0, 1).")

    def rates(self, lr: float, steps: int) -> list[float]:
        """The learning rate of every step.

        Raises:
            ConfigurationError: the schedule or the scheduler fails at some step, or gives no finite number.
        """
        name = "schedule" if self.scheduler is None else "scheduler"
        rates: list[float] = []
        try:
            for rate in self._scheduled(lr, steps) if self.scheduler is None else self._stepped(lr, steps):
                if not is_finite(rate):
                    raise ConfigurationError(
                        f"{name}= gives the rate {rate!r} at step {len(rates) + 1} of {steps}: a finite number is "
                        "needed at each."
                    )
                rates.append(float(rate))
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"{name}= raised {type(error).__name__} for step {len(rates) + 1} of {steps}: {error}"
            ) from error
        return rates

    def _scheduled(self, lr: float, steps: int) -> Iterator[Any]:
        schedule = SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule
        for step in range(steps):
            factor: Any = schedule(step / steps)
            yield lr * factor if is_finite(factor) else factor

    def _stepped(self, lr: float, steps: int) -> Iterator[Any]:
        assert self.scheduler is not None
        optimizer = torch.optim.SGD([torch.zeros((), requires_grad=True)], lr=lr)
        scheduler = self.scheduler(optimizer)
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise ConfigurationError(
                f"{type(scheduler).__name__} needs a metric at each step; none is free of private records. Take a "
                "scheduler that depends on the step alone."
            )
        for _ in range(steps):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()


class Updater:
    """Applies estimates to a parameter vector; holds the velocity and the average, if there are any."""

    def __init__(self, update: Update, parameters: ParameterVector, *, lr: float, steps: int) -> None:
        self._update = update
        self._parameters = parameters
        self._rates = update.rates(lr, steps)
        self._velocity: Tensor | None = None
        self._average: Tensor | None = None
        self._finished = False
        self._weight = 0.0

    def rate(self, step: int) -> float:
        """The learning rate of step number ``step`` (from 0)."""
        return self._rates[step]

    def apply(self, estimate: Estimate, step: int) -> None:
        """Take step number ``step`` (from 0)."""
        rate = self.rate(step)
        if self._update.weight_decay and rate:
            self._parameters.add_vector_(self._parameters.copy(), -rate * self._update.weight_decay)
        if self._update.momentum:
            vector = estimate.dense()
            self._velocity = (
                vector.clone() if self._velocity is None else self._velocity.mul_(self._update.momentum).add_(vector)
            )
            self._parameters.add_vector_(self._velocity, -rate)
        else:
            estimate.add_to(self._parameters, -rate)
        if self._update.averaging is not None:
            self._follow(self._update.averaging)

    def _follow(self, decay: float) -> None:
        """The bias-corrected exponential average: its weights sum to one from the first step on."""
        self._weight = decay * self._weight + (1 - decay)
        current = self._parameters.copy()
        if self._average is None:
            self._average = current
        else:
            self._average.lerp_(current, (1 - decay) / self._weight)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the parameters are the average of the iterates; afterwards the iterate is back."""
        if self._average is None or self._finished:
            yield
            return
        iterate = self._parameters.copy()
        self._parameters.copy_(self._average)
        try:
            yield
        finally:
            self._parameters.copy_(iterate)

    def finish(self) -> None:
        """Leave the average in the model, where one is kept. Once: what the user makes of the model later stays."""
        if self._average is not None and not self._finished:
            self._parameters.copy_(self._average)
        self._finished = True
