"""What a setting is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from sottovoce.objective.loss import Loss
from sottovoce.objective.records import Tree

Examples = tuple[Tensor, Tensor]
"""Inputs and targets, on the CPU, one row for each record."""

Grid = tuple[Mapping[str, Any], ...]
"""The arguments of a method at each point that is tried."""


@dataclass(frozen=True)
class Setting:
    """A learning task: its data in four parts that share no record, its model, and how long to train.

    Attributes:
        name: the name that :func:`~sottovoce.tasks.settings.load` knows.
        title: for people.
        paper: what it is in the paper of PAZO (Gong and Li 2025), or what it stands in for and why.
        private: the records to be protected.
        public: records that everybody may see.
        validation: for the choice of hyper-parameters, and for nothing else.
        test: for what is reported.
        make_model: from a seed to a fresh model; its initial parameters depend on the seed alone, and no example's
            output depends on another example.
        loss: one value for each record.
        example: one public record.
        steps: the steps of a run, far fewer than the paper's.
        batch_size: the expected private records in a step.
        grids: by the name of a method's class, at most six points to choose from on the validation part.
    """

    name: str
    title: str
    paper: str
    private: Tree = field(repr=False)
    public: Tree = field(repr=False)
    validation: Tree = field(repr=False)
    test: Tree = field(repr=False)
    make_model: Callable[[int], nn.Module] = field(repr=False)
    loss: Loss = field(repr=False)
    example: Tree | None = field(repr=False)
    steps: int
    batch_size: int
    grids: Mapping[str, Grid] = field(repr=False)
