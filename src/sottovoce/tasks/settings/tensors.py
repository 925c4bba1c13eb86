"""Small handlings of examples."""

from __future__ import annotations

from sottovoce.tasks.settings.setting import Examples


def first(examples: Examples) -> Examples:
    """The first record, without the batch dimension, in memory of its own."""
    inputs, targets = examples
    return inputs[0].clone(), targets[0].clone()
