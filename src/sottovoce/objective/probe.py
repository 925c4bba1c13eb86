"""What can be learnt of a loss before any private record is touched, from one public record.

The guarantee rests on one property of the user's code: the loss of a record depends on that record alone. It is
measured here, bit for bit, in several companies at the batch shape that private records will have.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]

from sottovoce.objective.caller import warn_caller
from sottovoce.objective.companies import bits, compare_companies
from sottovoce.objective.evaluation import evaluating, from_seed
from sottovoce.objective.gradients import Engine
from sottovoce.objective.hints import how_losses_are_called, how_types_agree, short
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import Tree, leaves_of, move, repeat
from sottovoce.objective.remnants import refuse_changed_state, refuse_memory
from sottovoce.objective.strategies import ObjectiveWarning, choose
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import ConfigurationError, QueryError

_TIMED_RUNS = 5


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """What the probe found; all of it is public.

    Attributes:
        batch_size: the batch shape that was probed.
        strategy: the strategy in use, after a fall-back.
        gradient_engine: how per-example gradients are computed; None if they were not asked for.
        row_position_rounding: whether a record's loss is rounded differently in another slot of the batch.
        random: whether the same records give other losses another time.
        companies: the made-up records among which the example was evaluated.
        seconds_per_evaluation: the median time of the losses of one batch.
    """

    batch_size: int
    strategy: Literal["fast", "lean"]
    gradient_engine: Engine | None
    row_position_rounding: bool
    random: bool
    companies: tuple[str, ...]
    seconds_per_evaluation: float


def probe(
    objective: ModuleObjective, example: Tree, batch_size: int, *, gradients: bool = False, stands_in: bool = False
) -> ProbeReport:
    """Run the loss on copies and variations of one public record, and refuse what would break the guarantee.

    Args:
        objective: the model and its loss.
        example: one public record, without a batch dimension.
        batch_size: the shape of the private micro-batches; what a kernel rounds depends on it.
        gradients: whether to examine per-example gradients as well.
        stands_in: whether the example is a record of zeros in the place of one that was not given.

    Raises:
        QueryError: the loss raises, has a wrong shape or type, is not finite, mixes records, or changes the model's
            state.
    """
    if batch_size < 1:
        raise ConfigurationError(f"batch_size={batch_size} was given; at least 1 is needed.")
    example = move(example, objective.parameters.device)
    copies = repeat(example, batch_size)
    _run_on_example(objective, repeat(example, max(2, batch_size)))  # with one row a mean looks like a value
    _refuse_batch_statistics(objective.module)
    _warn_of_untouched_statistics(objective.module)
    refuse_memory(objective, example, batch_size)
    refuse_changed_state(objective, example, batch_size)
    _refuse_losses_that_are_not_finite(objective, example, stands_in=stands_in)
    random = _is_random(objective, example, batch_size)
    companies = compare_companies(
        objective.losses_from_seed, objective, [example, *_others(objective, example)], None, batch_size
    )
    _settle_strategy(objective, example)
    _warn_if_parameters_do_nothing(objective, example)
    engine: Engine | None = None
    if gradients:
        engine = objective.gradient_engine(example)
        # The losses are known to be apart by now; this finds an engine that mixes what they keep apart.
        compare_companies(_seeded_gradients(objective), objective, [example], ("noise", "NaN"), batch_size)
    return ProbeReport(
        batch_size=batch_size,
        strategy=objective.strategy,
        gradient_engine=engine,
        row_position_rounding=_position_matters(objective, example, batch_size),
        random=random,
        companies=companies,
        seconds_per_evaluation=_seconds(objective, copies),
    )


def _run_on_example(objective: ModuleObjective, records: Tree) -> None:
    try:
        objective.losses_from_seed(records)
    except QueryError:
        raise
    except Exception as error:
        forms = ", ".join(f"{short(leaf.dtype)}{list(leaf.shape)}" for leaf in leaves_of(records))
        raise QueryError(
            f"the loss raised {type(error).__name__} on the public example, in a batch of {forms}: {error}"
            + (how_losses_are_called(objective.loss) or how_types_agree(objective, records))
        ) from error


def _refuse_losses_that_are_not_finite(objective: ModuleObjective, example: Tree, *, stands_in: bool) -> None:
    """A loss that is infinite or NaN wherever one looks would cost the whole budget and teach nothing."""
    if math.isfinite(value := _largest(objective, example)):
        return
    given = "NaN" if math.isnan(value) else f"{value}"
    if not stands_in:
        raise QueryError(f"the loss of the public example is {given}: {_NOTHING_TO_LEARN}")
    if not any(math.isfinite(_largest(objective, record)) for record in variants(example).values()):
        raise QueryError(
            f"the loss of a record of zeros is {given}, and no made-up one's is finite: {_NOTHING_TO_LEARN}"
        )
    warn_caller(
        f"the loss of a record of zeros is {given}. It stands for a public example, on which everything is checked and "
        "with which batches are padded: give a typical public record as example=.",
        ObjectiveWarning,
    )


_NOTHING_TO_LEARN = (
    "such records count as zero, so this run would spend its budget on noise; check the model's values, its type "
    "(float16?), log(0), division by zero."
)


def _largest(objective: ModuleObjective, record: Tree) -> float:
    """The record's loss in a batch of copies; NaN also if the model does not take it."""
    try:
        return float(objective.losses_from_seed(repeat(record, 2)).max())
    except Exception:
        return math.nan


def _refuse_batch_statistics(module: nn.Module) -> None:
    with evaluating(module):
        for name, part in module.named_modules():
            # Without running statistics, batch normalisation uses the batch's own even in evaluation mode.
            if isinstance(part, _BatchNorm) and (part.training or part.running_mean is None):
                raise QueryError(
                    f"the module {name!r} ({type(part).__name__}) computes with the statistics of the batch even in "
                    "evaluation mode, so an example's loss depends on the other examples. Use GroupNorm or "
                    "LayerNorm, or running statistics from public data."
                )


def _warn_of_untouched_statistics(module: nn.Module) -> None:
    untouched = [
        name
        for name, part in module.named_modules()
        if isinstance(part, _BatchNorm)
        and part.num_batches_tracked is not None
        and part.running_mean is not None
        and part.running_var is not None
        and not bool(part.num_batches_tracked)
        and not bool(part.running_mean.any())
        and bool((part.running_var == 1).all())
    ]
    if untouched:
        warn_caller(
            f"the running statistics of {', '.join(map(repr, untouched[:3]))} (batch normalisation) are those it was "
            "made with, and nothing here updates them: in evaluation mode, which is used, they normalise nothing. "
            "Use GroupNorm or LayerNorm, or run the model in training mode on public data first.",
            ObjectiveWarning,
        )


def _is_random(objective: ModuleObjective, example: Tree, size: int) -> bool:
    """Tried on made-up records too: what multiplies the inputs does not show on an example of zeros."""
    if not any(_differs_by_seed(objective, repeat(record, size)) for record in (example, *variants(example).values())):
        return False
    with evaluating(objective.module):
        active = [
            name for name, part in objective.module.named_modules() if isinstance(part, _DropoutNd) and part.training
        ]
    warn_caller(
        "the loss is random: the same records give other losses another time"
        + (f" (dropout is active in {', '.join(active)})" if active else "")
        + ". Differences of losses are then mostly noise; make it a function of the record.",
        ObjectiveWarning,
    )
    return True


def _differs_by_seed(objective: ModuleObjective, records: Tree) -> bool:
    try:
        runs = [bits(objective.losses_from_seed(records, seed)) for seed in (3, 4, 5)]
    except Exception:  # the model does not take these made-up values
        return False
    return not all(torch.equal(run, runs[0]) for run in runs[1:])


def _others(objective: ModuleObjective, example: Tree) -> list[Tree]:
    """Made-up records that the model takes: what scales with the batch leaves an example of zeros at zero."""
    made = variants(example)
    names = [name for name in ("noise", "ones", "padding") if name in made]
    return [made[name] for name in names if math.isfinite(_largest(objective, made[name]))]


def _seeded_gradients(objective: ModuleObjective) -> Callable[[Tree], Tensor]:
    def evaluate(records: Tree) -> Tensor:
        with from_seed(objective.parameters.device):
            return objective.gradients(records)

    return evaluate


def _position_matters(objective: ModuleObjective, example: Tree, size: int) -> bool:
    losses = bits(objective.losses_from_seed(repeat(example, size)))
    return not torch.equal(losses, losses[:1].expand(size))


class _Ripple:
    """A fixed direction, no coordinate of which is zero, to see what a step does; each phase gives another."""

    count = 1

    def __init__(self, objective: ModuleObjective, phase: float = 0.0) -> None:
        self.numel = objective.parameters.numel()
        self._phase = phase
        self._sizes = objective.parameters.layout.sizes
        self._names = objective.parameters.layout.names

    def block(self, query: int, name: str, start: int, stop: int) -> Tensor:
        """A wave along the parameter."""
        return torch.sin(self._phase + torch.arange(start + 1, stop + 1, dtype=torch.float64)).float()

    def vector(self, query: int) -> Tensor:
        """The waves of all parameters."""
        return torch.cat([self.block(0, name, 0, size) for name, size in zip(self._names, self._sizes, strict=True)])


def _settle_strategy(objective: ModuleObjective, example: Tree) -> None:
    """Fall back to the fast strategy if the lean one misses a parameter, or computes anything else than it."""
    if objective.strategy == "fast":
        return
    objective.check_lean(example)
    # The comparison needs the fast strategy's memory: it is made where that is affordable.
    if objective.strategy == "lean" and choose("auto", objective.parameters) == "fast":
        objective.compare_with_fast(_Ripple(objective), repeat(example, 2))


_STEPS = [(phase, scale) for scale in (0.1, 1.0, 10.0, 100.0) for phase in range(6)]
"""Where a loss is looked at: near x first, then far away in several directions, where a loss of steps changes too."""


def _warn_if_parameters_do_nothing(objective: ModuleObjective, example: Tree) -> None:
    batches = [repeat(record, 2) for record in (example, *variants(example).values())]
    for phase, scale in _STEPS:
        direction = _Ripple(objective, phase)
        for batch in batches:
            try:
                here, there = objective.losses(batch), objective.losses_along(batch, direction, 0, scale)
            except Exception:  # the model does not take these made-up values
                continue
            if not torch.equal(bits(here), bits(there)):
                return
    warn_caller(
        "on made-up records the loss does not change when the model's trainable parameters do, near or far: does it "
        "use the model that it is given? (A loss that is nearly everywhere constant can look like this.)",
        ObjectiveWarning,
    )


def _seconds(objective: ModuleObjective, records: Tree) -> float:
    times: list[float] = []
    for _ in range(_TIMED_RUNS):
        start = time.perf_counter()
        objective.losses(records).cpu()  # waits for an accelerator
        times.append(time.perf_counter() - start)
    return statistics.median(times)
