"""Dropout that an option turns on, and for a control experiment keeps on where others turn it off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn import functional

from sottovoce.privacy.errors import ConfigurationError


class AlwaysDropout(nn.Dropout):
    """Dropout in evaluation mode too, so in every query, with a new mask each time.

    Published code of PAZO takes its zeroth-order differences so: both losses of a difference have their own masks, and
    the jitter between them, divided by the smoothing, is taken for a slope. This is the control that shows what that
    does; nothing else should use it.

    Attributes:
        on: whether it drops anything; see :func:`switched_off`.
    """

    on: bool = True

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with a fresh mask."""
        return functional.dropout(input, self.p, training=self.on)


@contextmanager
def switched_off(model: nn.Module) -> Iterator[None]:
    """No dropout inside by `AlwaysDropout` either, so that what is measured is the model that training led to.

    With it, the jitter in the slopes and the noise of a thinner network would be one effect.
    """
    running = [part for part in model.modules() if isinstance(part, AlwaysDropout) and part.on]
    try:
        for part in running:
            part.on = False
        yield
    finally:
        for part in running:
            part.on = True


def dropout(rate: float, *, always: bool = False) -> nn.Module:
    """A dropout layer, or nothing at rate 0. Without ``always`` it does nothing in queries, which are evaluations."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise ConfigurationError(f"dropout={rate!r}: a rate in [0, 1) is needed.")
    if rate == 0:
        if always:
            raise ConfigurationError("always_dropout=True and dropout=0: give a rate, such as dropout=0.2.")
        return nn.Identity()
    return AlwaysDropout(rate) if always else nn.Dropout(rate)
