"""Checks of raw files, and of the graph that was read from them.

A dataset's reader gets copies of the bytes that were checked here. So a file that differs from its
checksum, or that could run code (Planetoid's are pickles), never reaches a reader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import torch
from torch_geometric.data import Data

from ...errors import Refused, refusal
from ...files import data_root, read_bytes
from .kinds import LIMIT, look_into
from .recorded import check_recorded, recorded
from .registry import DataUnavailable, Entry, entry


def read_checked(known: Entry, root: Path) -> dict[str, bytes]:
    """The content of every raw file of a dataset, by its name below :meth:`Entry.home`.

    Raises:
        DataUnavailable: a file cannot be read, has not the checksum of the registry, or, where no
            checksum is known, is of a kind that could run code or is damaged.
    """
    return {name: read_one(known, root, name) for name in known.files}


def read_one(known: Entry, root: Path, name: str) -> bytes:
    """The content of a raw file; see :func:`read_checked`."""
    path = known.home(root) / name
    try:
        content = read_bytes(path, LIMIT)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read ({error.strerror})") from error
    expected = known.files[name]
    check_recorded(known, root, name, content)
    if expected is not None:
        got = hashlib.sha256(content).hexdigest()
        if got == expected:
            return content
        if not known.copies_differ:
            rule = f"{path} must be the file that the registry knows of {known.name}, by its sha256"
            raise DataUnavailable(refusal(rule, expected, f"{got}: another, or a damaged one"))
    try:
        look_into(path, content)
    except Refused as error:
        raise DataUnavailable(f"{path}, whose checksum is not known: {error}") from error
    except Exception as error:  # numpy, zipfile and zlib, each with its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataUnavailable(f"{path} is damaged ({reason})") from error
    return content


def verify(name: str, root: str | Path | None = None) -> dict[str, str]:
    """Compare the raw files of a dataset, those of all its protocols, with their checksums.

    Returns:
        for each file ``'matches'``, ``'differs'``, ``'missing'``, ``'cannot be read'`` or ``'no
        checksum known'``.
    """
    known, folder = entry(name), data_root(root)
    found = {}
    before = recorded(known, folder)
    for reading in {split: known.for_split(split) for split in known.splits}.values():
        for file, expected in reading.files.items():
            found[file] = _compare(reading.home(folder) / file, expected or before.get(file))
    return found


def _compare(path: Path, expected: str | None) -> str:
    try:
        got = hashlib.sha256(read_bytes(path, LIMIT)).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "cannot be read"
    if expected is None:
        return "no checksum known"
    return "matches" if got == expected else "differs"


# A broken rule: the part of the graph, the rule, what was expected, what came.
_Broken = tuple[str, str, object, object]

# Words in the names of the files of each part; without such a file, all files are named.
_NAMES = {
    "edges": ("edges", "graph", "stripped", "_A"),
    "features": ("feature", "allx", "node_attributes", "node_labels"),
    "labels": ("label", "ally"),
    "graphs": ("graph_indicator", "graph_labels"),
    "masks": ("split",),
}
_PARTS = ("train", "val", "test")
_JOIN = "edges join the nodes of the graph"


def check_graph(known: Entry, root: Path, data: Data) -> None:
    """Refuse a graph whose parts do not fit together.

    Raises:
        DataUnavailable: naming the file and the rule.
    """
    for part, rule, expected, got in broken_rules(data, known.task == "graphs"):
        raise _refused(known, root, part, refusal(rule, expected, got))


def broken_rules(data: Data, of_graphs: bool = False) -> Iterator[_Broken]:
    """The rules that the parts of a graph break: the part, the rule, what was expected, what came.

    A rule is looked at when those before hold: stop at the first.
    """
    num_nodes = int(data.num_nodes or 0)
    checks = (_edges, _features, _graphs if of_graphs else _labels)
    for check in checks if of_graphs else (*checks, _masks):
        yield from check(data, num_nodes)


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


def _graphs(data: Data, num_nodes: int) -> Iterator[_Broken]:
    y, batch, index = data.y, data.batch, data.edge_index
    if batch.numel() != num_nodes:
        yield "graphs", "every node is in a graph", f"{num_nodes} numbers", batch.numel()
    elif not torch.equal(batch.unique_consecutive(), torch.arange(y.numel())):
        got = f"{y.numel()} classes, graphs up to number {int(batch[-1])}"
        yield "graphs", "every graph has a class, and nodes one after another", "as many", got
    elif int(y.min()) < 0 or int(y.max()) >= y.numel():
        yield "graphs", "classes are numbered", f"0 to {y.numel() - 1}", int(y.max())
    elif bool((batch[index[0]] != batch[index[1]]).any()):
        yield "edges", _JOIN, "two nodes of one graph", "nodes of two graphs"


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
