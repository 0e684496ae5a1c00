"""What is made of a mapped graph once, and kept beside it in files that are mapped, too."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.edge_sets import edge_sets, outline, with_edge_sets
from ..basis.edges import EdgeBasis
from ..basis.subpattern import of_rows
from ..errors import RefusedValue
from ..families import Family
from ..graph import Graph
from ..signatures import typed
from .carried import Carried
from .mapped import HEADER, Arrays, ArrayWriter, MappedGraph
from .samples import partition

Log = Callable[[str], None]


@typed
def carried_by(graph: MappedGraph, family: Family, log: Log | None = None) -> Carried:
    """The basis of a mapped graph, made in memory at the first call and mapped from then on.

    Its edges, labels and values are kept in a folder ``basis-…`` of the graph's folder. Making them
    takes some 60 bytes of memory for each edge; opening them reads none.

    Args:
        graph: the graph; its edges are compared with their checksums when the basis is made.
        family: the recipe of the basis.
        log: called with a line when the basis is made.

    Raises:
        ValueError: samples cannot carry the basis, see :class:`.carried.Carried`; the family needs
            more than edges; or files are damaged, or cannot be written.
    """
    if not issubclass(Graph, family.reads):
        rule = "a graph in mapped files has edges"
        raise RefusedValue(rule, "a family that reads them", repr(family))
    place = graph.folder / f"basis-{zlib.crc32(repr(family).encode()):08x}"
    if not (place / HEADER).exists():
        if log is not None:
            log(f"makes the basis of {graph.num_edges} edges, to be kept in {place}")
        _write(place, graph, family)
    arrays, size = Arrays(place), (graph.num_nodes, graph.num_nodes)
    _require(arrays, {"family": repr(family), "graph": _edges_of(graph)})
    bare = Graph(torch.empty((2, 0), dtype=torch.long), size, is_bare=True)
    frame = family.basis_on(bare, torch.float32)
    labels = enumerate(arrays.facts["labels"])
    sets = [_opened(arrays, number, count, size) for number, count in labels]
    basis: Basis = with_edge_sets(frame, lambda found: sets[: len(found)])
    _require(arrays, {"outline": outline(basis)})
    return Carried(family, bare, basis, mapped=True)


@typed
def clusters_of(graph: MappedGraph, parts: int, log: Log | None = None) -> Tensor:
    """(N,) the clusters of a mapped graph by METIS, made at the first call, then mapped.

    They are kept in a folder ``clusters-…`` of the graph's folder. METIS reads the whole graph into
    memory, some 100 bytes for each edge.

    Raises:
        ValueError: pymetis is not installed, there are more parts than nodes, or files are damaged,
            or cannot be written.
    """
    place = graph.folder / f"clusters-{parts}"
    if not (place / HEADER).exists():
        if log is not None:
            log(f"finds {parts} clusters of {graph.num_edges} edges, to be kept in {place}")
        _check_edges(graph)
        found = partition([(graph.ptr, graph.source)], graph.num_nodes, parts)
        with ArrayWriter.at(place) as writer:
            _add(writer, "cluster", found)
            writer.finish({"graph": _edges_of(graph)})
    arrays = Arrays(place)
    _require(arrays, {"graph": _edges_of(graph)})
    return arrays["cluster"]


def _edges_of(graph: MappedGraph) -> str:
    """The checksums of the edges."""
    return ",".join(graph.arrays.checksums[name] for name in ("ptr", "source"))


def _require(arrays: Arrays, expected: dict[str, Any]) -> None:
    found = {name: arrays.facts.get(name) for name in expected}
    if found != expected:
        rule = f"{arrays.folder} must be of this graph; it can be removed, and is made again"
        raise RefusedValue(rule, expected, found)


def _opened(arrays: Arrays, number: int, labels: int, size: tuple[int, int]) -> EdgeBasis:
    ptr, source = arrays[f"ptr-{number}"], arrays[f"source-{number}"]
    label, value = arrays.get(f"label-{number}"), arrays.get(f"value-{number}")
    return EdgeBasis(of_rows(ptr, source, label, size=size, num_labels=labels), value)


def _check_edges(graph: MappedGraph) -> None:
    """Raise ValueError unless the edges are as they were written, and between nodes."""
    graph.arrays.verify("ptr", "source")
    if int(graph.ptr[0]) or bool((graph.ptr.diff() < 0).any()):
        rule = f"{graph.folder / 'ptr.npy'} must point to the edges of each node"
        raise RefusedValue(rule, "numbers from 0 that ascend", "other ones")
    for found in graph.source.aminmax() if graph.num_edges else ():
        if not 0 <= int(found) < graph.num_nodes:
            rule = f"{graph.folder / 'source.npy'} must hold nodes"
            raise RefusedValue(rule, f"[0, {graph.num_nodes})", int(found))


def _write(place: Path, graph: MappedGraph, family: Family) -> None:
    _check_edges(graph)
    target = torch.arange(graph.num_nodes).repeat_interleave(graph.ptr.diff())
    size = (graph.num_nodes, graph.num_nodes)
    structure = Graph(torch.stack([graph.source.long(), target]), size)
    del target
    basis = family.basis_on(structure, torch.float32)
    Carried(family, structure, basis)  # refuses what samples cannot carry
    del structure
    labels = []
    with ArrayWriter.at(place) as writer:
        for number, edges in enumerate(edge_sets(basis)):
            value, pattern = edges.value, edges.pattern
            labels.append(edges.num_bases)
            parts = {"ptr": pattern.target_ptr.long(), "source": pattern.source, "value": value}
            parts["label"] = pattern.label if edges.num_bases > 1 else None
            for name, part in parts.items():
                if part is not None:
                    _add(writer, f"{name}-{number}", part)
        facts = {"family": repr(family), "graph": _edges_of(graph)}
        writer.finish({**facts, "labels": labels, "outline": outline(basis)})


def _add(writer: ArrayWriter, name: str, part: Tensor) -> None:
    writer.create(name, str(part.dtype).removeprefix("torch."), *part.shape)[:] = part.numpy()
