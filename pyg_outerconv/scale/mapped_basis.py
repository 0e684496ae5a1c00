"""The basis of a mapped graph, kept beside it in files that are mapped, too."""

from __future__ import annotations

import zlib
from pathlib import Path

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.edge_sets import edge_sets, outline, with_edge_sets
from ..basis.edges import EdgeBasis
from ..basis.subpattern import of_rows
from ..data.mapped import HEADER, Arrays, ArrayWriter, MappedGraph
from ..errors import RefusedValue
from ..families import Family
from ..graph import EdgeList
from .carried import Carried


def carried_by(graph: MappedGraph, family: Family) -> Carried:
    """The basis of a mapped graph, made in memory at the first call and mapped from then on.

    Its edges, labels and values are kept in a folder ``basis-…`` of the graph's folder. Making them
    takes some 60 bytes of memory for each edge; opening them reads none.

    Raises:
        ValueError: samples cannot carry the basis, see :class:`.carried.Carried`; or the files are
            of another graph, or are damaged.
    """
    place = graph.arrays.folder / f"basis-{zlib.crc32(repr(family).encode()):08x}"
    if not (place / HEADER).exists():
        _write(place, graph, family)
    arrays, size = Arrays(place), (graph.num_nodes, graph.num_nodes)
    facts = arrays.facts
    expected = {"family": repr(family), "graph": graph.arrays.checksums["source"]}
    if {name: facts.get(name) for name in expected} != expected:
        raise RefusedValue(f"{place} must be of this graph and family", expected, facts)
    sets = [_opened(arrays, number, labels, size) for number, labels in enumerate(facts["labels"])]
    bare = EdgeList(torch.empty((2, 0), dtype=torch.long), size, is_bare=True)
    frame = family.basis_on(bare, torch.float32)
    basis: Basis = with_edge_sets(frame, lambda found: sets[: len(found)])
    if outline(basis) != facts["outline"]:
        raise RefusedValue(f"{place} must be of this version", facts["outline"], outline(basis))
    return Carried(family, bare, basis)


def _opened(arrays: Arrays, number: int, labels: int, size: tuple[int, int]) -> EdgeBasis:
    def part(name: str) -> Tensor | None:
        return arrays.get(f"{name}-{number}")

    ptr, source = arrays[f"ptr-{number}"], arrays[f"source-{number}"]
    pattern = of_rows(ptr, source, part("label"), size=size, num_labels=labels)
    return EdgeBasis(pattern, part("value"))


def _write(place: Path, graph: MappedGraph, family: Family) -> None:
    target = torch.arange(graph.num_nodes).repeat_interleave(graph.ptr.diff())
    size = (graph.num_nodes, graph.num_nodes)
    structure = EdgeList(torch.stack([graph.source.long(), target]), size)
    del target
    basis = family.basis_on(structure, torch.float32)
    Carried(family, structure, basis)  # refuses what samples cannot carry
    del structure
    writer, labels = ArrayWriter(place), []
    for number, edges in enumerate(edge_sets(basis)):
        value, pattern = edges.value, edges.pattern
        labels.append(edges.num_bases)
        parts = {"ptr": pattern.target_ptr.long(), "source": pattern.source, "value": value}
        parts["label"] = pattern.label if edges.num_bases > 1 else None
        for name, part in parts.items():
            if part is not None:
                kind = str(part.dtype).removeprefix("torch.")
                writer.create(f"{name}-{number}", kind, *part.shape)[:] = part.numpy()
    facts = {"family": repr(family), "graph": graph.arrays.checksums["source"]}
    writer.finish({**facts, "labels": labels, "outline": outline(basis)})
