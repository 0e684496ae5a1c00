"""Base class of the encodings of positions that are added to features."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal
from ..graph.positions import as_coordinates


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
        """Default positions (n, D) of ``count`` nodes: 0, 1, 2, … on one axis.

        Raises:
            ValueError: there are several axes, on which positions must be passed.
        """
        if self.axes > 1:
            raise RefusedValue(
                refusal("positions on several axes must be given", f"(n, {self.axes})", "None")
            )
        return torch.arange(count, device=device).unsqueeze(1)

    def forward(self, x: Tensor, position: Tensor | None = None) -> Tensor:
        r"""The features plus the encodings of the positions.

        Args:
            x: (\*batch, n, P).
            position: (n,) or (n, D), shared by the batch; None for the defaults of :meth:`places`.

        Returns:
            (\*batch, n, P), in the dtype of x.

        Raises:
            TypeError: positions are not numbers.
            ValueError: shapes do not fit.
        """
        if x.dim() < 2 or x.size(-1) != self.channels:
            raise RefusedValue(
                refusal(
                    "positions are added to features of as many channels",
                    f"(*batch, n, {self.channels})",
                    tuple(x.shape),
                )
            )
        if position is None:
            coordinates = self.places(x.size(-2), x.device)
        else:
            coordinates = as_coordinates(position, self.axes)
        if len(coordinates) != x.size(-2):
            raise RefusedValue(refusal("each node has one position", x.size(-2), len(coordinates)))
        return x + self.encode(coordinates, x.dtype)
