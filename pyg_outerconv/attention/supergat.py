"""SuperGAT's scaled dot product of both ends, transformed by the layer's Θ."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..graph import Features
from ..kernels.tiles import exact
from .edge_context import EdgeContext
from .ends import Ends, same_batch
from .projection import Queries
from .score import Dot, Score, positive


class SuperGAT(Score):
    r"""score[m, n] = leaky_relu(⟨X_m Θ, Q_n Θ⟩ / √D).

    The scaled dot product (SD) of `"How to Find Your Friendly Neighborhood: Graph Attention Design
    with Self-Supervision" <https://openreview.net/forum?id=Wi5KUNlqWty>`_, equation 4, under the
    leaky ReLU of GAT. With a slope of 1 the score is a plain product, and no tensor of scores is
    needed.

    Args:
        heads: H.
        channels: D, the channels of a value.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        shared: whether queries are transformed by Θ too; if None, they are unless ``in_channels``
            is a pair.
        negative_slope: slope of the leaky ReLU below zero.

    Raises:
        TypeError, ValueError: a number of heads or channels is not a positive integer.
    """

    name = "supergat-sd"
    equation = "s[m, n] = leaky_relu(<X_m Theta, Q_n Theta> / sqrt(D))"
    page = ("leaky_relu(⟨X_m Θ, Q_n Θ⟩ / √D)", "Kim & Oh, *SuperGAT* (ICLR 2021), equation 4")
    uses_theta = True
    takes_any_order = True

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        shared: bool | None = None,
        negative_slope: float = 0.2,
    ) -> None:
        super().__init__(heads)
        self.scale = 1.0 / math.sqrt(positive("channels of a head", channels))
        self.negative_slope = float(negative_slope)
        shared = not isinstance(in_channels, tuple) if shared is None else shared
        self.ends = Ends(heads, channels, in_channels, shared=shared)

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        self.ends.reset_parameters()

    def values(self, source: Features, theta: Any) -> Tensor | None:
        """The values X_m Θ_h, (M, *batch, H, V), or None if the score projects sources."""
        return self.ends.values(source, theta)

    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class."""
        at_source, at_target = self.ends(source, query, support)
        if self.negative_slope == 1.0:
            return Dot(at_target, at_source, self.scale)
        same_batch(at_source[..., 0], at_target[..., 0])
        at_source, at_target = exact(at_source), exact(at_target)
        found = support.dot(at_target * self.scale, at_source)
        return torch.nn.functional.leaky_relu(found, self.negative_slope)
