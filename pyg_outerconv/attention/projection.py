"""Linear maps to the channels of every head, of nodes and of edges, and of both ends of an edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Union

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import UninitializedParameter, is_lazy
from torch_geometric.nn.inits import glorot

from ..basis.multi_head_edges import MultiHeadEdges, by_head
from ..contract.heads import check_type, project, values_of
from ..equations import row
from ..errors import RefusedValue, refusal
from ..graph import Features, SparseMatrix
from ..graph.checks import check_positive
from ..kernels import edge_sums, sddmm, spmm
from ..kernels.csr import CSR
from ..kernels.tiles import exact
from ..signatures import typed
from ..theta import Theta, as_heads, autocast_pair
from .edge_context import EdgeContext, LoopAttributes, check_attr, of_given


@dataclass(frozen=True)
class PerHead:
    """Queries that differ from head to head, from an alignment of each head.

    Attributes:
        value: (N, *batch, H, P).
    """

    value: Tensor

    @property
    def shape(self) -> torch.Size:
        """(N, *batch, H, P)."""
        return self.value.shape


Queries = Union[Features, PerHead]  # noqa: UP007
"""Queries Tᵀ X: features (N, *batch, P_q) for all heads, or those of each head."""


class Projection(torch.nn.Module):
    """X W_h + b_h for each of H heads: (nodes, *batch, P) to (nodes, *batch, H, D).

    Args:
        in_channels: P, or -1 to learn it from the first input.
        heads: H.
        channels: D, or -1 for the D passed to :meth:`settle`; then without a bias.
        bias: whether there is a bias b (H, D), initialised to zero.
    """

    weight: Parameter

    @typed
    def __init__(self, in_channels: int, heads: int, channels: int, bias: bool = False) -> None:
        super().__init__()
        check_positive("a projection", heads=heads)
        self.in_channels, self.heads, self.channels = in_channels, heads, channels
        self.initial: Callable[[Projection], None] | None = None  # instead of Glorot-uniform
        if in_channels < 0 or channels < 0:
            self.weight = UninitializedParameter()  # type: ignore[assignment]
        else:
            self.weight = Parameter(torch.empty(heads, in_channels, channels))
        self.bias = Parameter(torch.empty(heads, channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight Glorot-uniform, as one linear map to all heads; the bias is zero."""
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)
        if is_lazy(self.weight):
            return
        if self.initial is not None:
            self.initial(self)
            return
        fan = self.weight.size(1) + self.heads * self.channels
        bound = math.sqrt(6.0 / max(fan, 1))
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Queries) -> Tensor:
        """The projection of features, dense or sparse, or of the queries of each head."""
        self.settle(x)
        return project_heads(x, self.weight, self.bias)

    def dot(self, x: Queries, vector: Tensor) -> Tensor:
        """⟨X W_h + b_h, a_h⟩ for a (H, D): (nodes, *batch, H), computed as X (W_h a_h)."""
        self.settle(x)
        return project_dot(x, self.weight, self.bias, vector)

    def settle(self, x: Queries, out_channels: int | None = None) -> None:
        """Set P by the first input, and D if it is not known; afterwards refuse other channels."""
        channels = channels_of(x)
        wanted = self.channels if out_channels is None else out_channels
        if min(self.in_channels, self.channels) < 0:  # is_lazy, as torch.compile can trace it
            self.in_channels = channels if self.in_channels < 0 else self.in_channels
            self.channels = wanted if self.channels < 0 else self.channels
            self.weight.materialize((self.heads, self.in_channels, self.channels))  # type: ignore[attr-defined]
            self.reset_parameters()
        if (channels, wanted) != (self.in_channels, self.channels):
            rule = "a projection needs the channels that it was made for"
            expected = f"{self.in_channels} to {self.channels}"
            raise RefusedValue(rule, expected, f"{channels} to {wanted}")
        features, own = x.value if isinstance(x, PerHead) else x, self.weight.device
        if features is not None and features.device != own:
            raise RefusedValue("features are projected where weights are", own, features.device)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars or is_lazy(self.weight))

    def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
        kept = state.get(prefix + "weight")
        if kept is not None and is_lazy(kept):
            self.in_channels = -1
            self.weight = UninitializedParameter()  # type: ignore[assignment]
        elif kept is not None and is_lazy(self.weight):
            own, shape = (self.heads, self.in_channels, self.channels), tuple(kept.shape)
            pairs = zip_longest(own, shape)
            if any(size not in (-1, other) for size, other in pairs):
                said = refusal(
                    "weights of a projection have a shape, of any size for -1", own, shape
                )
                args[-1].append(f"{prefix}weight: {said}")  # load_state_dict raises what is here
                return
            _, self.in_channels, self.channels = shape
            self.weight.materialize(shape)  # type: ignore[attr-defined]
        super()._load_from_state_dict(state, prefix, *args)

    def extra_repr(self) -> str:
        """P, H and D."""
        bias = "" if self.bias is None else ", bias=True"
        return f"{self.in_channels}, heads={self.heads}, channels={self.channels}{bias}"


def both_ends(in_channels: int | tuple[int, int]) -> tuple[int, int]:
    """Channels of sources and of queries: a pair, or one number for both."""
    return in_channels if isinstance(in_channels, tuple) else (in_channels, in_channels)


def check_queries(projection: Projection, query: Queries, source: Features) -> None:
    """Refuse queries of other channels than their projection; the error names the right pair."""
    of_query = channels_of(query)
    if projection.in_channels in (-1, of_query):
        return
    if source is not None and source.is_floating_point() and source.size(-1) != of_query:
        of_source = source.size(-1)
        rule = "a projection of queries needs the channels that it was made for"
        expected = f"{projection.in_channels}, or in_channels=({of_source}, {of_query})"
        raise RefusedValue(rule, expected, of_query)


def project_heads(x: Queries, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X W_h + b_h: (nodes, *batch, H, D) for W (H, P, D); X may differ from head to head."""
    if isinstance(x, PerHead):
        check_type(x.value, weight)
        value, weight = autocast_pair(x.value, weight)
        projected = torch.einsum("n...hp,hpd->n...hd", value, weight)
    else:
        projected = project(x, weight)
    if bias is None:
        return projected
    projected, bias = autocast_pair(projected, bias)
    return projected + bias


def project_dot(x: Queries, weight: Tensor, bias: Tensor | None, vector: Tensor) -> Tensor:
    """⟨X W_h + b_h, a_h⟩ (nodes, *batch, H) for a (H, D), computed as X (W_h a_h)."""
    folded = (weight @ vector.unsqueeze(-1)).to(weight.dtype)
    of_bias = None if bias is None else (bias * vector).sum(-1, keepdim=True)
    return project_heads(x, folded, of_bias).squeeze(-1)


def channels_of(x: Queries) -> int:
    """P, the number of channels. Raises ValueError if ``x`` is None, or not floating point."""
    features = x.value if isinstance(x, PerHead) else x
    if not isinstance(features, Tensor | SparseMatrix) or not features.is_floating_point():
        got = "none" if features is None else getattr(features, "dtype", type(features).__name__)
        raise RefusedValue("scores are made of features", "a float tensor", got)
    return features.size(features.dim() - 1)


def spread(x: Queries, heads: int) -> Tensor:
    """Dense features expanded over heads: (nodes, *batch, H, P), a view."""
    if isinstance(x, PerHead):
        return x.value
    if not isinstance(x, Tensor) or not x.is_floating_point():
        rule = "this score compares the features themselves"
        got = x.dtype if isinstance(x, Tensor) else x
        raise RefusedValue(rule, "dense features, or a score that projects them", got)
    return x.unsqueeze(-2).expand(*x.shape[:-1], heads, -1)


# Both ends of an edge -----------------------------------------------------------------------------


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
        return x.numel() // rows * heads * width > min(edge_sums.MOST_MESSAGES, edge_sums.MOST)

    def _theta(self, theta: Any) -> Theta:
        """The layer's Θ (H, P, D). Raises ValueError if it has another shape, or no values."""
        theta = as_heads(theta) if isinstance(theta, Tensor | Theta) else theta
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
    features = x.value if isinstance(x, PerHead) else x
    if features is None or not features.is_floating_point():
        return
    channels = features.size(features.dim() - 1)
    if channels != theta.inner.size(2):
        rule = "queries (x, unless a pair or align= gives others) have the channels of sources"
        wanted = theta.inner.size(2)
        raise RefusedValue(rule, f"{wanted}, or in_channels=({wanted}, {channels})", channels)


class EdgeScores(torch.nn.Module):
    """⟨a_h, E W_h⟩ = E (W_h a_h), a number for each edge and head."""

    def __init__(self, edge_dim: int, heads: int, channels: int) -> None:
        super().__init__()
        self.projection = Projection(edge_dim, heads, channels)
        self.att = Parameter(torch.empty(heads, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, Glorot-uniform."""
        self.projection.reset_parameters()
        glorot(self.att)

    def forward(self, support: EdgeContext) -> Tensor:
        """The terms (E, H/L) of the edges, in the order of scores."""
        if support.fill is not None:
            return support.own_heads(self.projection.dot(support.edge_attr, self.att))
        numbers = self.projection.dot(support.given_attr(), self.att)  # H of an edge, not D_e
        return support.own_heads(support.of_given(numbers))


@row(
    "Scores",
    "+ ⟨Q_n W_q, E_e W_e⟩ / √D, and Σ α E W_e in values",
    "Shi et al., *Masked Label Prediction* (2009.03509), equations 3 and 4",
    option="`edge_dim=`",
)
class EdgeFeatures(Projection):
    """W_e (H, D_e, C), which projects edge features that are added to keys and to values.

    Since ``⟨q, k + E W_e⟩ = ⟨q, k⟩ + ⟨W_e q, E⟩`` and ``Σ_e α_e (v + E_e W_e) = Σ_e α_e v +
    (Σ_e α_e E_e) W_e``, edges handle D_e numbers instead of C. As in PyG's ``TransformerConv``,
    of `"Masked Label Prediction" <https://arxiv.org/abs/2009.03509>`_ (equations 3 and 4).

    Args:
        in_channels: D_e, or -1 to learn it from the first input.
        heads: H.
        channels: C, the channels of keys and of values.

    Raises:
        ValueError: at a call, there are no edge features, or they have other channels than D_e.
    """

    def of_keys(self, query: Tensor, support: EdgeContext) -> Tensor:
        """⟨W_e q_n, E_e⟩ for queries (N, *batch, H, C): (E, *batch, H/L) in the pattern's order."""
        attr = support.edge_attr
        self.settle(attr)
        query = exact(query)
        projected = torch.einsum("n...hd,hed->n...he", query, self.weight.to(query.dtype))
        edges = _incidence(support.csr.ptr, attr.size(0))
        products = sddmm(edges, support.fold(projected), attr.to(projected.dtype).unsqueeze(1))
        return support.unfold(products, self.heads, tuple(query.shape[1:-2]))

    def of_values(
        self, heads: MultiHeadEdges, edge_attr: Tensor | None, fill: LoopAttributes | None = None
    ) -> Tensor:
        """(Σ_e α_e E_e) W_e: (N, *batch, H, C), with the values α of a basis.

        Args:
            heads: the basis.
            edge_attr: (E', D_e) of the edges of the user's list.
            fill: those of added self-loops; zeros if None.
        """
        edge_attr = of_given(heads.pattern, check_attr(edge_attr), fill)
        self.settle(edge_attr)
        labels, value = heads.pattern.num_labels, heads.value
        edges = _incidence(heads.csr.ptr, value.size(0))
        operand = edge_attr.to(value.dtype).unsqueeze(1)
        received = spmm(edges, value.flatten(1), operand)
        received = by_head(received, labels, heads.num_bases, heads.batch)
        return torch.einsum("n...he,hed->n...hd", received, self.weight.to(received.dtype))


def _incidence(pointers: Tensor, num_edges: int) -> CSR:
    """The (R, E) incidence matrix of rows and edges; edges are sorted by row."""
    edge = torch.arange(num_edges, dtype=pointers.dtype, device=pointers.device)
    row = torch.arange(pointers.numel() - 1, dtype=pointers.dtype, device=pointers.device)
    ends = torch.arange(num_edges + 1, dtype=pointers.dtype, device=pointers.device)
    row = row.repeat_interleave(pointers.diff(), output_size=num_edges)
    return CSR.of(pointers, edge, num_edges, (ends, row, edge))
