"""What a transform stores on a graph, and whether it still belongs to what the graph holds."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from .any_structure import AnyStructure
from .edges import EdgeBasis
from .grid.cells import Cells
from .pattern import Pattern
from .structure import Structure
from .unstructured import Unstructured

if TYPE_CHECKING:
    from .family import Family

# Vectors with an entry for each edge of an operator. "index" in a name makes PyG shift it by the
# number of nodes when it collates; and transforms of PyG that find as many entries as edges may
# select some, which they do along the first axis.
PARTS = ("source_index", "target_index", "label", "value")

ODD = -7046029254386353131  # 2⁶⁴ divided by the golden ratio, as a signed number


def store(family: Family, data: Data, structure: AnyStructure) -> None:
    """Store the operators of a family on a graph, with a mark of what they were made of."""
    operators = family.operators(structure, None)
    found = []
    for number, operator in enumerate(operators):
        source, target = operator.index.long().unbind(0)
        # Copies: PyG shares storage between what collates, and rows of one tensor would be one.
        parts = (source.clone(), target.clone(), operator.label.long(), operator.values())
        found.append(parts)
        for what, part in zip(PARTS, parts, strict=True):
            data[_key(family, number, what)] = part
    counts = torch.tensor([structure.size[0]], device=structure.device)
    mark = _mark(family, structure, found, counts)
    if mark is not None:
        data[_key(family, 0, "mark")] = mark


def stored(family: Family, data: Data, structure: AnyStructure) -> list[EdgeBasis] | None:
    """The operators that were stored, or None if there are none or the graph has changed since.

    Whatever a transform or a loader did to edges, weights, types, nodes or what was stored itself,
    the mark of each graph says: numbers of nodes and edges, and sums of hashes of all entries, in
    the graph's own numbering and in no particular order.

    Args:
        family: what stored them.
        data: the graph, or a batch.
        structure: what it holds now.
    """
    mark, found = data.get(_key(family, 0, "mark")), []
    if not isinstance(mark, Tensor) or mark.dim() != 2 or mark.size(1) != 4:
        return None
    for number in range(family.num_operators):
        parts = tuple(data.get(_key(family, number, what)) for what in PARTS)
        if not all(isinstance(part, Tensor) and part.dim() == 1 for part in parts):
            return None
        if len({part.shape for part in parts}) > 1:
            return None
        found.append(tuple(part.to(structure.device) for part in parts))
    mark = mark.to(structure.device)
    counts = mark[:, 0]
    if bool((counts < 0).any()) or int(counts.sum()) != structure.size[0]:
        return None
    expected = _mark(family, structure, found, counts)
    if expected is None or not torch.equal(mark, expected):
        return None
    kinds = zip(found, family.operator_labels(), strict=True)
    return [_operator(parts, structure.size, labels) for parts, labels in kinds]


def _operator(parts: Sequence[Tensor], size: tuple[int, int], num_labels: int) -> EdgeBasis:
    source, target, label, value = parts
    pattern = Pattern.build(torch.stack([source, target]), label, size=size, num_labels=num_labels)
    return pattern.with_values(pattern.sort_values(value))


def _key(family: Family, number: int, what: str) -> str:
    code = zlib.crc32(repr(family).encode())
    return f"{type(family).__name__.lower()}_{code:08x}_{number}_{what}"


# The mark ---------------------------------------------------------------------------------------


def _mark(
    family: Family, structure: AnyStructure, operators: Iterable[Sequence[Tensor]], counts: Tensor
) -> Tensor | None:
    """(B, 4) for each graph: its nodes, its edges, what the family reads of it, what is stored.

    Args:
        family: which says what it reads.
        structure: what the graphs hold.
        operators: the parts of each edge set.
        counts: (B,) the number of nodes of each graph.

    Returns:
        None for a kind of structure of which nothing is known.
    """
    if not isinstance(structure, Structure | Cells | Unstructured):
        return None
    counts = counts.contiguous()
    ends = counts.cumsum(0)
    begins, last = ends - counts, max(0, counts.numel() - 1)

    def graph_of(node: Tensor) -> Tensor:
        return torch.searchsorted(ends, node.contiguous(), right=True).clamp(max=last)

    def summed(hashes: Tensor, graph: Tensor) -> Tensor:
        return torch.zeros_like(counts).index_add(0, graph, hashes)

    def edges(source: Tensor, target: Tensor, *columns: Tensor | None) -> Tensor:
        graph = graph_of(target)
        begin = begins.index_select(0, graph)
        return summed(_hash(source - begin, target - begin, *columns), graph)

    read, num_edges = torch.zeros_like(counts), torch.zeros_like(counts)
    if isinstance(structure, Structure):
        source, target = structure.edge_index.long().unbind(0)
        attr = structure.edge_attr if family.makes_use_of("edge_attr") else None
        read = edges(source, target, structure.edge_weight, structure.edge_type, attr)
        num_edges = summed(torch.ones_like(target), graph_of(target))
    nodes = torch.arange(structure.size[0], device=counts.device)
    graph = graph_of(nodes)
    begin = begins.index_select(0, graph)
    read = read + summed(_hash(nodes - begin, *_of_nodes(family, structure, begin)), graph)
    kept = torch.zeros_like(counts)
    for number, (source, target, label, value) in enumerate(operators):
        # Values may be cast with the rest of the graph, and are the same then.
        kept = kept + (number + 1) * edges(source, target, label, value.float())
    return torch.stack([counts, num_edges, read, kept], dim=1)


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
    found = _mixed(torch.zeros_like(first), first)
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
    found = (found ^ part) * ODD
    return found ^ (found >> 31)
