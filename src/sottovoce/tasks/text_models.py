"""Built-in models for sequences of words, each a fixed number of public word numbers with 0 for padding."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sottovoce.tasks.drawing import drawn
from sottovoce.tasks.dropout import dropout as dropout_layer
from sottovoce.tasks.naming import require_counts


def lstm(
    *,
    vocabulary: int,
    classes: int,
    seed: int = 0,
    embedding: int = 64,
    hidden: int = 64,
    dropout: float = 0.2,
    always_dropout: bool = False,
) -> nn.Module:
    """An :class:`LSTMClassifier` whose parameters depend on ``seed`` alone.

    Args:
        vocabulary: word numbers are 0 (padding) to ``vocabulary - 1``.
        classes: the number of logits.
        seed: may be published.
        embedding: the length of a word's vector.
        hidden: the length of the state.
        dropout: the rate before the last layer, in training mode only.
        always_dropout: in evaluation mode too; a control, see :class:`~sottovoce.tasks.dropout.AlwaysDropout`.
    """
    require_counts(vocabulary=vocabulary, classes=classes, embedding=embedding, hidden=hidden)
    return drawn(
        seed,
        lambda: LSTMClassifier(vocabulary, classes, embedding, hidden, dropout_layer(dropout, always=always_dropout)),
    )


class LSTMClassifier(nn.Module):
    """Word vectors, one LSTM layer, the mean of its states over the words, dropout, one linear layer.

    ``[B, length]`` word numbers give ``[B, classes]`` logits. A row of padding alone has a mean of zero. Examples are
    kept apart, and ``torch.func`` can differentiate each by itself.
    """

    def __init__(self, vocabulary: int, classes: int, embedding: int, hidden: int, dropout: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.recurrence = LSTM(embedding, hidden)
        self.dropout = dropout
        self.head = nn.Linear(hidden, classes)

    def forward(self, words: Tensor) -> Tensor:
        """The logits."""
        states = self.recurrence(self.embedding(words))
        present = (words != 0).unsqueeze(-1).to(states.dtype)
        mean = (states * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)
        return self.head(self.dropout(mean))


class LSTM(nn.Module):
    """One layer of long short-term memory: ``[B, length, inputs]`` to the states ``[B, length, hidden]``.

    Without gradients it runs torch's fused kernel. With gradients it is written out, as the kernel cannot be mapped
    over examples by ``torch.func``.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        bound = 1 / math.sqrt(hidden)
        self.weight_inputs = nn.Parameter(torch.empty(4 * hidden, inputs).uniform_(-bound, bound))
        self.weight_states = nn.Parameter(torch.empty(4 * hidden, hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(4 * hidden).uniform_(-bound, bound))

    def forward(self, inputs: Tensor) -> Tensor:
        """The state after each input."""
        if torch.is_grad_enabled():
            gates = nn.functional.linear(inputs, self.weight_inputs, self.bias)
            return _Recurrence.apply(gates, self.weight_states)[0]  # pyright: ignore[reportOptionalSubscript]
        start = inputs.new_zeros(1, len(inputs), self.hidden)
        weights = [self.weight_inputs, self.weight_states, self.bias, torch.zeros_like(self.bias)]
        return torch.lstm(inputs, (start, start), weights, True, 1, 0.0, False, False, True)[0]


class _Recurrence(torch.autograd.Function):
    """The states of an LSTM from the inputs' share of the gates; weights' gradients as one product over all times.

    Differentiated step by step, every step would add an outer product as large as the weights, for every example.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(gates: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States, cells and activated gates, each ``[..., length, size]``."""
        hidden = weight.shape[1]
        state = gates[..., 0, :hidden] * 0
        cell = state
        states: list[Tensor] = []
        cells: list[Tensor] = []
        active: list[Tensor] = []
        for time in range(gates.shape[-2]):
            raw = gates[..., time, :] + state @ weight.T
            squashed = torch.sigmoid(raw)
            candidate = torch.tanh(raw[..., 2 * hidden : 3 * hidden])
            keep, let = squashed[..., hidden : 2 * hidden], squashed[..., :hidden]
            show = squashed[..., 3 * hidden :]
            cell = keep * cell + let * candidate
            state = show * torch.tanh(cell)
            states.append(state)
            cells.append(cell)
            active.append(torch.cat([squashed[..., : 2 * hidden], candidate, show], dim=-1))
        return torch.stack(states, dim=-2), torch.stack(cells, dim=-2), torch.stack(active, dim=-2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the backward pass needs."""
        states, cells, active = output
        ctx.mark_non_differentiable(cells, active)
        ctx.save_for_backward(inputs[1], states, cells, active)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Back through time for the gates, then one product for the weights."""
        weight, states, cells, active = ctx.saved_tensors
        wanted = gradients[0]
        hidden = weight.shape[1]
        let, keep, candidate, show = active.split(hidden, dim=-1)
        bent = torch.tanh(cells)
        before = torch.cat([torch.zeros_like(cells[..., :1, :]), cells[..., :-1, :]], dim=-2)
        earlier = torch.cat([torch.zeros_like(states[..., :1, :]), states[..., :-1, :]], dim=-2)
        through = show * (1 - bent * bent)
        slope_let = candidate * let * (1 - let)
        slope_keep = before * keep * (1 - keep)
        slope_candidate = let * (1 - candidate * candidate)
        slope_show = bent * show * (1 - show)
        of_cell = torch.zeros_like(cells[..., 0, :])
        of_state = torch.zeros_like(of_cell)
        found: list[Tensor] = []
        for time in reversed(range(states.shape[-2])):
            of_state = of_state + wanted[..., time, :]
            of_cell = of_cell + of_state * through[..., time, :]
            delta = torch.cat(
                [
                    of_cell * slope_let[..., time, :],
                    of_cell * slope_keep[..., time, :],
                    of_cell * slope_candidate[..., time, :],
                    of_state * slope_show[..., time, :],
                ],
                dim=-1,
            )
            found.append(delta)
            of_state = delta @ weight
            of_cell = of_cell * keep[..., time, :]
        of_gates = torch.stack(found[::-1], dim=-2)
        return of_gates, of_gates.flatten(0, -2).T @ earlier.flatten(0, -2)
