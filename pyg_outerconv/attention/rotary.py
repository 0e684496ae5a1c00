"""Rotary positions: queries and keys rotated by angles proportional to their positions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..equations import row
from ..errors import RefusedValue, refusal
from ..graph.positions import as_coordinates, exact_type
from .angles import angles, check_frequencies


@row(
    "Positions",
    "rotates queries and keys by their positions",
    "Su et al., *RoFormer* (2104.09864), equation 34",
    option="`KeyQuery(…, rotary=Rotary(…))`",
)
class Rotary(torch.nn.Module):
    r"""A rotation of each pair of channels by the node's position times the pair's frequency.

    .. math::
        \begin{pmatrix} y_{2i} \\ y_{2i+1} \end{pmatrix} =
        \begin{pmatrix} \cos p\theta_i & -\sin p\theta_i \\ \sin p\theta_i & \cos p\theta_i
        \end{pmatrix} \begin{pmatrix} x_{2i} \\ x_{2i+1} \end{pmatrix},
        \qquad \theta_i = b^{-2i/D}

    Equations 15 and 34 of `"RoFormer: Enhanced Transformer with Rotary Position Embedding"
    <https://arxiv.org/abs/2104.09864>`_, whose pairs count from 1. The inner product of a rotated
    query and a rotated key depends on their relative position alone: ⟨R_n q, R_m k⟩ =
    ⟨q, R_{m−n} k⟩. Only nodes are rotated, so no tensor of edges is needed. It has no parameters.

    Each of several axes rotates an equal share of the channels, the first axis the first share.

    Args:
        channels: D, the channels of one head; a multiple of 2·axes.
        base: b.
        axes: the number of coordinates of a position.
        interleaved: whether pairs are neighbouring channels, as in the paper; otherwise channel i
            of the C channels of an axis is paired with i + C/2, as in many pre-trained models.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: ``channels`` is not a multiple of 2·axes, or a number is not positive.

    >>> turn = Rotary(channels=2)
    >>> turn(torch.tensor([[[1.0, 0.0]]]), torch.tensor([0.0])).tolist()
    [[[1.0, 0.0]]]
    """

    def __init__(
        self, channels: int, base: float = 10000.0, axes: int = 1, interleaved: bool = True
    ) -> None:
        super().__init__()
        check_frequencies(channels, base, axes)
        self.channels, self.base, self.axes = channels, base, axes
        self.interleaved = interleaved

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        r"""The rotated vectors.

        Args:
            x: (nodes, \*batch, heads, D) queries or keys, or (nodes, \*, D).
            position: (nodes, axes), or (nodes,) on one axis. It may carry gradients. Angles are
                computed in float32 at least, then rounded to the dtype of x.

        Returns:
            A tensor of the shape and the dtype of x.

        Raises:
            TypeError: positions are not numbers.
            ValueError: shapes do not fit.
        """
        coordinates = as_coordinates(position, self.axes)
        if x.dim() < 2 or x.size(-1) != self.channels or x.size(0) != len(coordinates):
            raise RefusedValue(
                refusal(
                    "rotary positions rotate a vector of each node and head",
                    f"({len(coordinates)}, *, {self.channels})",
                    tuple(x.shape),
                )
            )
        exact = coordinates.to(exact_type(coordinates.dtype, x.dtype))
        angle = angles(exact, self.channels, self.base)
        angle = angle.view(len(x), *(1,) * (x.dim() - 2), *angle.shape[1:])
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        count = self.channels // (2 * self.axes)
        pair = -1 if self.interleaved else -2
        form = (self.axes, count, 2) if self.interleaved else (self.axes, 2, count)
        first, second = x.unflatten(-1, form).unbind(pair)
        rotated = first * cos - second * sin, first * sin + second * cos
        return torch.stack(rotated, dim=pair).flatten(-3)

    def extra_repr(self) -> str:
        """The options."""
        layout = "" if self.interleaved else ", interleaved=False"
        return f"{self.channels}, base={self.base:g}, axes={self.axes}{layout}"
