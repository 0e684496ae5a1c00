"""Scores of SuperGAT: products of transformed features, by themselves or as a gate of GAT's."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.inits import glorot, reset

from ..graph import Features
from ..kernels.tiles import exact
from .edge_context import EdgeContext
from .ends import Ends, same_batch
from .projection import Queries
from .score import Dot, Score


class SuperGAT(Score):
    r"""score[m, n] = leaky_relu(⟨X_m Θ, Q_n Θ⟩ / √D).

    The scaled dot product (SD) of `"How to Find Your Friendly Neighborhood: Graph Attention Design
    with Self-Supervision" <https://openreview.net/forum?id=Wi5KUNlqWty>`_, equation 4, under the
    leaky ReLU of GAT. With a slope of 1 the score is a plain product, and no tensor of scores is
    needed.

    Args:
        heads, in_channels: see :class:`Score`.
        channels: D, the channels of a value.
        shared: whether queries are transformed by Θ too; if None, they are unless ``in_channels``
            is a pair.
        negative_slope: slope of the leaky ReLU below zero.
    """

    name = "supergat-sd"
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
        self.negative_slope = float(negative_slope)
        shared = not isinstance(in_channels, tuple) if shared is None else shared
        self.ends = Ends(heads, channels, in_channels, shared=shared)
        self.scale = 1.0 / math.sqrt(channels)

    def values(self, source: Features, theta: Any) -> Tensor | None:
        return self.ends.values(source, theta)

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        at_source, at_target = self.ends(source, query, support)
        if self.negative_slope == 1.0:
            return Dot(at_target, at_source, self.scale)
        same_batch(at_source[..., 0], at_target[..., 0])
        at_source, at_target = exact(at_source), exact(at_target)
        found = support.dot(at_target * self.scale, at_source)
        return torch.nn.functional.leaky_relu(found, self.negative_slope)


class SuperGATMixed(SuperGAT):
    r"""score[m, n] = leaky_relu((⟨a_s, X_m Θ⟩ + ⟨a_t, Q_n Θ⟩) σ(⟨X_m Θ, Q_n Θ⟩)).

    The mixed score (MX) of `"How to Find Your Friendly Neighborhood: Graph Attention Design with
    Self-Supervision" <https://openreview.net/forum?id=Wi5KUNlqWty>`_, section 4.1: the score of
    GAT times the sigmoid σ of the dot product, the probability of an edge. Both factors are a
    number for each edge and head.

    Args:
        heads, channels, in_channels, shared, negative_slope: see :class:`SuperGAT`.
    """

    name = "supergat-mx"
    page = (
        "leaky_relu((⟨a_s, X_m Θ⟩ + ⟨a_t, Q_n Θ⟩) σ(⟨X_m Θ, Q_n Θ⟩))",
        "Kim & Oh, *SuperGAT* (ICLR 2021), section 4.1",
    )

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        shared: bool | None = None,
        negative_slope: float = 0.2,
    ) -> None:
        super().__init__(heads, channels, in_channels, shared, negative_slope)
        self.att_source = Parameter(torch.empty(heads, channels))
        self.att_target = Parameter(torch.empty(heads, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        reset(self.ends)
        glorot(self.att_source)
        glorot(self.att_target)

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        at_source, at_target = self.ends(source, query, support)
        same_batch(at_source[..., 0], at_target[..., 0])
        at_source, at_target = exact(at_source), exact(at_target)
        of_source = (at_source * self.att_source.to(at_source.dtype)).sum(-1)
        of_target = (at_target * self.att_target.to(at_target.dtype)).sum(-1)
        gate = support.dot(at_target, at_source).sigmoid()
        found = support.add(of_target, of_source) * gate
        return torch.nn.functional.leaky_relu(found, self.negative_slope)
