"""The feed-forward part of a Transformer's blocks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Dropout, Linear

from ...errors import RefusedType, RefusedValue, refusal, unknown
from ...graph.checks import check_positive
from ..checks import check_share

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


class FeedForward(torch.nn.Module):
    """Y = dropout(σ(X W_1 + b_1)) W_2 + b_2, for each node on its own.

    From the `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ paper, section 3.3.

    Args:
        channels: of input and output.
        hidden: of the layer between; four times as many if None.
        activation: σ: ``'relu'``, ``'gelu'``, ``'silu'`` or a function.
        dropout: the share of hidden values that are dropped in training.
        bias: whether both maps have one.

    Raises:
        ValueError: a number is out of range, or the activation unknown.
        TypeError: the activation is no function, or an option has another type.
    """

    def __init__(
        self,
        channels: int,
        hidden: int | None = None,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive("a feed-forward part", channels=channels)
        hidden = 4 * channels if hidden is None else hidden
        check_positive("a feed-forward part", hidden=hidden)
        check_share("dropout", dropout)
        if isinstance(activation, str):
            if activation not in ACTIVATIONS:
                raise RefusedValue(unknown("activation", activation, ACTIVATIONS))
            activation = ACTIVATIONS[activation]
        if not callable(activation):
            raise RefusedType(refusal("an activation is a function", "callable", activation))
        self.activation = activation
        self.first, self.second = Linear(channels, hidden, bias), Linear(hidden, channels, bias)
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Give all parameters initial values."""
        self.first.reset_parameters()
        self.second.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """(*, channels) to (*, channels)."""
        return self.second(self.dropout(self.activation(self.first(x))))  # type: ignore[no-any-return]
