"""Skip: what a layer adds to its input, normalised before or after."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Dropout, LayerNorm

from ..checks import check_share


class Skip(torch.nn.Module):
    """norm(X + dropout(f(X))), or X + dropout(f(norm(X))) with the norm first.

    The first is that of the `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ paper
    (section 3.1), the second its pre-norm form, of the `"On Layer Normalization in the Transformer
    Architecture" <https://arxiv.org/abs/2002.04745>`_ paper (section 3.2).

    Args:
        channels: of X.
        dropout: the share of what f gives that is dropped in training.
        norm_first: whether f sees normalised features.
        eps: added to variances.
        bias: whether the norm has one.

    Raises:
        ValueError: the share is out of range.
        TypeError: it is no number.
    """

    def __init__(
        self,
        channels: int,
        dropout: float = 0.0,
        norm_first: bool = False,
        eps: float = 1e-5,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_share("dropout", dropout)
        self.norm, self.dropout = LayerNorm(channels, eps, bias=bias), Dropout(dropout)
        self.norm_first = norm_first

    def reset_parameters(self) -> None:
        """Give all parameters initial values."""
        self.norm.reset_parameters()

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The skip around a function of x."""
        if self.norm_first:
            return x + self.dropout(function(self.norm(x)))  # type: ignore[no-any-return]
        return self.norm(x + self.dropout(function(x)))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Where the norm is."""
        return f"norm_first={self.norm_first}"
