"""Checks of a graph that was read; an error names the file that breaks the rule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import torch
from torch_geometric.data import Data

from ..errors import refusal
from .registry import DataUnavailable, Entry

# A broken rule: the part of the graph, the rule, what was expected, what came.
_Broken = tuple[str, str, object, object]

# Words in the names of the files of each part; without such a file, all files are named.
_NAMES = {
    "edges": ("edges", "graph", "stripped"),
    "features": ("feature", "allx"),
    "labels": ("label", "ally"),
    "masks": ("split",),
}
_PARTS = ("train", "val", "test")
_JOIN = "edges join the nodes of the graph"


def check_graph(known: Entry, root: Path, data: Data) -> None:
    """Refuse a graph whose parts do not fit together.

    Raises:
        DataUnavailable: naming the file and the rule.
    """
    num_nodes = int(data.num_nodes or 0)
    for check in (_edges, _features, _labels, _masks):
        for part, rule, expected, got in check(data, num_nodes):
            raise _refused(known, root, part, refusal(rule, expected, got))


def check_listed_edges(known: Entry, root: Path, contents: dict[str, bytes]) -> None:
    """Refuse a list of edges to nodes that are none.

    PyG numbers the edge m → n of N nodes as mN + n, and drops one of two with the same number: so
    an edge to node −1 or N may have gone when the graph is there.

    Raises:
        DataUnavailable: naming the file and the rule.
    """
    by_name = {Path(name).name: content for name, content in contents.items()}
    if not {"out1_graph_edges.txt", "out1_node_feature_label.txt"} <= by_name.keys():
        return
    num_nodes = by_name["out1_node_feature_label.txt"].count(b"\n") - 1  # a line of titles
    _, _, lines = by_name["out1_graph_edges.txt"].partition(b"\n")
    for word in lines.split():
        if not word.isdigit() or len(word) > 18 or int(word) >= num_nodes:
            words = refusal(_JOIN, f"numbers from 0 to {num_nodes - 1}", repr(word.decode()))
            raise _refused(known, root, "edges", words)


def _refused(known: Entry, root: Path, part: str, words: str) -> DataUnavailable:
    kind, _, number = part.partition(" ")
    files = [name for name in known.files if any(word in name for word in _NAMES[kind])]
    if number:  # the mask of a split, which may have a file of its own
        files = [name for name in files if Path(name).stem.endswith(f"_{number}")] or files
    where = ", ".join(str(known.home(root) / name) for name in files or known.files)
    return DataUnavailable(f"{where}: {words}")


def _edges(data: Data, num_nodes: int) -> Iterator[_Broken]:
    index = data.edge_index
    if index.dim() != 2 or index.size(0) != 2:
        yield "edges", _JOIN, "pairs of nodes", f"shape {tuple(index.shape)}"
    elif index.numel():
        for number in (int(index.min()), int(index.max())):
            if not 0 <= number < num_nodes:
                yield "edges", _JOIN, f"numbers from 0 to {num_nodes - 1}", number


def _features(data: Data, num_nodes: int) -> Iterator[_Broken]:
    x = data.get("x")
    if x is None:
        return
    if x.size(0) != num_nodes:
        yield "features", "every node has a row of features", num_nodes, x.size(0)
    if not bool(torch.isfinite(x).all()):
        yield "features", "features are finite", "numbers", "NaN or infinity"


def _labels(data: Data, num_nodes: int) -> Iterator[_Broken]:
    y = data.y
    if y.dim() != 1 or y.numel() != num_nodes:
        yield "labels", "every node has a label", f"{num_nodes} labels", f"shape {tuple(y.shape)}"
    elif int(y.min()) < -1 or int(y.max()) >= num_nodes:
        wrong = int(y.min()) if int(y.min()) < -1 else int(y.max())
        yield "labels", "classes are numbered", f"0 to {num_nodes - 1}, or -1 for none", wrong


def _masks(data: Data, num_nodes: int) -> Iterator[_Broken]:
    given = {part: data.get(f"{part}_mask") for part in _PARTS}
    masks = {part: mask.view(mask.size(0), -1) for part, mask in given.items() if mask is not None}
    for part, mask in masks.items():
        if mask.size(0) != num_nodes:
            rule = f"the {part} mask has an entry for each node"
            yield "masks", rule, num_nodes, mask.size(0)
    for (one, mask), (other, second) in combinations(masks.items(), 2):
        shared = (mask & second).sum(dim=0)
        for number in shared.nonzero().flatten().tolist():
            got = f"{int(shared[number])} nodes in both"
            yield f"masks {number}", f"{one} and {other} masks have no node in common", "none", got
