"""A graph in mapped files as a dataset: only arrays with one number a node are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor
from torch_geometric.data import Data

from ....errors import RefusedValue
from ....scale.mapped import PARTS, MappedGraph, open_mapped
from ..load import Dataset
from ..registry import Entry
from ..source import Source
from .parts import PART_NAMES

SPLIT = "public"
"""The name of the split that the array ``split`` is."""


def load_mapped(source: Source, log: Callable[[str], None] | None = None) -> Dataset:
    """Open a folder of :class:`..mapped.ArrayWriter` that holds a graph.

    Features and edges stay in their files. Classes and split are read, and compared with their
    checksums.

    Args:
        source: whose ``data`` is the folder.
        log: called with a line where nodes have no class.

    Raises:
        ValueError: it is no graph, or an array is not as it was written; a class or a part is out
            of range; a part has no node, or one without a class.
    """
    if source.undirected:
        rule = "the edges of a graph in mapped files are those of the files"
        raise RefusedValue(rule, "no --undirected, but files that have both directions", "it")
    graph = open_mapped(Path(source.data or ""))
    graph.arrays.verify("y", "split")
    _check(graph)
    if log is not None and (lacking := int((graph.y < 0).sum())):
        log(f"{source.name}: {lacking} of {graph.num_nodes} nodes have no label")
    masks = {
        f"{part}_mask": graph.split == PARTS.index(name)
        for part, name in zip(PART_NAMES, PARTS[1:], strict=True)
    }
    data = Data(x=graph.x, y=graph.y, num_nodes=graph.num_nodes, **masks)
    entry = _entry(source, graph)
    return Dataset(entry, data, None, graph.fingerprint, source=source, mapped=graph)


def _check(graph: MappedGraph) -> None:
    y, split, place = graph.y, graph.split, graph.folder
    if graph.num_classes < 2:
        rule = f"{place}: there are classes to tell apart"
        raise RefusedValue(rule, "at least 2", graph.num_classes)
    _in_range(y, -1, graph.num_classes, f"{place / 'y.npy'}: a node has a class, or −1")
    _in_range(split, 0, len(PARTS), f"{place / 'split.npy'}: a node is in a part, or 0")
    for number, name in enumerate(PARTS[1:], 1):
        inside = split == number
        if not bool(inside.any()):
            rule = f"{place / 'split.npy'}: every part of a split needs a node"
            raise RefusedValue(rule, f"{name} nodes, whose number is {number}", "none")
        if bool((inside & (y < 0)).any()):
            node = int((inside & (y < 0)).nonzero()[0])
            rule = f"{place}: a {name} node has a class"
            raise RefusedValue(rule, f"[0, {graph.num_classes})", f"−1 at node {node}")


def _in_range(numbers: Tensor, least: int, count: int, rule: str) -> None:
    for found in (int(numbers.min()), int(numbers.max())) if numbers.numel() else ():
        if not least <= found < count:
            raise RefusedValue(rule, f"[{least}, {count})", found)


def _entry(source: Source, graph: MappedGraph) -> Entry:
    return Entry(
        name=source.name,
        reader="",
        arguments={},
        folder=None,
        about="a graph of one's own in mapped files",
        source=(),
        licence="",
        counts={
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.x.size(1),
            "classes": graph.num_classes,
            "relations": 0,
        },
        splits=(SPLIT,),
        files={},
        defaults={},
        draws_splits=False,
    )
