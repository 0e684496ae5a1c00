"""EdgeContext: the support, as scores read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from ..basis.implicit_edges import Edges
from ..basis.multi_head_edges import MultiHeadEdges, by_label, listed_edges
from ..basis.pattern import Pattern
from ..errors import RefusedType, RefusedValue
from ..graph import Features, positions_of
from ..graph.structure import Structure
from ..kernels import CSR, sddmm
from ..kernels.edge_sums import Listed
from ..kernels.lasting import lasting
from ..memo import Memo

_parts = Memo()


class LoopAttributes(NamedTuple):
    """The attributes of self-loops that a family added, as in PyG's ``add_self_loops``.

    Attributes:
        value: a number or a vector of attributes; or the reduction, such as ``'mean'``, of those of
            the edges at the node.
        of_sources: whether these are the edges that leave the node, not those that reach it.
    """

    value: str | float | Tensor
    of_sources: bool = False

    def of(self, pattern: Pattern, rows: Tensor, added: Tensor) -> Tensor:
        """Attributes, to be broadcast to (E, D), from those of the user's edges (E, D)."""
        if not isinstance(self.value, str):
            return torch.as_tensor(self.value, dtype=rows.dtype, device=rows.device)
        end = (pattern.source if self.of_sources else pattern.target).long()
        count = pattern.size[not self.of_sources]  # a row more takes what is added
        node_attr = scatter(rows, end.masked_fill(added, count), 0, count + 1, self.value)
        return node_attr.index_select(0, end)


@dataclass(frozen=True, eq=False)
class EdgeContext:
    """The edges over which f normalises, with their attributes and positions.

    A rule becomes edges only where a score needs a number for each edge.

    Attributes:
        basis: the edges, or a rule for them, of L labels.
        structure: the structure of which the support was made.
        theta: the layer's Θ, for scores with ``uses_theta``, or None.
        values: (M, *batch, H, V) the values X_m Θ_h, if they are known; or None.
        exact: dtype of positions: that of the features, at least float32.
        present: (M,) or (M, *batch) booleans, the present sources, or None for all; f leaves
            out the others, whatever their scores are.
        listed: whether scores are in the order of the user's edge list, not of the pattern.
        cancels_factors: whether f stays the same if all scores of a target are multiplied by one
            positive number.
        cancels_terms: whether f stays the same if one number is added to all scores of a target.
        fill: the attributes of self-loops that the support added; zeros if None.
    """

    basis: Edges
    structure: Structure
    theta: Any = None
    values: Tensor | None = None
    exact: torch.dtype = torch.float32
    present: Tensor | None = None
    listed: bool = False
    cancels_factors: bool = False
    cancels_terms: bool = False
    fill: LoopAttributes | None = None

    @property
    def num_labels(self) -> int:
        """L."""
        return self.basis.num_bases

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.basis.size

    @property
    def num_edges(self) -> int:
        """E, computed without making edges."""
        return self.basis.num_edges

    @property
    def pattern(self) -> Pattern:
        """The edges, sorted by target, then label."""
        return self.basis.edges().pattern

    @property
    def csr(self) -> CSR:
        """The (N·L) × (M·L) matrix of the edges, in the pattern's order."""
        return self.pattern.by_both

    @property
    def entries(self) -> CSR | Listed:
        """The matrix of the edges in the order of scores, sorted or as listed."""
        return listed_edges(self.pattern) if self.listed else self.csr

    @property
    def sources(self) -> Tensor:
        """(E,) the source of each edge, in the order of scores."""
        return listed_edges(self.pattern).col if self.listed else self.pattern.source

    def heads(self, value: Tensor) -> MultiHeadEdges:
        """The basis with values (E, *batch, H/L), in the order of scores."""
        make = MultiHeadEdges.of_list if self.listed else MultiHeadEdges
        return make(self.pattern, value)

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """Positions (M, D) of sources and (N, D) of targets, in float32 at least."""
        return positions_of(self.structure, self.exact)

    # Numbers of edges -------------------------------------------------------------------------

    def add(self, at_target: Tensor, at_source: Tensor) -> Tensor:
        """q[n, h] + k[m, h] of (N, *batch, H) and (M, *batch, H): (E, *batch, H/L)."""
        if isinstance(entries := self.entries, Listed):
            return entries.add(at_target, at_source)
        ends = [self.fold(x.unsqueeze(-1)).squeeze(-1) for x in (at_target, at_source)]
        return self.unfold(
            sddmm(entries, *ends, op="add"), at_target.size(-1), at_target.shape[1:-1]
        )

    def dot(self, at_target: Tensor, at_source: Tensor) -> Tensor:
        """⟨q[n, h], k[m, h]⟩ of (N, *batch, H, D) and (M, *batch, H, D): (E, *batch, H/L)."""
        if isinstance(entries := self.entries, Listed):
            return entries.dot(at_target, at_source)
        products = sddmm(entries, self.fold(at_target), self.fold(at_source))
        return self.unfold(products, at_target.size(-2), at_target.shape[1:-2])

    def fold(self, x: Tensor) -> Tensor:
        """(nodes, *batch, H, C) as operands of :attr:`csr`: (nodes·L, B·H/L, C)."""
        return by_label(x, self.num_labels)

    def unfold(self, score: Tensor, heads: int, batch: Sequence[int]) -> Tensor:
        """Scores (E, B·H/L) along :attr:`csr` as (E, *batch, H/L)."""
        return score.unflatten(1, (*batch, heads // self.num_labels)) if batch else score

    def own_heads(self, x: Tensor) -> Tensor:
        """From numbers (E, H) of all heads, those of the heads of each edge's label: (E, H/L)."""
        if self.num_labels == 1:
            return x
        wide = x.unflatten(1, (self.num_labels, -1))
        label = self.pattern.label.long().view(-1, 1, 1).expand(-1, 1, wide.size(2))
        return wide.gather(1, label).squeeze(1)

    def label_parts(self) -> list[tuple[CSR, Tensor | None]]:
        """For each label, its edges of :attr:`csr` and their positions; all edges if L = 1."""
        if self.num_labels == 1:
            return [(self.csr, None)]
        pattern = self.pattern
        return _parts.get("parts", lambda: _label_parts(pattern), pattern.source)  # type: ignore[no-any-return]

    def join_labels(self, scores: list[Tensor]) -> Tensor:
        """Scores (E_l, C) of each of :meth:`label_parts`, joined to (E, C)."""
        if self.num_labels == 1:
            return scores[0]
        places = torch.cat([place for _, place in self.label_parts() if place is not None])
        return torch.cat(scores).index_select(0, places.argsort())

    def of_given(self, x: Tensor) -> Tensor:
        """Numbers (E', C) of the user's edges in the order of scores, see :func:`of_given`."""
        rows = of_given(self.pattern, x, self.fill)
        if not self.listed:
            return rows
        return torch.zeros_like(rows).index_copy(0, self.pattern.order.long(), rows)

    def given_attr(self) -> Tensor:
        """The attributes (E', D) of the user's edges, in their order, see :func:`check_attr`."""
        return check_attr(getattr(self.structure, "edge_attr", None))

    @property
    def edge_attr(self) -> Tensor:
        """The attributes (E, D) of the edges, in the order of scores."""
        return self.of_given(self.given_attr())


def exact_type(x: Features) -> torch.dtype:
    """The dtype of positions beside features x: that of x, at least float32."""
    if x is None or not x.is_floating_point():
        return torch.get_default_dtype()
    return torch.promote_types(torch.float32, x.dtype)


def of_given(pattern: Pattern, x: Tensor, fill: LoopAttributes | None = None) -> Tensor:
    """Numbers (E', C) of the user's edges in the order of a pattern (E, C).

    Edges that a family added get those of ``fill``, or zeros.
    """
    origin = pattern.origin
    if origin is None:
        rule = "edge features belong to the edges of edge_index"
        expected = "a support with these edges, such as Hops()"
        raise RefusedValue(rule, expected, repr(pattern))
    if x.size(0):
        rows = x.index_select(0, origin.clamp(min=0))
    else:
        rows = x.new_zeros(len(origin), x.size(1))
    added = origin < 0
    if fill is not None:
        return torch.where(added.unsqueeze(1), fill.of(pattern, rows, added), rows)
    return rows.masked_fill(added.unsqueeze(1), 0.0)


def check_attr(edge_attr: Tensor | None) -> Tensor:
    """Attributes of edges as (E', D); (E',) becomes a column."""
    if edge_attr is None:
        raise RefusedValue("the score reads edge features", "edge_attr (E, D)", "None")
    if not edge_attr.is_floating_point():
        raise RefusedType("edge features are floating point", "torch.float32", edge_attr.dtype)
    edge_attr = edge_attr.unsqueeze(1) if edge_attr.dim() == 1 else edge_attr
    if edge_attr.dim() != 2:
        raise RefusedValue("edge features are vectors", "edge_attr (E, D)", edge_attr)
    return edge_attr


def _label_parts(pattern: Pattern) -> list[tuple[CSR, Tensor]]:
    """The edges of each label as a (N·L) × (M·L) matrix, and their positions among all edges."""
    parts, (sources, targets), labels = [], pattern.size, pattern.num_labels
    size = sources * labels, targets * labels
    with lasting(pattern.source):
        source, target = (end * labels + pattern.label for end in (pattern.source, pattern.target))
        for label in range(labels):
            place = (pattern.label == label).nonzero().view(-1)
            ends = torch.stack([end.index_select(0, place) for end in (source, target)])
            parts.append((Pattern.build(ends, size=size).by_target, place))
    return parts
