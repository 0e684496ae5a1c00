"""Families that make their basis of node features, and the queries of attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..attention.projection import PerHead, Queries, channels_of
from ..attention.queries import (
    Content,
    LearnedQueries,
    Places,
    QueryModule,
    placed,
    stand_alone,
    with_positions,
)
from ..basis.band import Band
from ..basis.base import Basis
from ..basis.eye import Eye
from ..basis.implicit_edges import Edges
from ..contract import contract
from ..errors import RefusedType, RefusedValue
from ..graph import SparseFeatures, SparseMatrix
from ..graph.checks import holds
from ..graph.graph import Graph
from ..graph.node_set import Ends, NodeSet
from ..graph.positions import graphs_of
from ..graph.structure import Structure, require_kind
from ..kernels import spmm
from ..memo import cached_property
from ..theta import Theta
from .family import Family

Align = Family | torch.nn.Module | None


def queries(align: Align, structure: Structure, content: Content) -> Queries:
    """The queries Tᵀ X (N, *batch, P_q), or of each head; the features of targets if T = I."""
    if align is None:
        return content.source if content.target is None else content.target  # type: ignore[no-any-return]
    _refuse_targets(align, content)
    if isinstance(align, torch.nn.Module):
        return align(content)  # type: ignore[no-any-return]
    x = content.source
    channels_of(x)
    basis = _aligned(align, structure, content)
    if basis.num_bases == 1:
        return contract(basis, x, Theta.identity(1, x.size(-1), _like(x)))
    if isinstance(x, SparseFeatures):
        raise RefusedValue("alignments of each head make dense queries", "dense features", repr(x))
    edges = basis.edges()
    value = edges.values(x.dtype)
    value = value.to(x.dtype) if basis.dtype is None else value  # ones, and sums of ones
    rows = spmm(edges.pattern.by_target_label, value, x.flatten(1))
    rows = rows.view(edges.size[1], edges.num_bases, *x.shape[1:])
    return PerHead(rows.movedim(1, -2))


def structure_of_queries(
    structure: Structure,
    support: Family,
    align: Align,
    content: Content,
    asked: Queries,
    ordered: bool,
    positions: bool = False,
) -> Structure:
    """The structure between sources and queries; an alignment may change number and order."""
    if align is None:
        return structure
    positions = positions and stand_alone(structure)
    place = place_of_queries(structure, align, content, asked) if ordered or positions else None
    query_structure = _between(structure, support, align, content, asked)
    if ordered and place is None:
        raise RefusedValue(
            f"{support} depends on the order of nodes, and queries of {align} have no order",
            "an alignment that takes each query from one source, such as Part(...); or edges, "
            "or a support that knows no order, such as Complete()",
            support,
        )
    if ordered and place is not None and place != range(structure.size[0]):
        query_structure = placed(structure, place)
    return (
        with_positions(query_structure, structure, place, align) if positions else query_structure
    )


def place_of_queries(
    structure: Structure, align: Align, content: Content, asked: Queries
) -> Places | None:
    """The source (N,) that each query is, or None if the alignment takes no query from one source.

    Queries of a family that keeps the nodes have the places of these nodes.
    """
    sources, count = structure.size[0], 0 if asked is None else asked.shape[0]
    if isinstance(align, Family):
        if align.keeps_nodes and content.alignment is None and count == sources:
            return range(sources)
        return _taken(_aligned(align, structure, content))
    own = isinstance(align, torch.nn.Module) and not isinstance(align, LearnedQueries)
    return range(sources) if own and count == sources == structure.size[1] else None


def _taken(basis: Basis) -> range | Tensor | None:
    """(N,) the source of each target, if each has exactly one and it is cheap to find."""
    count = basis.size[1]
    if isinstance(basis, Eye):
        return range(count)
    if isinstance(basis, Band) and basis.left == basis.right == 0:
        return range(basis.offset, basis.offset + count)
    if basis.num_bases > 1 or not isinstance(basis, Edges):
        return None
    if basis.num_edges != count:
        return None
    pattern = basis.edges().pattern
    each = torch.arange(count, device=pattern.device)
    return pattern.source.long() if holds((pattern.target == each).all()) else None


def _between(
    structure: Structure, support: Family, align: Align, content: Content, asked: Queries
) -> Structure:
    """The structure with a target for each query."""
    count = 0 if asked is None else asked.shape[0]
    graph = align.graph(content) if isinstance(align, QueryModule) else None
    if graph is None and count == structure.size[1]:
        return structure
    if not support.takes_nodes_alone:
        if count == structure.size[1]:
            return structure
        raise RefusedValue(
            f"the support {support} has a fixed number of targets",
            f"{structure.size[1]} queries, or a support such as Complete()",
            count,
        )
    sources, device = structure.size[0], structure.device
    graphs: Ends | None = None
    if graph is not None:
        assert content.graph is not None  # else align.graph gives None
        graphs = content.graph, graph
    elif (batch := graphs_of(structure)) is not None:
        if batch[1].size(0) != count:
            raise RefusedValue(
                "each query belongs to one of several graphs",
                f"batch=(of sources, of {count} queries)",
                f"graphs of {batch[1].size(0)} targets",
            )
        graphs = batch
    pos = getattr(structure, "pos", None)
    return NodeSet((sources, count), device, graphs, pos)


def with_graph(content: Content, structure: Structure) -> Content:
    """The content with the graph of each source, if the structure has a batch vector."""
    if isinstance(structure, Graph) and structure.bipartite and structure.source_batch is None:
        return content  # batch is that of the targets
    graphs = graphs_of(structure)
    return content if graphs is None else replace(content, graph=graphs[0])


def _refuse_targets(align: Align, content: Content) -> None:
    """Refuse features of targets that neither the queries nor a root weight read."""
    read = content.is_single or content.target is None or content.target_is_used
    if not read and isinstance(align, Family | LearnedQueries):
        raise RefusedValue(
            f"queries come from align={align}, not from the targets",
            "x alone, or a pair (x, None); or no align",
            "a pair, with features of targets",
        )


def _aligned(align: Family, structure: Structure, content: Content) -> Basis:
    """T on the structure of the call, or on one of its own, which has no features."""
    alignment, dtype = content.alignment, content.source.dtype
    if alignment is None:
        if not isinstance(structure, align.reads):
            raise RefusedType(
                f"the alignment {align} reads {align.reads.noun}",
                f"alignment=... at the call: {align.reads.expects}",
                f"none, and {structure.noun}",
            )
        read = align.makes_use_of("pos")
        if isinstance(structure, NodeSet) and structure.pos and not (structure.batch or read):
            # How many targets have positions is compared with the queries, which come first.
            structure = replace(structure, num_nodes=(structure.num_nodes[0], None), pos=None)
        own = require_kind(align, structure).read(structure)
        return align.basis_with(own, dtype, content)
    kind = require_kind(align, alignment)
    if isinstance(alignment, Structure):
        return align.basis_on(kind.read(alignment), dtype)
    size = (content.source.size(0), None)
    return align.basis_on(kind.read(alignment, size=size, device=content.source.device), dtype)


def _like(x: Tensor | SparseFeatures) -> Tensor:
    return x.value if isinstance(x, SparseFeatures) else x


class ContentFamily(Family):
    """A family whose basis depends on features, so that a layer makes it at every call.

    Subclasses list ``'x'`` in ``reads_beside``; ``basis_on`` takes ``content`` as its third
    argument, of which :meth:`content_of` makes the features and the queries.

    Attributes:
        takes_sparse: whether it reads sparse features as they are stored; else they come dense.
        align: T, whose Tᵀ X are the queries, or a module that makes queries; None for the identity.
    """

    learns = True
    takes_content = True
    takes_sparse: ClassVar[bool] = False

    align: Family | torch.nn.Module | None = None

    @property
    def parts(self) -> tuple[Family, ...]:
        """No parts: support and alignment keep their own options."""
        return ()

    @staticmethod
    def _read_by(*parts: Any) -> list[str]:
        """The names of edge attributes that the families among ``parts`` read."""
        names = ("edge_weight", "edge_type", "edge_attr", "pos")
        families = [part for part in parts if isinstance(part, Family)]
        return [name for name in names if any(part.makes_use_of(name) for part in families)]

    def content_of(self, structure: Any, content: Content | None) -> tuple[Content, Queries]:
        """The features of nodes, ``content.source`` (M, *batch, P), and the queries Tᵀ X.

        Raises:
            ValueError: there are no features, as outside a layer, or they do not fit the alignment.
        """
        if content is None:
            raise RefusedValue(
                f"{type(self).__name__} makes its basis of the features of nodes",
                "a call of a layer with x, which hands them over to families that take content",
                "no features",
            )
        if not self.takes_sparse:
            content = _with_dense(content)
        if self.align is not None:
            content = with_graph(content, structure)
        return content, queries(self.align, structure, content)


def _with_dense(content: Content) -> Content:
    """The content whose features are tensors; one x stays one."""
    ends = content.source, content.target
    if not any(isinstance(x, SparseMatrix) for x in ends):
        return content
    source, target = (x.dense() if isinstance(x, SparseMatrix) else x for x in ends)
    return content.but(source=source, target=source if content.is_single else target)


class Heads(ContentFamily):
    """Matrices A_h of H heads, on the edges of a support.

    Attributes:
        heads: H, which is K.
        support: the edges.
    """

    takes_sparse = True

    heads: int
    support: Family

    @property
    def num_bases(self) -> int:
        """K = H, the number of heads."""
        return self.heads

    @cached_property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """The kind of structure that the support reads."""
        return self.support.reads

    @property
    def reads_beside(self) -> tuple[str, ...]:  # type: ignore[override]
        """The features; and what the support and the alignment read."""
        return tuple(sorted({"x", *self._read_by(self.support, self.align)}))

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether targets are the nodes of the structure."""
        return self.support.keeps_nodes and self.align is None

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether the support adds self-loops."""
        return bool(self.support.add_self_loops)


def kept_symmetries(support: Family, align: Family | torch.nn.Module | None) -> tuple[str, ...]:
    """Permutation-equivariance, if the support and the alignment have it."""
    name, parts = "permutation-equivariant", [support] if align is None else [support, align]
    declared = all(isinstance(part, Family) and name in part.laws for part in parts)
    return (name,) if declared else ()


def check_heads(what: str, count: int, heads: int) -> None:
    """Raise ValueError unless ``count`` is 1 or the number of heads."""
    if count not in (1, heads):
        raise RefusedValue(f"{what} is for all heads or for each of them", f"1 or {heads}", count)
