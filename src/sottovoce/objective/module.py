"""A torch module with a per-example loss: losses at x, losses near x, gradients. The only code that runs the model."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from sottovoce.objective import gradients as engines
from sottovoce.objective.caller import warn_caller
from sottovoce.objective.directions import Directions
from sottovoce.objective.evaluation import evaluating, from_seed
from sottovoce.objective.gradients import Engine
from sottovoce.objective.loss import Loss, checked_losses
from sottovoce.objective.parameters import ParameterVector
from sottovoce.objective.records import Tree, batch_size, move, repeat, zeros_like_one
from sottovoce.objective.replay import Replay
from sottovoce.objective.strategies import (
    FastPerturbation,
    LeanPerturbation,
    ObjectiveWarning,
    Perturbation,
    Strategy,
    choose,
    runs_compiled,
)
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import ConfigurationError

_SEED = 3
"""Checks that evaluate twice do so from one public seed, so that a random loss can be compared with itself."""


class ModuleObjective:
    """A model and a loss that gives one value per record.

    In every query the model is in evaluation mode, TF32 and cuDNN's benchmarking are off, and afterwards
    parameters, training flags and precision settings are what they were, also if the loss raises.

    Args:
        module: the model; its parameters with ``requires_grad`` are the vector x.
        loss: ``loss(model, batch) -> Tensor[B]``, where batch is a tree of tensors of leading dimension B.
        strategy: ``"fast"``, ``"lean"``, or ``"auto"`` (fast unless its copies exceed a gigabyte).
        example: one public record, without a batch dimension, for every automatic choice; without one, a
            record of zeros of the records' shape and type is used.
    """

    def __init__(
        self, module: nn.Module, loss: Loss, *, strategy: Strategy = "auto", example: Tree | None = None
    ) -> None:
        if not isinstance(module, nn.Module):
            raise ConfigurationError(f"the model is a {type(module).__name__}; a torch.nn.Module is needed.")
        if not callable(loss):
            raise ConfigurationError(
                f"the loss is a {type(loss).__name__}; a function loss(model, batch) -> Tensor[B] is needed."
            )
        if strategy not in ("auto", "fast", "lean"):
            raise ConfigurationError(f"strategy={strategy!r} is not one of 'auto', 'fast', 'lean'.")
        self.module = module
        self.loss = loss
        self.example = example
        self.parameters = ParameterVector(module)
        self._perturbation: Perturbation
        self._lean_checked = True
        self._engine: Engine | None = None
        self._use(choose(strategy, self.parameters))

    def __repr__(self) -> str:
        return f"ModuleObjective({type(self.module).__name__}, d={self.parameters.numel()}, {self.strategy})"

    @property
    def strategy(self) -> Literal["fast", "lean"]:
        """The strategy in use."""
        return "fast" if isinstance(self._perturbation, FastPerturbation) else "lean"

    def _use(self, strategy: Literal["fast", "lean"]) -> None:
        layout = self.parameters.layout
        if strategy == "fast":
            self.parameters.replay = Replay(layout)
            self._perturbation = FastPerturbation(self.parameters)
        else:
            self.parameters.replay = Replay(layout, kept_bytes=0)
            self._perturbation = LeanPerturbation(self.module, self.parameters)
        self._lean_checked = strategy == "fast"

    def losses(self, records: Tree) -> Tensor:
        """The losses at x, float64, ``[B]``."""
        records = self._on_device(records)
        with evaluating(self.module, self.loss, trained=self.strategy == "fast"), torch.no_grad():
            return self._per_example(records)

    def losses_along(self, records: Tree, directions: Directions, query: int, scale: float) -> Tensor:
        """The losses at x + scale * direction ``query``, float64, ``[B]``; x keeps every bit, whatever happens."""
        self._check_direction(directions, query, scale)
        records = self._on_device(records)
        if not self._lean_checked:
            self.check_lean(self._example_for(records))
        with (
            evaluating(self.module, self.loss),
            torch.no_grad(),
            self._perturbation.at(directions, query, scale),
        ):
            return self._per_example(records)

    def gradients(self, records: Tree) -> Tensor:
        """The gradient of every record's loss at x, ``[B, d]``, in the parameters' type."""
        records = self._on_device(records)
        engine = self.gradient_engine(self._example_for(records))
        run = engines.by_vmap if engine == "vmap" else engines.by_loop
        with evaluating(self.module, self.loss, trained=True):
            return run(self.module, self.loss, self.parameters, records).detach()

    def mean_gradient(self, records: Tree) -> Tensor:
        """The gradient of the mean loss at x, ``[d]``, by plain back-propagation: for records that are public."""
        records = self._on_device(records)
        with evaluating(self.module, self.loss):
            return engines.of_sum(self.module, self.loss, self.parameters, records) / batch_size(records)

    def gradient_engine(self, example: Tree | None = None) -> Engine:
        """How per-example gradients are computed, chosen once, on the public example."""
        if self._engine is None:
            example = self.example if example is None else example
            if example is None:
                raise ConfigurationError("choosing the gradient engine needs an example= record.")
            example = move(example, self.parameters.device)
            with evaluating(self.module, self.loss):
                self._engine = engines.choose_engine(self.module, self.loss, self.parameters, example)
        return self._engine

    def check_smoothing(self, directions: Directions | float, smoothing: float) -> None:
        """Refuse a smoothing that rounding swallows: x + smoothing * u must differ from x in half the coordinates.

        Args:
            directions: the directions to be used, of which the first is tried, or their length |u|.
            smoothing: the step along a direction.
        """
        if not (math.isfinite(smoothing) and smoothing > 0):
            raise ConfigurationError(f"smoothing={smoothing} was given; a positive number is needed.")
        if isinstance(directions, int | float):
            share = self._share_at_length(float(directions), smoothing)
        else:
            self._check_direction(directions, 0, smoothing)
            share = self.parameters.share_changed(directions, 0, smoothing)
        if share < 0.5:
            kinds = " and ".join(str(dtype).removeprefix("torch.") for dtype in self.parameters.dtypes)
            raise ConfigurationError(
                f"smoothing={smoothing} changes only {share:.1%} of the {kinds} parameters, the rest is lost to "
                "rounding; use a larger smoothing (at least half must change), or float32 parameters."
            )

    def _share_at_length(self, length: float, smoothing: float) -> float:
        """As ``share_changed``, with normal coordinates of the size that directions of this length have."""
        generator = torch.Generator().manual_seed(_SEED)
        each = smoothing * length / math.sqrt(self.parameters.numel())
        changed = 0
        for parameter in self.parameters.named.values():
            own = parameter.detach()
            step = torch.randn(own.shape, generator=generator).mul_(each).to(own.device)
            changed += int(((own + step).to(own.dtype) != own).sum())
        return changed / self.parameters.numel()

    def check_lean(self, example: Tree) -> None:
        """Fall back to the fast strategy, with a warning, if the lean one would miss a parameter.

        Decided on the public example and on noise, by making parameters NaN outside their modules' forwards.
        """
        if not isinstance(self._perturbation, LeanPerturbation):
            return
        if any(runs_compiled(part) for part in self.module.modules()):
            self._fall_back("a compiled module may not call hooks")
            return
        outside: list[str] = []
        checked = False
        for record in [example, variants(example)["noise"]]:
            batch = repeat(move(record, self.parameters.device), 2)
            try:
                self.losses_from_seed(batch)
            except Exception:  # the model does not take this record; the probe reports errors on the example
                continue
            outside += self._perturbation.readers_outside(lambda batch=batch: self.losses_from_seed(batch))
            checked = True
        self._lean_checked = True
        if outside or not checked:
            names = list(dict.fromkeys(outside or self.parameters.layout.names))
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._fall_back(f"{', '.join(names[:3])}{more} are read outside the forward of the module that owns them")

    def compare_with_fast(self, directions: Directions, records: Tree) -> None:
        """Fall back to the fast strategy, with a warning, if the lean one gives other losses on public records."""
        found = self.losses_along(records, directions, 0, 0.01)
        if self.strategy == "lean":
            fast = FastPerturbation(self.parameters)
            with evaluating(self.module, self.loss), torch.no_grad(), fast.at(directions, 0, 0.01):
                expected = self._per_example(self._on_device(records))
            if not torch.equal(found.view(torch.int64), expected.view(torch.int64)):
                self._fall_back("it gives other losses than the fast one on the example")

    def _fall_back(self, reason: str) -> None:
        self._use("fast")
        warn_caller(
            f"the lean strategy cannot be used: {reason}. The fast strategy is used instead; it needs two more "
            "copies of the parameters.",
            ObjectiveWarning,
        )

    def losses_from_seed(self, records: Tree, seed: int = _SEED) -> Tensor:
        """The losses at x with torch's global random state set for the time, so that a random loss repeats."""
        with from_seed(self.parameters.device, seed):
            return self.losses(records)

    def _example_for(self, records: Tree) -> Tree:
        """The public example, or zeros of the records' shape and type: no value of theirs is read."""
        return zeros_like_one(records) if self.example is None else self.example

    def _on_device(self, records: Tree) -> Tree:
        return move(records, self.parameters.device)

    def _per_example(self, records: Tree) -> Tensor:
        return checked_losses(self.loss(self.module, records), batch_size(records)).detach().double()

    def _check_direction(self, directions: Directions, query: int, scale: float) -> None:
        if directions.numel != self.parameters.numel():
            raise ConfigurationError(
                f"the directions have length {directions.numel}, the model {self.parameters.numel()} trainable "
                "parameters: draw them for this objective's parameters.layout."
            )
        if not 0 <= query < directions.count:
            raise ConfigurationError(f"query {query} was asked for; there are {directions.count} directions.")
        if not math.isfinite(scale):
            raise ConfigurationError(f"a scale of {scale} was given; a finite number is needed.")
