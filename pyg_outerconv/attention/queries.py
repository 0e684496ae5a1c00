"""What a layer gives of features; learned queries, and the places of those of an alignment."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Union
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Parameter

from ..basis.base import Basis
from ..basis.implicit_edges import Edges
from ..basis.subpattern import as_list
from ..equations import row
from ..errors import RefusedValue
from ..graph import positions_of
from ..graph.checks import check_positive, holds
from ..graph.graph import Graph
from ..graph.node_set import NodeSet
from ..graph.positions import graphs_of
from ..graph.structure import Structure, changed
from ..memo import Memo
from ..signatures import typed
from .projection import PerHead, Queries

_graphs = Memo()


@dataclass(frozen=True, eq=False)
class Content:
    """What a layer gives a content-based family beside the structure; nodes come first.

    Attributes:
        source: (M, *batch, P) features of the sources; may be sparse features (M, P).
        target: (N, *batch, P_t) features of the targets, or None if only sources have features;
            the same object as ``source`` if one x is for both.
        present: (M, *batch) booleans, the sources that may be attended to, or None for all.
        alignment: the structure that alignments read, or None to use that of the edges.
        theta: the parameter Θ of the values, for scores of transformed features; else None.
        values: (M, *batch, H, V) the values x Θ, if the layer has computed them.
        graph: (M,) the graph of each source, if there is a batch vector, for learned queries.
        target_is_used: whether the layer itself reads the target features, for a root weight.
    """

    source: Any
    target: Any
    present: Tensor | None = None
    alignment: Any = None
    theta: Any = None
    values: Tensor | None = None
    graph: Tensor | None = None
    target_is_used: bool = False

    def but(self, **changes: Any) -> Content:
        """A copy with some attributes changed."""
        return changed(self, **changes)

    @property
    def is_single(self) -> bool:
        """Whether one x is for both sources and targets."""
        return self.target is self.source


class QueryModule(torch.nn.Module):
    """A module that makes queries, in place of an alignment; subclasses define :meth:`forward`."""

    @abstractmethod
    def forward(self, content: Content) -> Queries:
        """Queries (N, *batch, P_q), or those of each head, from the features of nodes."""

    def graph(self, content: Content) -> Tensor | None:
        """The graph (N,) of each query, if ``content.graph`` has those of sources; else None."""
        return None


@row(
    "Alignment",
    "parameters in the place of TᵀX",
    "Lee et al., *Set Transformer* (1810.00825), section 3.2, PMA",
    option="`LearnedQueries(N, P)`",
)
class LearnedQueries(QueryModule):
    r"""N parameter vectors as queries, so that there are N outputs.

    The seed vectors of `"Set Transformer" <https://arxiv.org/abs/1810.00825>`_ (PMA, section 3.2);
    outputs do not depend on the order of nodes. All items of a batch of X and all graphs of a batch
    vector have the same queries; outputs are in the order of graphs.

    Args:
        num_queries: N, of each graph.
        channels: P_q.
        heads: H, if each head has queries of its own; None if heads share them.

    Attributes:
        weight: (N, P_q) or (N, H, P_q).

    Raises:
        TypeError, ValueError: a number is not a positive integer.
    """

    @typed
    def __init__(self, num_queries: int, channels: int, heads: int | None = None) -> None:
        super().__init__()
        check_positive("LearnedQueries", num_queries=num_queries, channels=channels)
        if heads is not None:
            check_positive("LearnedQueries", heads=heads)
        middle = () if heads is None else (heads,)
        self.num_queries, self.channels = num_queries, channels
        self.weight = Parameter(torch.empty(num_queries, *middle, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the queries anew, Glorot-uniform."""
        bound = math.sqrt(6.0 / (self.num_queries + self.channels))
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, content: Content) -> Queries:
        """The queries, graph after graph; expanded, without a copy, over a batch of X."""
        query: Tensor = self.weight
        if content.graph is not None:
            graphs = _num_graphs(content.graph)
            query = query.expand(graphs, *query.shape).flatten(0, 1)
        batch = content.source.shape[1:-1]
        per_head = self.weight.dim() == 3
        tail = query.shape[1:]
        query = query.view(query.size(0), *(1,) * len(batch), *tail).expand(-1, *batch, *tail)
        return PerHead(query) if per_head else query

    def graph(self, content: Content) -> Tensor | None:
        """The graph (B·N,) of each query; the same tensor for the same ``content.graph``."""
        graph, each = content.graph, self.num_queries
        if graph is None:
            return None

        def make() -> Tensor:
            return torch.arange(_num_graphs(graph), device=graph.device).repeat_interleave(each)

        return _graphs.get(each, make, graph)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The shape of the queries."""
        return ", ".join(map(str, self.weight.shape))


def _num_graphs(graph: Tensor) -> int:
    """B, the highest graph number plus one."""

    def make() -> int:
        return int(graph.max()) + 1 if graph.numel() else 0

    return _graphs.get("count", make, graph)  # type: ignore[no-any-return]


Places = Union[range, Tensor]  # noqa: UP007
"""The source (N,) that each query is."""


_narrowed: WeakKeyDictionary[Basis, Memo] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Placed(Structure):
    """Sources, and targets that are a selection of them.

    Bases are made of all sources as targets, and the selected targets are kept.

    Attributes:
        whole: the structure of all sources, each of them a target.
        place: the source that each target is.
        pos: positions of sources and targets, or None.
    """

    noun: ClassVar[str] = "sources, of which some ask"

    whole: Structure
    place: Places
    pos: tuple[Tensor, Tensor] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.whole.size[0], len(self.place)

    @property
    def device(self) -> torch.device:
        """Where the sources are."""
        return self.whole.device

    def at(self, pos: tuple[Tensor, Tensor]) -> Placed:
        """The same sources and targets with positions (M, D) and (N, D)."""
        return replace(self, pos=pos)


def placed(structure: Structure, place: Places) -> Placed:
    """The structure whose targets are the sources at ``place``."""
    if not isinstance(structure, NodeSet | Graph):
        return Placed(structure, place)  # cells, the same at both ends
    sources, device, graphs = structure.size[0], structure.device, graphs_of(structure)
    if graphs is not None and graphs[0] is not graphs[1]:
        own = graphs[0].index_select(0, as_list(place, device))
        if own.shape != graphs[1].shape or not holds((own == graphs[1]).all()):
            raise RefusedValue("a query is of the graph of the source that it is", own, graphs[1])
    both, pos = None if graphs is None else (graphs[0], graphs[0]), structure.pos
    around = None if pos is None else (pos[0], pos[0])
    return Placed(NodeSet((sources, sources), device, both, around), place, pos)


def with_positions(
    structure: Structure, sources: Structure, place: Places | None, align: object
) -> Structure:
    """The structure, whose targets get the positions of the sources at ``place`` (N,)."""
    if place is None:
        rule = f"the queries of {align} have no positions"
        expected = (
            "pos=(of sources, of targets), or an alignment that takes each query from one source, "
            "such as Part(...)"
        )
        raise RefusedValue(rule, expected, "scores that read positions")
    pos_pair = getattr(sources, "pos", None)
    source = positions_of(sources, torch.float64)[0] if pos_pair is None else pos_pair[0]
    if source.size(0) != sources.size[0]:
        raise RefusedValue("pos needs a row for each source", sources.size[0], source.size(0))
    pos = source, source.index_select(0, as_list(place, source.device))
    return structure.at(pos)


def stand_alone(structure: Structure) -> bool:
    """Whether targets have no positions of their own: there are none, or one tensor for both."""
    pos = getattr(structure, "pos", None)
    return pos is None or pos[0] is pos[1]


def narrowed(over: Edges, place: Places) -> Edges:
    """The edges of a square support that reach the targets at ``place`` (N,), in that order."""
    if not isinstance(place, range) or torch.compiler.is_compiling():
        return over.narrowed(place)
    narrower = _narrowed.setdefault(over, Memo())
    edges: Edges = narrower.get(place, lambda: over.narrowed(place))
    return edges
