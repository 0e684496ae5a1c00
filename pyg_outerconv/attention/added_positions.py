"""Encodings of positions that are added to features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn import Parameter

from ..equations import row
from ..errors import RefusedIndex, RefusedValue
from ..graph.checks import check_dense, check_positive, holds
from ..graph.positions import as_coordinates, as_whole
from ..signatures import typed


class AddedPositions(torch.nn.Module, ABC):
    """X plus a vector for the position of each node: ``x + encode(position)``.

    Subclasses define :meth:`encode`.

    Args:
        channels: P.
        axes: D, the number of coordinates of a position.
    """

    def __init__(self, channels: int, axes: int) -> None:
        super().__init__()
        self.channels, self.axes = channels, axes

    @abstractmethod
    def encode(self, position: Tensor, dtype: torch.dtype) -> Tensor:
        """The encodings (n, P) of positions (n, D), in ``dtype``."""

    def places(self, count: int, device: torch.device) -> Tensor:
        """Default positions (n, 1) of ``count`` nodes, 0, 1, 2, …; ValueError on several axes."""
        if self.axes > 1:
            raise RefusedValue(
                "positions on several axes must be given", f"(n, {self.axes})", "None"
            )
        return torch.arange(count, device=device).unsqueeze(1)

    def forward(self, x: Tensor, position: Tensor | None = None) -> Tensor:
        r"""The features plus the encodings of the positions, (\*batch, n, P) in the dtype of x.

        Args:
            x: (\*batch, n, P).
            position: (n,) or (n, D), shared by the batch; None for the defaults of :meth:`places`.

        Raises:
            TypeError: positions are not numbers, or features no dense floating point ones.
            ValueError: shapes do not fit.
        """
        check_dense("positions are added to features of as many channels", x, self.channels, 2)
        if position is None:
            coordinates = self.places(x.size(-2), x.device)
        else:
            coordinates = as_coordinates(position, self.axes)
        if len(coordinates) != x.size(-2):
            raise RefusedValue("each node has one position", x.size(-2), len(coordinates))
        return x + self.encode(coordinates, x.dtype)


_SPREAD = 0.02  # the usual standard deviation of such tables in transformers


@row("Positions", "a table to X, of any axes", "Dosovitskiy et al., *ViT* (2010.11929), equation 1")
class LearnedPositions(AddedPositions):
    r"""X plus a learned vector for the place of each node.

    .. math:: Y_n = X_n + W[p_n] \qquad\text{or}\qquad Y_n = X_n + \sum_d W_d[p_{n,d}]

    Section 3.5 of `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ compares such
    tables with sinusoids; on grids, a table of all cells is that of `"An Image is Worth 16x16
    Words" <https://arxiv.org/abs/2010.11929>`_ (equation 1; appendix D.4 has sums over axes).

    Without positions, nodes are at 0, 1, 2, … of a sequence, which may be shorter than the table,
    or are all cells of the grid, the last axis running fastest.

    Args:
        shape: the number of places, or of cells on each axis.
        channels: P.
        separable: whether the table is a sum of one table for each axis, with M_1 + … + M_D
            vectors instead of M_1 · … · M_D.

    Attributes:
        weight: (M_1·…·M_D, P), or (M_1 + … + M_D, P), one axis after another.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is not positive, or ``shape`` is empty.

    >>> LearnedPositions((4, 6), 8, separable=True).weight.shape
    torch.Size([10, 8])
    """

    @typed
    def __init__(self, shape: int | Sequence[int], channels: int, separable: bool = False) -> None:
        sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        if not sizes:
            raise RefusedValue("places are on an axis", "one number or more", sizes)
        for size in sizes:
            check_positive("a table of positions", shape=size)
        check_positive("a table of positions", channels=channels)
        super().__init__(channels, len(sizes))
        self.shape, self.separable = sizes, separable
        rows = sum(sizes) if separable else prod(sizes)
        self.weight = Parameter(torch.empty(rows, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors from a normal law of standard deviation 0.02."""
        torch.nn.init.normal_(self.weight, std=_SPREAD)

    def places(self, count: int, device: torch.device) -> Tensor:
        """Default positions (n, D): 0, 1, 2, … on one axis, all cells of the grid on several."""
        if self.axes == 1:
            return super().places(count, device)
        if count != prod(self.shape):
            rule = "nodes without positions are all cells of the grid"
            raise RefusedValue(rule, f"{prod(self.shape)} nodes for {self.shape}", count)
        ranges = (torch.arange(size, device=device) for size in self.shape)
        return torch.cartesian_prod(*ranges)

    def encode(self, position: Tensor, dtype: torch.dtype) -> Tensor:
        """The vectors (n, P) of positions (n, D), in ``dtype``.

        Raises:
            IndexError: a position is outside the table.
            ValueError: a position is not a whole number.
        """
        place = as_whole(position)
        sizes = torch.tensor(self.shape, device=place.device)
        inside = (place >= 0) & (place < sizes)
        if not torch.compiler.is_compiling() and not holds(inside.all()):
            wrong = place[~inside.all(1)][0].tolist()
            raise RefusedIndex("positions are in the table", f"0 <= position < {self.shape}", wrong)
        if self.separable:
            return self.weight[place + (sizes.cumsum(0) - sizes)].sum(1).to(dtype)
        return self.weight.index_select(0, numbered(place, self.shape)).to(dtype)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.shape}, {self.channels}{', separable=True' if self.separable else ''}"


def numbered(place: Tensor, shape: Sequence[int]) -> Tensor:
    """Row numbers (n,) of places (n, D) in a table of ``shape``, the last axis running fastest."""
    number = place[:, 0]
    for axis in range(1, len(shape)):
        number = number * shape[axis] + place[:, axis]
    return number
