"""A structure: the edges as they were given, before any family makes a basis of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from ..errors import RefusedType, RefusedValue, refusal
from ..kernels.index_checks import has_numbers
from ..kernels.loops import with_loops
from .checks import (
    agreed,
    check_attributes,
    check_batch,
    check_edge_vector,
    check_index,
    check_one_set,
    check_size,
    holds,
    numbers,
)
from .pyg_data import edges_of
from .structure import Structure, refuse_beside


@dataclass(frozen=True, eq=False)
class EdgeList(Structure):
    """A checked edge list from M sources to N targets, in the order in which it was given.

    Attributes:
        edge_index: (2, E) integers; row 0 holds sources, row 1 targets.
        size: (M, N).
        edge_weight: (E,) floating point, or None for ones.
        edge_type: (E,) integers, or None.
        batch: (N,) the graph each node belongs to, for families that treat graphs one by one.
        origin: (E,) the position of each edge in the list that the user gave, -1 for an edge that
            a family added; or how many edges, the first ones, are the user's, whose list it still
            is where there are no others; None for all.
        edge_attr: (E, *) what else is known of each edge, or None.
        pos: positions (M, D) of sources and (N, D) of targets, or None; unchecked.
        bipartite: whether sources and targets are different nodes, as those of a pair of features
            are; M ≠ N says so, M = N says nothing.
        source_batch: (M,) the graphs of sources that are other nodes than targets, or None.
        only_sums: whether values are only added up, so that an edge of weight 0 is as good as none.
            A compiler needs to know how many edges there are before it sees them.
        is_bare: see :meth:`Structure.bare`.
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
        if not self.bipartite and self.size[0] != self.size[1]:
            object.__setattr__(self, "bipartite", True)

    @staticmethod
    def of(edge_index: Tensor, size: tuple[int, int], **others: Any) -> EdgeList:
        """The constructor, in less time: a frozen class sets its attributes one by one."""
        made = object.__new__(EdgeList)
        vars(made).update(edge_index=edge_index, size=size, **others)
        if size[0] != size[1]:
            vars(made)["bipartite"] = True
        return made

    @classmethod
    def recognises(cls, given: Any) -> bool:
        """See :meth:`Structure.recognises`: whatever tensor holds no switches."""
        if isinstance(given, Tensor) and given.layout == torch.strided:
            return given.dtype != torch.bool
        return isinstance(given, EdgeList) or is_matrix(given)

    @classmethod
    def read(cls, given: Any, *, device: torch.device | None = None, **beside: Any) -> EdgeList:
        """See :func:`structure`; edges are where their tensors are."""
        return structure(given, **beside)

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """Whether it has edge_index or adj_t."""
        return data.get("edge_index") is not None or data.get("adj_t") is not None

    @classmethod
    def of_data(cls, data: Data) -> EdgeList:
        """See :func:`.interop.edge_list_of`."""
        return structure(**edges_of(data))

    @property
    def num_edges(self) -> int:
        """E, parallel edges counted each."""
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
        """Where the edges are."""
        return self.edge_index.device

    def weight(self, dtype: torch.dtype | None = None) -> Tensor:
        """(E,) the edge weights, ones of type ``dtype`` where none were given."""
        if self.edge_weight is not None:
            return self.edge_weight
        return torch.ones(self.num_edges, dtype=dtype, device=self.device)

    def reversed(self) -> EdgeList:
        """Every edge turned round: from N sources to M targets."""
        pos = None if self.pos is None else self.pos[::-1]
        turned = replace(self, edge_index=self.edge_index.flip(0), size=self.size[::-1], pos=pos)
        if not self.bipartite:
            return turned
        return replace(turned, batch=self.source_batch, source_batch=self.batch)

    def bare(self) -> EdgeList:
        """See :meth:`Structure.bare`: the nodes without edges."""
        known = {"edge_weight": self.edge_weight, "edge_type": self.edge_type}
        known |= {"edge_attr": self.edge_attr, "origin": None}
        none = {name: None if each is None else each[:0] for name, each in known.items()}
        return self.but(edge_index=self.edge_index[:, :0], is_bare=True, **none)

    def select(self, mask: Tensor) -> EdgeList:
        """The edges where ``mask`` (E,) is true."""
        return replace(
            self,
            edge_index=self.edge_index[:, mask],
            edge_weight=None if self.edge_weight is None else self.edge_weight[mask],
            edge_type=None if self.edge_type is None else self.edge_type[mask],
            origin=self.origins()[mask],
            edge_attr=None if self.edge_attr is None else self.edge_attr[mask],
        )

    def with_diagonal(self, value: Tensor | None, nodes: Tensor) -> EdgeList:
        """Append an edge from each of ``nodes`` to itself.

        ``value`` has one for each of them; None adds edges of 1 to those that have no weights.
        """
        origin = self.num_edges if self.origin is None else self.origin
        if isinstance(origin, Tensor) and origin.dim():  # a tracer counts in tensors
            origin = torch.cat([origin, torch.full_like(nodes, -1)])
        weight = None if value is None else torch.cat([self.weight(value.dtype), value])
        return self.but(
            edge_index=with_loops(self.edge_index, nodes),
            edge_weight=weight,
            edge_type=None,
            origin=origin,
            edge_attr=None,
        )

    def origins(self) -> Tensor:
        """(E,) ``origin``, spelled out."""
        if isinstance(self.origin, Tensor) and self.origin.dim():
            return self.origin
        order = torch.arange(self.num_edges, device=self.device)
        return order if self.origin is None else torch.where(order < self.origin, order, -1)

    def but(self, **changes: Any) -> EdgeList:
        """The same with other attributes; ``dataclasses.replace`` takes longer than small sums."""
        new = object.__new__(type(self))
        vars(new).update(vars(self), **changes)
        return new

    def at(self, pos: tuple[Tensor, Tensor]) -> EdgeList:
        """See :meth:`Structure.at`."""
        return self.but(pos=pos)

    def made_of(self) -> tuple[tuple[Tensor | None, ...], Hashable] | None:
        """See :meth:`Structure.made_of`; edges that a family has changed are of no user."""
        if self.origin is not None:
            return None
        edges = self.edge_index, self.edge_weight, self.edge_type
        return (*edges, self.source_batch, self.batch), (self.size, self.bipartite)

    def require_one_set(self, what: str, instead: str) -> None:
        """Refuse two sets of nodes for something that one set alone has.

        Args:
            what: what needs one set.
            instead: what does for a pair.

        Raises:
            ValueError: sources and targets are different nodes.
        """
        check_one_set(self.bipartite, self.size, what, instead)

    def require_separate_graphs(self, what: str) -> None:
        """Refuse edges from one graph of the batch to another, where each is treated by itself.

        Raises:
            ValueError: there is one.
        """
        if self.batch is None or self.num_edges == 0:
            return
        crosses = self.batch[self.source.long()] != self.batch[self.target.long()]
        if not holds(~crosses.any()):
            edge = self.edge_index[:, crosses][:, 0].tolist()
            raise RefusedValue(
                refusal(
                    f"{what} is of one graph, as batch tells them apart",
                    "edges within a graph",
                    f"{edge[0]} -> {edge[1]}, from graph {int(self.batch[edge[0]])} "
                    f"to {int(self.batch[edge[1]])}",
                )
            )

    def require_nonnegative(self, what: str, otherwise: str = "") -> None:
        """Refuse negative weights where something needs positive ones.

        Args:
            what: that which needs them.
            otherwise: what may be done instead, if anything.

        Raises:
            ValueError: an edge weight is negative.
        """
        if self.edge_weight is None or self.num_edges == 0:
            return
        lowest = self.edge_weight.detach().min()
        if not holds(lowest >= 0):
            raise RefusedValue(
                refusal(
                    f"{what} needs edge weights that are not negative",
                    f"edge_weight >= 0{', ' if otherwise else ''}{otherwise}",
                    f"a weight of {float(lowest):g}",
                )
            )


def structure(
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
) -> EdgeList:
    """Check an edge list and say how many sources and targets it runs between.

    Args:
        edge_index: (2, E) integers, an ``EdgeIndex``, or a sparse matrix of size N × M, torch's or
            the ``SparseTensor`` of torch_sparse (rows are targets, as in PyG, whose layers take
            adjacency matrices transposed); the values of the matrix are the weights where
            ``edge_weight`` is None. Or a structure, which has its own weights and attributes.
        edge_weight: (E,) or (E, 1) floating point or integers.
        edge_type: (E,) integers, not negative.
        size: (M, N); an entry that is None is the largest index plus one (of both rows, where
            both entries are None and nodes are one set).
        batch: (N,) integers, the graph of each node; of two sets of nodes that of the targets, or
            a pair, of sources (M,) and of targets (N,).
        edge_attr: (E, *) of any type, for families that make values of it.
        pos: (N, D) positions of nodes, or a pair for sources and targets, for such families too.
        bipartite: whether sources and targets are different nodes; by default where M ≠ N.
        dtype: the type in which weights are taken, which layers take in that of x; if None, theirs,
            or torch's default for integers.

    Returns:
        The structure, its tensors shared with the arguments, unless weights are of another type,
        or integers too short to index with: those become int64.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: shapes do not fit, sizes disagree, an index is out of range, a weight is NaN
            or infinite; or something comes beside a structure that has it already.
    """
    if isinstance(edge_index, EdgeList):
        beside = {"edge_weight": edge_weight, "edge_type": edge_type, "edge_attr": edge_attr}
        refuse_beside("edges that were read", beside | {"pos": pos})
        weight = edge_index.edge_weight
        if weight is not None and dtype not in (None, weight.dtype):
            edge_index = replace(edge_index, edge_weight=weight.to(dtype))
        return completed(edge_index, size, batch, bipartite)
    if size is not None:
        check_size(size)
    is_list = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
    if not is_list and is_matrix(edge_index):
        edge_index, edge_weight, size = _from_sparse(edge_index, edge_weight, size)
    if not isinstance(edge_index, Tensor):
        raise RefusedType(
            refusal(
                "edge_index must be a tensor, an EdgeIndex or a sparse matrix",
                "Tensor",
                type(edge_index).__name__,
            )
        )
    if isinstance(edge_index, EdgeIndex):
        known = edge_index.sparse_size()
        size = agreed("the EdgeIndex", known, size)
        edge_index = edge_index.as_tensor()
    check_index(edge_index)
    if edge_index.dtype not in (torch.int64, torch.int32):
        edge_index = edge_index.long()
    if edge_weight is not None:
        edge_weight = numbers("edge_weight", edge_weight, edge_index, dtype)
        check_edge_vector("edge_weight", edge_weight, edge_index, floating=True)
    if edge_type is not None:
        check_edge_vector("edge_type", edge_type, edge_index, floating=False)
    if edge_attr is not None:
        check_attributes(edge_attr, edge_index)
    full_size = _infer_size(edge_index, size, bool(bipartite))
    ends = (pos, pos) if isinstance(pos, Tensor) else pos
    known = EdgeList.of(
        edge_index,
        full_size,
        edge_weight=edge_weight,
        edge_type=edge_type,
        edge_attr=edge_attr,
        pos=ends,
        bipartite=bool(bipartite),
    )
    if batch is None and bipartite is not False:
        return known
    return completed(known, None, batch, bipartite)


def completed(
    known: EdgeList,
    size: tuple[int | None, int | None] | None,
    batch: Tensor | tuple[Tensor, Tensor] | None,
    bipartite: bool | None,
) -> EdgeList:
    """Edges that were read, with what else is said of their nodes."""
    agreed("the edges that were read", known.size, size)
    if bipartite is False and known.bipartite:
        raise RefusedValue(
            refusal("one set of nodes has as many sources as targets", "M = N", known.size)
        )
    if bipartite and not known.bipartite:
        known = replace(known, bipartite=True)
    if batch is None or batch is known.batch:
        return known
    if known.batch is not None or known.source_batch is not None:
        raise RefusedValue(refusal("edges that were read have their batch", "no other", "batch"))
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        check_batch(batch, known.size[1])
        return replace(known, batch=batch)
    if not known.bipartite:
        raise RefusedValue(
            refusal("sources and targets that are the same nodes have one batch", "one", "a pair")
        )
    for end, count in zip(batch, known.size, strict=True):
        check_batch(end, count)
    return replace(known, source_batch=batch[0], batch=batch[1])


def is_matrix(given: Any) -> bool:
    """Whether edges are given as a sparse matrix: torch's, or torch_sparse's ``SparseTensor``.

    The latter is known by its methods: PyG runs without the package.
    """
    return is_torch_sparse_tensor(given) or (
        hasattr(given, "coo") and hasattr(given, "sparse_sizes")
    )


def _from_sparse(
    matrix: Any, edge_weight: Tensor | None, size: tuple[int | None, int | None] | None
) -> tuple[Tensor, Tensor | None, tuple[int | None, int | None]]:
    is_torchs = isinstance(matrix, Tensor)
    rows, columns = matrix.shape if is_torchs else matrix.sparse_sizes()
    known = (columns, rows)
    agreed("the sparse matrix, which has a row for each target", known, size)
    if not is_torchs:
        row, column, value = matrix.coo()
        row_col = torch.stack([row, column])
    elif matrix.layout == torch.sparse_coo and not matrix.is_coalesced():
        # Parallel edges are kept apart, as everywhere else.
        if matrix.requires_grad:
            raise RefusedValue(
                refusal(
                    "torch gives values of a COO matrix gradients only where it is coalesced",
                    "matrix.coalesce()",
                    "a matrix that is not",
                )
            )
        row_col, value = matrix._indices(), matrix._values()
    elif matrix.layout == torch.sparse_coo:
        row_col, value = matrix.indices(), matrix.values()
    else:
        row_col, value = to_edge_index(matrix)
    return (
        row_col.flip(0),
        value if edge_weight is None else edge_weight,
        known,
    )


def _infer_size(
    edge_index: Tensor, size: tuple[int | None, int | None] | None, bipartite: bool
) -> tuple[int, int]:
    if size is not None and not has_numbers(edge_index):  # nothing to look at, and no need to
        num_sources, num_targets = size
        if num_sources is not None and num_targets is not None:
            return num_sources, num_targets
    size = size or (None, None)
    if size[0] is not None and size[0] == size[1] and edge_index.numel():
        least, most = edge_index.aminmax()
        if int(least) >= 0 and int(most) < size[0]:
            return size[0], size[0]
    if not edge_index.numel():
        lowest, highest = 0, [-1, -1]
    elif size == (None, None) and not bipartite:
        least, most = edge_index.aminmax()
        lowest, highest = int(least), [int(most)] * 2
    else:
        least, most = edge_index.aminmax(dim=1)
        lowest, highest = int(least.min()), most.tolist()
    if lowest < 0:
        raise RefusedValue(refusal("edge_index must not be negative", ">= 0", lowest))
    if size == (None, None) and not bipartite:
        return max(highest) + 1, max(highest) + 1
    full = (
        highest[0] + 1 if size[0] is None else size[0],
        highest[1] + 1 if size[1] is None else size[1],
    )
    for name, end, count in zip(("source", "target"), highest, full, strict=True):
        if end >= count:
            raise RefusedValue(
                refusal(
                    f"every {name} in edge_index must be one of the {name} nodes",
                    f"an index below {count}",
                    end,
                )
            )
    return full
