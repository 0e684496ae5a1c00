"""Graph: edges as they were given, checked, before a family makes a basis of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from ..errors import RefusedValue
from ..kernels.capture import refuse_captured
from ..kernels.index_checks import waits
from ..signatures import check_type
from .checks import (
    agreed,
    all_below,
    check_attributes,
    check_batch,
    check_edge_vector,
    check_index,
    check_one_set,
    check_size,
    holds,
    infer_size,
    numbers,
)
from .edge_index import edges_of, from_sparse, is_matrix
from .structure import Structure, changed, refuse_beside
from .summary import Summary, summary_of

_UNKNOWN = (None, None, None, None)


@dataclass(frozen=True, eq=False)
class Graph(Structure):
    """Edges from M sources to N targets as they were given, checked.

    Attributes:
        edge_index: (2, E) integers; row 0 holds sources, row 1 targets.
        size: (M, N).
        edge_weight: (E,) floating point, or None for ones.
        edge_type: (E,) integers, or None.
        batch: (N,) the graph of each target, for families that treat graphs one by one.
        origin: (E,) the place of each edge in the user's list, -1 for an edge that a family added;
            or the number of leading edges that are the user's, in order; None if all are.
        edge_attr: (E, *) further attributes of the edges, or None.
        pos: positions (M, D) of sources and (N, D) of targets, or None; not checked.
        bipartite: whether sources and targets are different nodes. M ≠ N implies it, M = N does
            not exclude it.
        source_batch: (M,) the graph of each source in a bipartite graph, or None.
        only_sums: whether values are only summed, so that edges of weight 0 may be added. Under
            torch.compile this makes the number of edges independent of the data; where edges are
            counted or compared, the number of missing self-loops breaks the graph.
        is_bare: whether this is the result of :meth:`bare`.
    """

    noun: ClassVar[str] = "edges"
    expects: ClassVar[str] = "an edge_index of shape (2, E), or a sparse matrix"
    rank: ClassVar[int] = 0
    targets_are_sources: ClassVar[bool] = True

    edge_index: Tensor
    size: tuple[int, int]
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    batch: Tensor | None = None
    origin: Tensor | int | None = None
    edge_attr: Tensor | None = None
    pos: tuple[Tensor, Tensor] | None = None
    bipartite: bool = False
    source_batch: Tensor | None = None
    only_sums: bool = False
    is_bare: bool = False

    def __post_init__(self) -> None:
        check_index(self.edge_index)
        if self.size is None:
            raise RefusedValue("an edge list has numbers of sources and targets", "(M, N)", None)
        check_size(self.size)
        check_type("Graph", "bipartite", self.bipartite, bool)
        infer_size(self.edge_index, self.size, True)
        if not self.bipartite and self.size[0] != self.size[1]:
            object.__setattr__(self, "bipartite", True)

    @staticmethod
    def of(edge_index: Tensor, size: tuple[int, int], **others: Any) -> Graph:
        """The constructor without the overhead of a frozen dataclass."""
        graph = object.__new__(Graph)
        own = vars(graph)
        own["edge_index"], own["size"] = edge_index, size
        for name, value in others.items():  # torch's compiler may not follow update()
            own[name] = value
        if size[0] != size[1]:
            own["bipartite"] = True
        return graph

    @staticmethod
    def of_index(
        edge_index: Tensor,
        size: tuple[int | None, int | None] | None,
        bipartite: bool,
        weight: Tensor | None = None,
        types: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> Graph:
        """The graph of an index alone, checked as :meth:`read` does.

        On a device, what is checked of weights and types of its edges is read with it; only there
        the graph has these weights.
        """
        check_index(edge_index)
        if edge_index.dtype not in (torch.int64, torch.int32):
            edge_index = edge_index.long()
        if edge_index.is_cpu or not waits(edge_index):
            whole = infer_size(edge_index, size, bipartite)
            return Graph.of(edge_index, whole, bipartite=bipartite)
        if weight is not None:
            weight = numbers("edge_weight", weight, edge_index, dtype)
        counts = [count for count in size or () if count is not None]
        num_nodes = min(counts) if len(counts) == 2 else None
        summary = summary_of(edge_index, weight, types, num_nodes)
        whole = infer_size(edge_index, size, bipartite, summary)
        beside = {"edge_weight": weight, "edge_type": types}
        graph = Graph.of(edge_index, whole, bipartite=bipartite, **beside)
        return graph if summary is None else graph.known_as(summary)

    @staticmethod
    def of_few(edge_index: Tensor, num_nodes: int) -> Graph:
        """The graph of an index (2, E) of int64 that numpy may read, checked as :meth:`read` does.

        Sources and targets are the same nodes.
        """
        size = num_nodes, num_nodes
        if not (edge_index.numel() and all_below(edge_index, num_nodes)):
            infer_size(edge_index, size, False)  # it refuses what is out of range
        return Graph.of(edge_index, size)

    @classmethod
    def recognises(cls, edge_index: Any) -> bool:
        """Whether the argument is a non-boolean tensor, a sparse matrix or a ``Graph``."""
        if isinstance(edge_index, Tensor) and edge_index.layout == torch.strided:
            return edge_index.dtype != torch.bool
        return isinstance(edge_index, Graph) or is_matrix(edge_index)

    @classmethod
    def read(  # type: ignore[override]
        cls,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        edge_type: Tensor | None = None,
        *,
        size: tuple[int | None, int | None] | None = None,
        batch: Tensor | tuple[Tensor, Tensor] | None = None,
        edge_attr: Tensor | None = None,
        pos: Tensor | tuple[Tensor, Tensor] | None = None,
        bipartite: bool | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> Graph:
        """Check edges, and infer M and N where they are not given.

        Args:
            edge_index: (2, E) integers, an ``EdgeIndex``, or a sparse matrix of size N × M, torch's
                or the ``SparseTensor`` of torch_sparse (rows are targets, as in PyG, whose layers
                take adjacency matrices transposed); the values of the matrix are the weights where
                ``edge_weight`` is None. Or a ``Graph``, which has its own weights and attributes.
            edge_weight: (E,) or (E, 1) floating point or integers.
            edge_type: (E,) integers, not negative.
            size: (M, N); an entry that is None is inferred as the largest index plus one (over both
                rows, if both entries are None and the edges are not bipartite).
            batch: (N,) integers, the graph of each node; for bipartite edges that of each target,
                or a pair, for sources (M,) and targets (N,).
            edge_attr: (E, *) of any dtype, for families that compute values from it.
            pos: (N, D) positions of nodes, or a pair for sources and targets, for the same
                families.
            bipartite: whether sources and targets are different nodes; by default where M ≠ N.
            device: ignored; edges are where they are.
            dtype: the dtype of the result's weights (layers pass that of x); if None, that of
                ``edge_weight``, or torch's default for integers.

        Returns:
            The graph. It shares tensors with the arguments, except for weights of another dtype
            and indices shorter than int32, which become int64.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: shapes do not fit, sizes disagree, an index is out of range, a weight is NaN
                or infinite; or weights, types, attributes or positions come beside a ``Graph``.
        """
        if isinstance(edge_index, Graph):
            beside = {"edge_weight": edge_weight, "edge_type": edge_type, "edge_attr": edge_attr}
            refuse_beside("Graph objects", beside | {"pos": pos})
            weight = edge_index.edge_weight
            if weight is not None and dtype not in (None, weight.dtype):
                edge_index = edge_index.but(edge_weight=weight.to(dtype))
            return completed(edge_index, size, batch, bipartite)
        if size is not None:
            check_size(size)
        is_list = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
        if not is_list and is_matrix(edge_index):
            edge_index, edge_weight, size = from_sparse(edge_index, edge_weight, size)
        if isinstance(edge_index, EdgeIndex):
            sparse_size = edge_index.sparse_size()
            size = agreed("the EdgeIndex", sparse_size, size)
            edge_index = edge_index.as_tensor()
        if bipartite is not None and bipartite is not True and bipartite is not False:
            check_type("Graph", "bipartite", bipartite, bool)
        graph = Graph.of_index(edge_index, size, bool(bipartite), edge_weight, edge_type, dtype)
        edge_index, seen = graph.edge_index, graph.summary
        if edge_weight is not None:
            float_weight = graph.edge_weight
            if float_weight is None:
                float_weight = numbers("edge_weight", edge_weight, edge_index, dtype)
            edge_weight = float_weight
            check_edge_vector("edge_weight", edge_weight, edge_index, floating=True, summary=seen)
        if edge_type is not None:
            check_edge_vector("edge_type", edge_type, edge_index, floating=False, summary=seen)
        if edge_attr is not None:
            check_attributes(edge_attr, edge_index)
        ends = (pos, pos) if isinstance(pos, Tensor) else pos
        own = vars(graph)
        own["edge_weight"], own["edge_type"] = edge_weight, edge_type
        own["edge_attr"], own["pos"] = edge_attr, ends
        if batch is None and bipartite is not False:
            return graph
        return completed(graph, None, batch, bipartite)

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """Whether the ``Data`` object has ``edge_index`` or ``adj_t``."""
        return data.get("edge_index") is not None or data.get("adj_t") is not None

    @classmethod
    def of_data(cls, data: Data) -> Graph:
        """The graph of a ``Data`` object; see :func:`.interop.edge_list_of`."""
        return Graph.read(**edges_of(data))

    @property
    def num_edges(self) -> int:
        """Number of edges E, parallel edges included."""
        return self.edge_index.size(1)

    @property
    def source(self) -> Tensor:
        """(E,) the source of each edge."""
        return self.edge_index[0]

    @property
    def target(self) -> Tensor:
        """(E,) the target of each edge."""
        return self.edge_index[1]

    @property
    def device(self) -> torch.device:
        """The device of the edges."""
        return self.edge_index.device

    def weight(self, dtype: torch.dtype | None = None) -> Tensor:
        """(E,) the edge weights, or ones of ``dtype`` if there are none."""
        if self.edge_weight is not None:
            return self.edge_weight
        return torch.ones(self.num_edges, dtype=dtype, device=self.device)

    def with_rows(self, num_labels: int) -> Tensor:
        """(2, E) the source of each edge, and the row of its target and type, target · K + type."""
        if num_labels == 1:
            return self.edge_index
        source, target = self.edge_index
        return torch.stack([source, target * num_labels + self.edge_type])

    @property
    def summary(self) -> Summary | None:
        """What was read of the edges and their types, if that waited for a device, else None."""
        index, types, _, summary = vars(self).get("_cached_summary", _UNKNOWN)
        is_same = index is self.edge_index and types is self.edge_type
        return summary if is_same else None  # type: ignore[no-any-return]

    @property
    def has_negative(self) -> bool | None:
        """Whether a weight is negative, None where that is not known without a look."""
        if self.edge_weight is None:
            return False
        _, _, weight, summary = vars(self).get("_cached_summary", _UNKNOWN)
        return summary.has_negative if weight is self.edge_weight else None  # type: ignore[no-any-return]

    def known_as(self, summary: Summary) -> Graph:
        """The same object, after this was read of its edges, types and weights."""
        own = self.edge_index, self.edge_type, self.edge_weight
        vars(self)["_cached_summary"] = *own, summary
        return self

    def reversed(self) -> Graph:
        """The graph with sources and targets exchanged: from N sources to M targets."""
        pos, summary = None if self.pos is None else self.pos[::-1], self.summary
        flipped = self.but(edge_index=self.edge_index.flip(0), size=self.size[::-1], pos=pos)
        if summary is not None:
            flipped.known_as(summary.reversed())
        if not self.bipartite:
            return flipped
        return flipped.but(batch=self.source_batch, source_batch=self.batch)

    def bare(self) -> Graph:
        attributes = {"edge_weight": self.edge_weight, "edge_type": self.edge_type}
        attributes |= {"edge_attr": self.edge_attr, "origin": None}
        none = {name: None if each is None else each[:0] for name, each in attributes.items()}
        return self.but(edge_index=self.edge_index[:, :0], is_bare=True, **none)

    def select(self, mask: Tensor) -> Graph:
        """The edges where ``mask`` (E,) is true, or those at its places."""
        if mask.dtype == torch.bool:
            refuse_captured(mask, "edges of some kind")
        return self.but(
            edge_index=self.edge_index[:, mask],
            edge_weight=None if self.edge_weight is None else self.edge_weight[mask],
            edge_type=None if self.edge_type is None else self.edge_type[mask],
            origin=self.origins()[mask],
            edge_attr=None if self.edge_attr is None else self.edge_attr[mask],
        )

    def with_diagonal(self, value: Tensor, nodes: Tensor) -> Graph:
        """Append a self-loop at each of ``nodes``, of weight ``value``."""
        return self.with_added(torch.cat([self.edge_index, nodes.expand(2, -1)], dim=1), value)

    def with_added(self, edge_index: Tensor, value: Tensor | None) -> Graph:
        """The edges with others after them, (2, E + L), of weight ``value`` (L,).

        Without a value all edges weigh 1, as these have to.
        """
        count = self.edge_index.size(1)
        origin = count if self.origin is None else self.origin
        if isinstance(origin, Tensor) and origin.dim():  # under a tracer, a count is a tensor too
            origin = torch.cat([origin, torch.full_like(edge_index[0, count:], -1)])
        weight = None if value is None else torch.cat([self.weight(value.dtype), value])
        return self.but(
            edge_index=edge_index, edge_weight=weight, edge_type=None, origin=origin, edge_attr=None
        )

    def origins(self) -> Tensor:
        """``origin`` as a tensor (E,)."""
        if isinstance(self.origin, Tensor) and self.origin.dim():
            return self.origin
        order = torch.arange(self.edge_index.size(1), device=self.edge_index.device)
        return order if self.origin is None else torch.where(order < self.origin, order, -1)

    def but(self, **changes: Any) -> Graph:
        """A copy with some attributes changed; faster than ``dataclasses.replace``."""
        new = changed(self, **changes)
        if (cached_summary := vars(self).get("_cached_summary")) is not None:
            vars(new)["_cached_summary"] = cached_summary
        return new

    def at(self, pos: tuple[Tensor, Tensor]) -> Graph:
        """The same edges with positions (M, D) of sources and (N, D) of targets."""
        return self.but(pos=pos)

    def made_of(self) -> tuple[tuple[Tensor | None, ...], Hashable] | None:
        """The tensors of the edges, with sizes; None for edges that a family has changed."""
        if self.origin is not None:
            return None
        edges = self.edge_index, self.edge_weight, self.edge_type
        return (*edges, self.source_batch, self.batch), (self.size, self.bipartite)

    def require_one_set(self, what: str, instead: str) -> None:
        """Refuse different sources and targets for ``what``; ``instead`` is said of a pair."""
        check_one_set(self.bipartite, self.size, what, instead)

    def require_separate_graphs(self, what: str) -> None:
        """Refuse edges between different graphs of the batch for ``what``."""
        if self.batch is None or self.num_edges == 0:
            return
        crosses = self.batch[self.source.long()] != self.batch[self.target.long()]
        if not holds(~crosses.any()):
            edge = self.edge_index[:, crosses][:, 0].tolist()
            raise RefusedValue(
                f"{what} treats each graph of the batch by itself",
                "edges within a graph",
                f"{edge[0]} -> {edge[1]}, from graph {int(self.batch[edge[0]])} "
                f"to {int(self.batch[edge[1]])}",
            )

    def require_nonnegative(self, what: str, otherwise: str = "") -> None:
        """Refuse negative edge weights for ``what``; ``otherwise`` is an alternative."""
        if self.edge_weight is None or self.num_edges == 0:
            return
        if self.has_negative is False:
            return
        lowest = self.edge_weight.detach().min()
        if not holds(lowest >= 0):
            raise RefusedValue(
                f"{what} needs edge weights that are not negative",
                f"edge_weight >= 0{', ' if otherwise else ''}{otherwise}",
                f"a weight of {float(lowest):g}",
            )


def completed(
    graph: Graph,
    size: tuple[int | None, int | None] | None,
    batch: Tensor | tuple[Tensor, Tensor] | None,
    bipartite: bool | None,
) -> Graph:
    """The graph with ``batch`` and ``bipartite``, if no argument contradicts it."""
    agreed("the Graph", graph.size, size)
    if bipartite is False and graph.bipartite:
        raise RefusedValue("one set of nodes has as many sources as targets", "M = N", graph.size)
    if bipartite and not graph.bipartite:
        graph = graph.but(bipartite=True)
    if batch is None or batch is graph.batch:
        return graph
    if graph.batch is not None or graph.source_batch is not None:
        raise RefusedValue("this Graph already has a batch", "no other", "batch")
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        check_batch(batch, graph.size[1])
        return graph.but(batch=batch)
    if not graph.bipartite:
        raise RefusedValue(
            "sources and targets that are the same nodes have one batch", "one", "a pair"
        )
    for end, count in zip(batch, graph.size, strict=True):
        check_batch(end, count)
    return graph.but(source_batch=batch[0], batch=batch[1])
