"""Features of both ends of an edge for scores: projections, or the values X Θ of the layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..contract.heads import values_of
from ..errors import RefusedValue
from ..graph import Features
from ..graph.checks import check_positive
from ..kernels import edge_sums
from ..theta import Theta
from .edge_context import EdgeContext
from .projection import (
    PerHead,
    Projection,
    Queries,
    both_ends,
    check_queries,
    project_dot,
    project_heads,
)


class Ends(torch.nn.Module):
    """Transformed features of sources and of queries: (nodes, *batch, H, D) of each.

    Args:
        heads, in_channels: see :class:`~.score.Score`.
        channels: D; where Θ transforms, the channels of a value.
        own: whether sources have a projection of the score, instead of the values of the layer's Θ.
        shared: whether queries are transformed as sources are, instead of by another projection.
        bias: whether projections have a bias.
    """

    def __init__(
        self,
        heads: int,
        channels: int | None,
        in_channels: int | tuple[int, int],
        own: bool = False,
        shared: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        check_positive("a score", heads=heads, channels=channels)  # type: ignore[arg-type]
        assert channels is not None
        of_source, of_target = both_ends(in_channels)
        self.heads, self.channels = heads, channels
        self.source = Projection(of_source, heads, channels, bias) if own else None
        self.target = None if shared else Projection(of_target, heads, channels, bias)

    def forward(
        self, source: Features, query: Queries, support: EdgeContext
    ) -> tuple[Tensor, Tensor]:
        """(M, *batch, H, D) of sources, and (N, *batch, H, D) of queries."""
        end, theta = self._end_of(query, source), support.theta
        at_source = support.values
        if at_source is None:
            at_source = self._transformed(self.source, source, theta)
        if end is self.source and query is source:
            return at_source, at_source
        return at_source, self._transformed(end, query, theta)

    def values(self, source: Features, theta: Any, folds: bool = False) -> Tensor | None:
        """The values X_m Θ_h, (M, *batch, H, V); None if the score projects sources.

        With ``folds`` only :meth:`dots` will be called, which needs no values where the features
        are narrower.
        """
        if self.source is not None or (folds and self._folds(source, self._theta(theta))):
            return None
        return self._transformed(None, source, theta)

    def dots(
        self,
        source: Features,
        query: Queries,
        support: EdgeContext,
        of_source: Tensor,
        of_target: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """:meth:`forward` times vectors (H, D): (M, *batch, H) and (N, *batch, H)."""
        end, values = self._end_of(query, source), support.values
        if values is None and end is None and query is source:  # one product for both ends
            folds = self._folds(source, self._theta(support.theta))
            values = None if folds else self._transformed(None, source, support.theta)
        at_source = self._dot(self.source, source, support.theta, of_source, values)
        shared = values if end is self.source and query is source else None
        return at_source, self._dot(end, query, support.theta, of_target, shared)

    def dot_of_source(self, source: Features, support: EdgeContext, vector: Tensor) -> Tensor:
        """The result of :meth:`dots` for sources alone: (M, *batch, H)."""
        return self._dot(self.source, source, support.theta, vector, support.values)

    def _end_of(self, query: Queries, source: Features) -> Projection | None:
        """The projection of queries, or None. Raises ValueError if channels do not fit."""
        end = self.target or self.source
        if end is not None:
            check_queries(end, query, source)
        return end

    def _transformed(self, end: Projection | None, x: Queries, theta: Any) -> Tensor:
        if end is not None:
            return end(x)  # type: ignore[no-any-return]
        theta = self._theta(theta)
        _check_channels(theta, x)
        if isinstance(x, PerHead):
            return project_heads(x, theta.value, theta.bias)
        return values_of(theta, x)

    def _dot(
        self, end: Projection | None, x: Queries, theta: Any, vector: Tensor, values: Tensor | None
    ) -> Tensor:
        if end is not None:
            return end.dot(x, vector)
        if values is None:
            theta = self._theta(theta)
            _check_channels(theta, x)
            if self._folds(x, theta):
                return project_dot(x, theta.value, theta.bias, vector)
            values = self._transformed(None, x, theta)
        return (values * vector.to(values.dtype)).sum(-1)

    @staticmethod
    def _folds(x: Queries, theta: Theta) -> bool:
        """Whether X (Θ_h a_h) is cheaper than making the values X Θ_h, which are wider, first."""
        heads, _, rows, width = theta.inner.shape
        if isinstance(x, PerHead):
            return True
        if x is None or not x.is_floating_point() or not 0 < rows <= heads * width:
            return False
        if not isinstance(x, Tensor) or torch.compiler.is_compiling():
            return True
        return x.numel() // rows * heads * width > min(edge_sums.HELD, edge_sums.MOST)

    def _theta(self, theta: Any) -> Theta:
        """The layer's Θ (H, P, D). Raises ValueError if it has another shape, or no values."""
        if isinstance(theta, Tensor) and theta.dim() == 4 and theta.size(1) == 1:
            theta = Theta(theta, heads="sum")
        has_heads = isinstance(theta, Theta) and theta.heads is not None
        if not has_heads or theta.value.shape[::2] != (self.heads, self.channels):
            got = theta.value if has_heads else theta
            rule = (
                "scores such as Additive and GATv2 read what the layer's Θ makes of the features, "
                "one label of Θ for each head"
            )
            expected = (
                f"Θ of shape ({self.heads}, P, {self.channels}), or in a Stack, where Θ has other "
                "labels too, own=True for Additive and GATv2"
            )
            got = tuple(got.shape) if isinstance(got, Tensor) else type(theta).__name__
            raise RefusedValue(rule, expected, got)
        return theta  # type: ignore[no-any-return]


def same_batch(source: Tensor, target: Tensor) -> tuple[int, ...]:
    """The batch sizes of (nodes, *batch, H), which must be the same at both ends."""
    if source.shape[1:] != target.shape[1:]:
        rule = "sources and queries are of one batch"
        raise RefusedValue(rule, tuple(source.shape), tuple(target.shape))
    return tuple(source.shape[1:-1])


def over_batch(of_edges: Tensor, batch: tuple[int, ...]) -> Tensor:
    """(E, H/L) as (E, 1, ..., H/L), to broadcast over a batch."""
    edges, heads = of_edges.shape
    return of_edges.view(edges, *(1,) * len(batch), heads)


def _check_channels(theta: Theta, x: Queries) -> None:
    found = x.value if isinstance(x, PerHead) else x
    if found is None or not found.is_floating_point():
        return
    channels = found.size(found.dim() - 1)
    if channels != theta.inner.size(2):
        rule = "queries that theta transforms have the channels of sources"
        wanted = theta.inner.size(2)
        raise RefusedValue(rule, f"{wanted}, or in_channels=({wanted}, {channels})", channels)
