"""Bases stored on a graph by a transform, and the check that they still belong to the graph.

The sets of edges in a basis are stored. All else is taken from the basis of the same nodes without
edges, for sizes and rules follow the batch; so no family is known here. Of explicit edges alone no
second basis is made.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..basis.base import Basis
from ..basis.edge_sets import differ_in_edges, edge_sets, outline, with_edge_sets
from ..basis.edges import EdgeBasis, no_edges
from ..basis.pattern import Pattern, index_type
from ..errors import RefusedValue
from ..graph.cells import Cells
from ..graph.graph import Graph
from ..graph.node_set import NodeSet
from ..graph.structure import Structure
from .options import nested

if TYPE_CHECKING:
    from .family import Family

# Vectors with an entry for each edge of a set. PyG shifts attributes with "index" in their name by
# the number of nodes when it collates, and its transforms select along the first axis among
# attributes with as many entries as edges.
PARTS = ("source_index", "target_index", "label", "value")

_PART = re.compile(rf"\w+_[0-9a-f]{{8}}_\d+_({'|'.join(PARTS)}|mark)")

ODD = -7046029254386353131  # 2⁶⁴ divided by the golden ratio, as a signed number

NOT_TO_BE_READ = -1  # outline of a basis in which more than its edges depends on the graph


def check_storable(family: Family) -> None:
    """Refuse a family whose basis cannot be stored on a graph."""
    if any(part.learns for part in nested(family)):
        raise RefusedValue(
            "a transform stores constant values",
            "a family without parameters",
            f"{family}; basis_of(data) makes its basis",
        )
    if not family.keeps_nodes:
        raise RefusedValue(
            "a transform stores edges between the nodes of a graph",
            "a family whose targets are the nodes",
            f"{family}; basis_of(data) makes its basis",
        )


def store(family: Family, data: Data, structure: Structure) -> None:
    """Store the edges of a family's basis on a graph, with a hash of the graph as a mark."""
    basis, stored_edges, key = family.basis_on(structure), [], _key(family)
    for number, edges in enumerate(edge_sets(basis)):
        source, target = edges.index.long().unbind(0)
        # Copies: PyG shares storage between what collates, and rows of one tensor would be one.
        parts = (source.clone(), target.clone(), edges.label.long(), edges.values().detach())
        stored_edges.append(parts)
        for what, part in zip(PARTS, parts, strict=True):
            data[f"{key}_{number}_{what}"] = part
    counts = torch.tensor([structure.size[0]], device=structure.device)
    mark = _mark(family, structure, stored_edges, counts, _outline_on(family, basis, structure))
    if mark is not None and stored_edges:
        data[f"{key}_0_mark"] = mark


def stored(family: Family, data: Data, structure: Structure) -> Basis | None:
    """The basis of stored edges, or None if there are none or the graph has changed since.

    The mark of each graph has its numbers of nodes and edges, and sums of hashes of edges, weights,
    types, nodes and stored values, in the graph's own numbering and independent of order. If the
    graph's weights or attributes require gradients, the result is None too, since stored values
    have none.
    """
    key, stored_edges = _key(family), []
    mark = data.get(f"{key}_0_mark")
    if not isinstance(mark, Tensor) or mark.dim() != 2 or mark.size(1) != 5 or not len(mark):
        return None
    if any(part.requires_grad for part in _read_by(family, structure)):
        return None
    mark = mark.to(structure.device)
    counts, kind = mark[:, 0], int(mark[0, 4])
    for number in range(kind >> 32):
        parts = tuple(data.get(f"{key}_{number}_{what}") for what in PARTS)
        if not all(isinstance(part, Tensor) and part.dim() == 1 for part in parts):
            return None
        if len({part.shape for part in parts}) > 1:
            return None
        stored_edges.append(tuple(part.to(structure.device) for part in parts))
    if not stored_edges or bool((counts < 0).any()) or int(counts.sum()) != structure.size[0]:
        return None
    expected = _mark(family, structure, stored_edges, counts, kind)
    if expected is None or not torch.equal(mark, expected):
        return None
    return _read_back(family, structure, stored_edges, kind)


def is_stored(key: str) -> bool:
    """Whether an attribute of this name is part of a stored basis."""
    return _PART.fullmatch(key) is not None


def _outline_on(family: Family, basis: Basis, structure: Structure) -> int:
    """The outline of a basis, or ``NOT_TO_BE_READ`` if edges alone do not restore it."""
    kind = outline(basis)
    if isinstance(basis, EdgeBasis) or not kind >> 32:
        return kind
    if any(edges.size != structure.size for edges in edge_sets(basis)):
        return NOT_TO_BE_READ
    frame = family.basis_on(structure.bare(), basis.dtype)
    return kind if differ_in_edges(basis, frame) else NOT_TO_BE_READ


def _read_back(
    family: Family, structure: Structure, stored_edges: Sequence[Sequence[Tensor]], kind: int
) -> Basis | None:
    """The basis of that outline with these sets of edges, or None if outlines differ now."""
    dtype = stored_edges[0][3].dtype
    if len(stored_edges) == 1:
        none = no_edges(structure.size, structure.device, family.num_bases)
        for alone in (none.with_values(stored_edges[0][3][:0]), none):
            if kind == outline(alone):
                return _edges_like(alone, stored_edges[0])
    frame = family.basis_on(structure.bare(), dtype)
    if kind != outline(frame):  # a batch may have a basis of another kind than its graphs
        return None
    frame = frame if frame.dtype in (None, dtype) else frame.to(dtype)
    return with_edge_sets(frame, lambda sets: list(map(_edges_like, sets, stored_edges)))


def _edges_like(bare: EdgeBasis, parts: Sequence[Tensor]) -> EdgeBasis:
    """The stored edges, with the labels of ``bare``, and without values if it has none."""
    source, target, label, value = parts
    size, count = bare.size, bare.num_bases
    place = target if count == 1 else target * count + label
    if bool((place[1:] >= place[:-1]).all()):  # still sorted, as after batching by PyG
        dtype = index_type(size, count, source.numel())
        ends = [part.to(dtype, copy=True) for part in (source, target, label)]
        pattern = Pattern.of_sorted(*ends, size=size, num_labels=count)
    else:
        index, labels = torch.stack([source, target]), label if count > 1 else None
        pattern = Pattern.of_list(index, labels, size=size, num_labels=count)
    return EdgeBasis.of_list(pattern, None if bare.dtype is None else value)


def _read_by(family: Family, structure: Any) -> list[Tensor]:
    """The weights, attributes and positions that the family reads."""
    named = [name for name in ("edge_weight", "edge_attr", "pos") if family.makes_use_of(name)]
    inputs = [getattr(structure, name, None) for name in named]
    ends = [end for part in inputs for end in (part if isinstance(part, tuple) else (part,))]
    return [end for end in ends if end is not None]


def _key(family: Family) -> str:
    """The prefix of the attributes in which the edges of a family are stored."""
    return f"{type(family).__name__.lower()}_{zlib.crc32(repr(family).encode()):08x}"


# The mark ---------------------------------------------------------------------------------------


def _mark(
    family: Family,
    structure: Structure,
    stored_edges: Iterable[Sequence[Tensor]],
    counts: Tensor,
    kind: int,
) -> Tensor | None:
    """The mark (B, 5): nodes, edges, hashes of the input and of the stored edges, and the outline.

    ``counts`` (B,) has the number of nodes of each graph, ``kind`` the outline of the basis. None
    for an unknown kind of structure.
    """
    if not isinstance(structure, Graph | Cells | NodeSet):
        return None
    counts = counts.contiguous()
    ends = counts.cumsum(0)
    begins, last = ends - counts, max(0, counts.numel() - 1)

    def graph_of(node: Tensor) -> Tensor:
        return torch.searchsorted(ends, node.contiguous(), right=True).clamp(max=last)

    def summed(hashes: Tensor, graph: Tensor) -> Tensor:
        return torch.zeros_like(counts).index_add(0, graph, hashes)

    def edges(graph: Tensor, source: Tensor, target: Tensor, *columns: Tensor | None) -> Tensor:
        begin = begins.index_select(0, graph)
        return summed(_hash(source - begin, target - begin, *columns), graph)

    read, num_edges = torch.zeros_like(counts), torch.zeros_like(counts)
    if isinstance(structure, Graph):
        source, target = structure.edge_index.long().unbind(0)
        attr = structure.edge_attr if family.makes_use_of("edge_attr") else None
        graph = graph_of(target)
        read = edges(graph, source, target, structure.edge_weight, structure.edge_type, attr)
        num_edges = summed(torch.ones_like(target), graph)
    nodes = torch.arange(structure.size[0], device=counts.device)
    graph = graph_of(nodes)
    begin = begins.index_select(0, graph)
    read = read + summed(_hash(nodes - begin, *_of_nodes(family, structure, begin)), graph)
    kept = torch.zeros_like(counts)
    for number, (source, target, label, value) in enumerate(stored_edges):
        # The graph may be cast to another dtype, which must not change the hash.
        kept = kept + (number + 1) * edges(graph_of(target), source, target, label, value.float())
    kinds = torch.full_like(counts, kind)
    return torch.stack([counts, num_edges, read, kept, kinds], dim=1)


def _of_nodes(family: Family, structure: Any, begin: Tensor) -> list[Tensor | None]:
    """The columns read of each node; ``begin`` is the first node of its graph."""
    batch, pos = structure.batch, getattr(structure, "pos", None)
    batch = batch[0] if isinstance(batch, tuple) else batch
    columns = [structure.index if isinstance(structure, Cells) else None]
    if batch is not None:  # the graph number relative to that of the first node
        columns.append((batch - batch.index_select(0, begin)).long())
    else:
        columns.append(torch.zeros_like(begin))
    columns.append(pos[0] if pos is not None and family.makes_use_of("pos") else None)
    return columns


def _hash(first: Tensor, *columns: Tensor | None) -> Tensor:
    """Hashes (n,) of integers (n,) and of columns (n,) or (n, *) that are not None."""
    hashes = first * ODD
    hashes ^= hashes >> 31
    for place, column in enumerate(columns):
        if column is not None:
            for part in _bits(column).flatten(1).unbind(1):
                hashes = _mixed(hashes + place, part)
    return _mixed(hashes, hashes >> 17)


def _bits(column: Tensor) -> Tensor:
    """The bits of numbers (n, *) as integers, with at least two axes."""
    column = column.detach().unsqueeze(-1)
    if column.is_floating_point():
        kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        column = column.view(kinds[column.element_size()])
    return column.long()


def _mixed(hashes: Tensor, part: Tensor) -> Tensor:
    """A hash combined with one more number; integer products wrap around."""
    hashes = (hashes ^ part).mul_(ODD)
    hashes ^= hashes >> 31
    return hashes
