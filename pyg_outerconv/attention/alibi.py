"""ALiBi: attention with linear biases, scores that fall with distance."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from ..equations import row
from ..graph.checks import check_positive
from ..graph.positions import exact_type
from .term import check_relative


@row(
    "Positions",
    "−slope_h \\|n − m\\|",
    "Press et al., *ALiBi* (2108.12409), section 3",
    option="`terms=(ALiBi(heads),)`",
)
class ALiBi(torch.nn.Module):
    r"""A term that falls linearly with distance, with a slope for each head.

    .. math:: b_h(m, n) = -s_h \sum_d |p_{m,d} - p_{n,d}|

    From section 3 of `"Train Short, Test Long: Attention with Linear Biases Enables Input Length
    Extrapolation" <https://arxiv.org/abs/2108.12409>`_, whose sequences are causal: its
    distance i − j is |p_m − p_n| here. On several axes the distances along the axes add up.

    Slopes are 2^(−8/H), 2^(−16/H), …, 2^(−8) where H is a power of two. For any other H they are,
    as in the paper's code, the slopes for the largest power of two G < H, then the first, third, …
    slope for 2·G.

    Args:
        heads: H.
        learned: whether the slopes are parameters, initialised with these numbers.

    Raises:
        TypeError: ``heads`` is not an integer.
        ValueError: ``heads`` is not positive.

    >>> ALiBi(heads=2)(torch.tensor([[-3.0]])).tolist()
    [[-0.1875, -0.01171875]]
    """

    def __init__(self, heads: int, learned: bool = False) -> None:
        super().__init__()
        check_positive("ALiBi", heads=heads)
        self.heads, self.learned = heads, learned
        self.slopes = Parameter(torch.empty(heads)) if learned else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to the paper's."""
        if self.slopes is not None:
            with torch.no_grad():
                self.slopes.copy_(slopes(self.heads, dtype=torch.float64))

    def forward(self, relative: Tensor) -> Tensor:
        """The terms (E, H) of relative positions (E, D).

        Raises:
            TypeError: they are not floating point.
            ValueError: their shape is not (E, D).
        """
        check_relative(relative)
        dtype = exact_type(relative.dtype)
        slope = slopes(self.heads, dtype, relative.device) if self.slopes is None else self.slopes
        term = -relative.to(dtype).abs().sum(1, keepdim=True) * slope
        return term if self.learned else term.to(relative.dtype)

    def extra_repr(self) -> str:
        """The options."""
        return f"heads={self.heads}{', learned=True' if self.learned else ''}"


def slopes(
    heads: int, dtype: torch.dtype | None = None, device: torch.device | None = None
) -> Tensor:
    """The slopes (H,) of the paper's code.

    >>> slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    power = 1 << (heads.bit_length() - 1)
    whole = torch.arange(1, power + 1, dtype=dtype, device=device)
    between = torch.arange(heads - power, dtype=dtype, device=device) + 0.5
    return torch.exp2(torch.cat([whole, between]) * (-8 / power))
