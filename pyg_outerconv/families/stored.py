"""What a transform stores on a graph, and whether it still belongs to what the graph holds.

The sets of edges that a basis is made of are stored; what else it is made of, its kind among it, is
that of the same nodes without edges.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..basis.base import Basis
from ..basis.edge_sets import differ_in_edges, edge_sets, outline, with_edge_sets
from ..basis.edges import EdgeBasis, no_edges
from ..basis.pattern import Pattern
from ..basis.pattern_index import index_type
from ..errors import RefusedValue, refusal
from ..graph.cells import Cells
from ..graph.edge_list import EdgeList
from ..graph.node_set import NodeSet
from ..graph.structure import Structure
from .parts import nested

if TYPE_CHECKING:
    from .family import Family

# Vectors with an entry for each edge of a set. "index" in a name makes PyG shift it by the
# number of nodes when it collates; and transforms of PyG that find as many entries as edges may
# select some, which they do along the first axis.
PARTS = ("source_index", "target_index", "label", "value")

ODD = -7046029254386353131  # 2⁶⁴ divided by the golden ratio, as a signed number

NOT_TO_BE_READ = -1  # the outline of a basis that depends on edges in more than its edges


def check_storable(family: Family) -> None:
    """Refuse a family of whose basis a graph can store nothing.

    Raises:
        ValueError: it makes targets of its own, or values that learn.
    """
    if any(part.learns for part in nested(family)):
        raise RefusedValue(
            refusal(
                "a graph stores values that stay",
                "a family without parameters",
                f"{family}; basis_of(data) makes its basis",
            )
        )
    if not family.keeps_nodes:
        raise RefusedValue(
            refusal(
                "a graph stores edges between its own nodes",
                "a family that makes no targets of its own",
                f"{family}; basis_of(data) makes its basis",
            )
        )


def store(family: Family, data: Data, structure: Structure) -> None:
    """Store the edges of a family's basis on a graph, with a mark of what they were made of."""
    basis, found, key = family.basis_on(structure), [], _key(family)
    for number, edges in enumerate(edge_sets(basis)):
        source, target = edges.index.long().unbind(0)
        # Copies: PyG shares storage between what collates, and rows of one tensor would be one.
        parts = (source.clone(), target.clone(), edges.label.long(), edges.values().detach())
        found.append(parts)
        for what, part in zip(PARTS, parts, strict=True):
            data[f"{key}_{number}_{what}"] = part
    counts = torch.tensor([structure.size[0]], device=structure.device)
    mark = _mark(family, structure, found, counts, _outline_on(family, basis, structure))
    if mark is not None and found:
        data[f"{key}_0_mark"] = mark


def stored(family: Family, data: Data, structure: Structure) -> Basis | None:
    """The basis of what was stored, or None if nothing was or the graph has changed since.

    Whatever a transform or a loader did to edges, weights, types, nodes or what was stored itself,
    the mark of each graph says: numbers of nodes and edges, and sums of hashes of all entries, in
    the graph's own numbering and in no particular order. What learns by now is not served either,
    for what was stored has no gradient.

    Args:
        family: what stored it.
        data: the graph, or a batch.
        structure: what it holds now.
    """
    key, found = _key(family), []
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
        found.append(tuple(part.to(structure.device) for part in parts))
    if not found or bool((counts < 0).any()) or int(counts.sum()) != structure.size[0]:
        return None
    expected = _mark(family, structure, found, counts, kind)
    if expected is None or not torch.equal(mark, expected):
        return None
    return _read_back(family, structure, found, kind)


def _outline_on(family: Family, basis: Basis, structure: Structure) -> int:
    """The outline of a basis that can be read back of its edges, and of nodes without any."""
    kind = outline(basis)
    if isinstance(basis, EdgeBasis) or not kind >> 32:
        return kind
    if any(edges.size != structure.size for edges in edge_sets(basis)):
        return NOT_TO_BE_READ
    frame = family.basis_on(structure.bare(), basis.dtype)
    return kind if differ_in_edges(basis, frame) else NOT_TO_BE_READ


def _read_back(
    family: Family, structure: Structure, found: Sequence[Sequence[Tensor]], kind: int
) -> Basis | None:
    """The basis of that outline, made of these sets of edges; None if there is none by now."""
    dtype = found[0][3].dtype
    if len(found) == 1:
        none = no_edges(structure.size, structure.device, family.num_bases)
        for alone in (none.with_values(found[0][3][:0]), none):
            if kind == outline(alone):
                return _edges_like(alone, found[0])
    frame = family.basis_on(structure.bare(), dtype)
    if kind != outline(frame):  # a batch may have another kind of basis than its graphs
        return None
    frame = frame if frame.dtype in (None, dtype) else frame.to(dtype)
    return with_edge_sets(frame, lambda sets: list(map(_edges_like, sets, found)))


def _edges_like(bare: EdgeBasis, parts: Sequence[Tensor]) -> EdgeBasis:
    """The edges that were stored, of as many labels, and of ones, as a set without any is."""
    source, target, label, value = parts
    size, count = bare.size, bare.num_bases
    place = target if count == 1 else target * count + label
    if bool((place[1:] >= place[:-1]).all()):  # as they were stored, and PyG batches them
        dtype = index_type(size, count, source.numel())
        ends = [part.to(dtype, copy=True) for part in (source, target, label)]
        pattern = Pattern.of_sorted(*ends, size=size, num_labels=count)
    else:
        index, labels = torch.stack([source, target]), label if count > 1 else None
        pattern = Pattern.of_list(index, labels, size=size, num_labels=count)
    return EdgeBasis.of_list(pattern, None if bare.dtype is None else value)


def _read_by(family: Family, structure: Any) -> list[Tensor]:
    """What stands beside edges and nodes, and the values of a basis are made of."""
    named = [name for name in ("edge_weight", "edge_attr", "pos") if family.makes_use_of(name)]
    held = [getattr(structure, name, None) for name in named]
    ends = [end for part in held for end in (part if isinstance(part, tuple) else (part,))]
    return [end for end in ends if end is not None]


def _key(family: Family) -> str:
    """How names begin under which the edges of a family are stored."""
    return f"{type(family).__name__.lower()}_{zlib.crc32(repr(family).encode()):08x}"


# The mark ---------------------------------------------------------------------------------------


def _mark(
    family: Family,
    structure: Structure,
    found: Iterable[Sequence[Tensor]],
    counts: Tensor,
    kind: int,
) -> Tensor | None:
    """(B, 5) of each graph: nodes, edges, what the family reads, what is stored, and the outline.

    Args:
        family: which says what it reads.
        structure: what the graphs hold.
        found: the parts of each set of edges.
        counts: (B,) the number of nodes of each graph.
        kind: the outline of the basis.

    Returns:
        None for a kind of structure of which nothing is known.
    """
    if not isinstance(structure, EdgeList | Cells | NodeSet):
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
    if isinstance(structure, EdgeList):
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
    for number, (source, target, label, value) in enumerate(found):
        # Values may be cast with the rest of the graph, and are the same then.
        kept = kept + (number + 1) * edges(graph_of(target), source, target, label, value.float())
    kinds = torch.full_like(counts, kind)
    return torch.stack([counts, num_edges, read, kept, kinds], dim=1)


def _of_nodes(family: Family, structure: Any, begin: Tensor) -> list[Tensor | None]:
    """What is read of each node; ``begin`` is the first node of its graph."""
    batch, pos = structure.batch, getattr(structure, "pos", None)
    batch = batch[0] if isinstance(batch, tuple) else batch
    columns = [structure.index if isinstance(structure, Cells) else None]
    if batch is not None:  # the graph of a node within what was one graph when it was stored
        columns.append((batch - batch.index_select(0, begin)).long())
    else:
        columns.append(torch.zeros_like(begin))
    columns.append(pos[0] if pos is not None and family.makes_use_of("pos") else None)
    return columns


def _hash(first: Tensor, *columns: Tensor | None) -> Tensor:
    """(n,) whole numbers made of whole numbers (n,) and of columns (n,) or (n, *), if there."""
    found = first * ODD
    found ^= found >> 31
    for place, column in enumerate(columns):
        if column is not None:
            for part in _bits(column).flatten(1).unbind(1):
                found = _mixed(found + place, part)
    return _mixed(found, found >> 17)


def _bits(column: Tensor) -> Tensor:
    """(n, *) numbers as whole ones, alike only where they are the same; at least two axes."""
    column = column.detach().unsqueeze(-1)
    if column.is_floating_point():
        kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        column = column.view(kinds[column.element_size()])
    return column.long()


def _mixed(found: Tensor, part: Tensor) -> Tensor:
    """A hash and one more number; products of whole numbers wrap around."""
    found = (found ^ part).mul_(ODD)
    found ^= found >> 31
    return found
