"""A graph as a PyG ``Data``: the rules that its parts keep, its fingerprint, what is made of it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import LargestConnectedComponents

from ...errors import RefusedValue, refusal

PARTS = ("train", "val", "test")
MASKS = tuple(f"{part}_mask" for part in PARTS)

# Makes the exception for a broken rule: from the part of the graph; the number of an edge, node or
# (of masks) a split, −1 for none; the rule, what was expected, and what came.
Broken = Callable[[str, int, str, object, object], Exception]


def fingerprint(data: Data, further: tuple[str, ...] = ()) -> str:
    """The sha256 over structure, features and labels, and further tensors of a graph."""
    digest = hashlib.sha256()
    for key in ("edge_index", "edge_type", "edge_weight", "x", "y", "batch", *further):
        value = data.get(key)
        if isinstance(value, Tensor):
            digest.update(f"{key}{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.contiguous().view(-1).numpy().view(np.uint8).data)
    return digest.hexdigest()


# The rules ----------------------------------------------------------------------------------------


def check_graph(data: Data, broken: Broken, of_graphs: bool = False) -> None:
    """Refuse a graph whose parts do not fit together."""
    num_nodes, x, y = int(data.num_nodes or 0), data.get("x"), data.y
    _check_edges(data, num_nodes, broken)
    if x is not None and x.size(0) != num_nodes:
        raise broken("features", -1, "every node has a row of features", num_nodes, x.size(0))
    if x is not None and not bool(torch.isfinite(x).all()):
        raise broken("features", -1, "features are finite", "numbers", "NaN or infinity")
    if of_graphs:
        _check_graphs(data, num_nodes, broken)
        return
    if y.shape != (num_nodes,):
        raise broken("labels", -1, "every node has a label", f"({num_nodes},)", tuple(y.shape))
    for number in (int(y.min()), int(y.max())) if num_nodes else ():
        if not -1 <= number < num_nodes:
            expected = f"0 to {num_nodes - 1}, or -1 for none"
            raise broken("labels", -1, "classes are numbered", expected, number)
    masks = masks_of(data)
    for part, mask in masks.items():
        if mask.size(0) != num_nodes:
            rule = f"the {part} has an entry for each node"
            raise broken("masks", -1, rule, num_nodes, mask.size(0))
    for (one, mask), (other, second) in combinations(masks.items(), 2):
        shared = (mask & second).sum(dim=0)
        for split in shared.nonzero().flatten().tolist():
            rule = f"{one} and {other} have no node in common"
            raise broken("masks", split, rule, "none", f"{int(shared[split])} nodes in both")


def _check_edges(data: Data, num_nodes: int, broken: Broken) -> None:
    index, rule = data.edge_index, "edges join the nodes of the graph"
    if index.dim() != 2 or index.size(0) != 2:
        raise broken("edges", -1, rule, "pairs of nodes", f"shape {tuple(index.shape)}")
    count, weights, types = index.size(1), data.get("edge_weight"), data.get("edge_type")
    for number in (int(index.min()), int(index.max())) if count else ():
        if not 0 <= number < num_nodes:
            raise broken("edges", -1, rule, f"numbers from 0 to {num_nodes - 1}", number)
    if weights is not None and weights.shape != (count,):
        raise broken("edges", -1, "a weight for each edge", f"({count},)", weights)
    if types is not None and (types.shape != (count,) or (count and int(types.min()) < 0)):
        raise broken("edges", -1, "a type for each edge", f"numbers from 0, ({count},)", types)
    if types is not None and count and int(types.max()) >= count:  # each has a matrix of its own
        rule, got = "no more types of edges than edges", int(types.max())
        raise broken("edges", -1, rule, f"numbers < {count}", got)


def _check_graphs(data: Data, num_nodes: int, broken: Broken) -> None:
    y, batch, index = data.y, data.batch, data.edge_index
    if batch.numel() != num_nodes:
        raise broken("graphs", -1, "every node is in a graph", num_nodes, batch.numel())
    if not torch.equal(batch.unique_consecutive(), torch.arange(y.numel())):
        got = f"{y.numel()} classes, graphs up to number {int(batch[-1])}"
        rule = "every graph has a class, and nodes one after another"
        raise broken("graphs", -1, rule, "as many", got)
    if int(y.min()) < 0 or int(y.max()) >= y.numel():
        expected = f"0 to {y.numel() - 1}"
        raise broken("graphs", -1, "classes are numbered", expected, int(y.max()))
    if bool((batch[index[0]] != batch[index[1]]).any()):
        rule = "edges join the nodes of a graph"
        raise broken("edges", -1, rule, "both of one", "nodes of two graphs")


def check_own(data: Data, classes: Sequence[str], broken: Broken) -> None:
    """Refuse what else cannot be trained on: fewer than two classes, and splits without a part."""
    there = [classes[label] for label in data.y[data.y >= 0].unique().tolist()]
    if len(there) < 2:
        got = ", ".join(there) or "no label"
        raise broken("labels", 0, "there are classes to tell apart", "at least 2 classes", got)
    masks = masks_of(data)
    splits = max((mask.size(1) for mask in masks.values()), default=0)
    parts = [[key for key in masks if bool(masks[key][:, split].any())] for split in range(splits)]
    for split, some in enumerate(parts):
        if "train_mask" not in some:
            expected = "nodes of the part train"
            raise broken("masks", split, "a split has train nodes", expected, "none")
        if "val_mask" in some and "test_mask" not in some:
            rule = "a split that has val nodes has test nodes"
            raise broken("masks", split, rule, "nodes of the part test", "none")
        if some != parts[0]:
            expected, got = ", ".join(parts[0]), f"{', '.join(some)} in split {split}"
            raise broken("masks", split, "all splits have the same parts", expected, got)
    for key, mask in masks.items():
        lacking = (mask.any(dim=1) & (data.y < 0)).nonzero()
        if lacking.numel():
            rule = "a node in a part of the split has a label"
            got = f"none, in {key.removesuffix('_mask')}"
            raise broken("labels", int(lacking[0]), rule, "a class", got)


def masks_of(data: Data) -> dict[str, Tensor]:
    """The masks (N, S) of the parts, of S splits."""
    masks = {key: data[key] for key in MASKS if data.get(key) is not None}
    return {key: mask.view(mask.size(0), -1) for key, mask in masks.items()}


# Both directions ----------------------------------------------------------------------------------


def make_undirected(data: Data, where: Callable[[int], str]) -> None:
    """Give a graph the reverse of each edge that is listed one way only.

    Where m → n of a type is listed p times and n → m q times, both are there max(p, q) times.
    Self-loops stay as they are. What is added stands behind what was listed, in its order. An edge
    that is listed both ways with two weights is refused, with ``where`` it stands.
    """
    index, weights = data.edge_index, data.get("edge_weight")
    if not index.numel():
        return
    one_way, both = index[0] < index[1], index[0] != index[1]
    group = group_of(index.sort(dim=0).values, data.get("edge_type"))
    rank = _occurrence(2 * group + one_way)  # the k-th m → n is the reverse of the k-th n → m
    key = group * (int(rank.max()) + 1) + rank
    place = torch.full((2, int(key.max()) + 1), -1, dtype=torch.long)
    place[one_way.long()[both], key[both]] = torch.arange(key.numel())[both]
    matched = (place >= 0).all(dim=0)
    if weights is not None:
        first, second = place[:, matched]
        different = (weights[first] != weights[second]).nonzero().flatten()
        if different.numel():
            one = int(torch.maximum(first, second)[different].min())
            other = int(place[:, key[one]].min())
            expected = f"{weights[other]:g} as in {where(other)}"
            said = refusal("an undirected edge has one weight", expected, f"{weights[one]:g}")
            raise RefusedValue(f"{where(one)}: {said}")
    added = (both & ~matched[key]).nonzero().flatten()
    data.edge_index = torch.cat([index, index[:, added].flip(0)], dim=1)
    for name in ("edge_weight", "edge_type"):
        if data.get(name) is not None:
            data[name] = torch.cat([data[name], data[name][added]])


def group_of(index: Tensor, types: Tensor | None) -> Tensor:
    """(E,) numbers from 0, equal for edges of the same ends and type."""
    rows = index if types is None else torch.cat([index, types[None]])
    group = rows[0]
    for row in rows[1:] if index.numel() else ():
        group = torch.unique(group * (int(row.max()) + 1) + row, return_inverse=True)[1]
    return group


def _occurrence(keys: Tensor) -> Tensor:
    """How often each key was there before, in the order of the list."""
    order = keys.argsort(stable=True)
    begins = torch.searchsorted(keys[order], keys[order])
    rank = torch.empty_like(keys)
    rank[order] = torch.arange(keys.numel()) - begins
    return rank


# Unions and parts of graphs -----------------------------------------------------------------------


def union_of(graphs: Sequence[Data]) -> Data:
    """The disjoint union of graphs, as PyG's ``Batch`` makes it.

    Each of the G graphs has ``y`` (1,), and features ``x`` or none. ``edge_attr`` (E, R), one of R
    types in one-hot code, as TUDataset has it, becomes ``edge_type`` (E,); ``batch`` (N,) is the
    graph of each node, ascending, and ``y`` is (G,).
    """
    union = Batch.from_data_list([graphs[place] for place in range(len(graphs))])
    joined = Data(edge_index=union.edge_index, y=union.y, batch=union.batch)
    if union.get("x") is not None and union.x.size(1):
        joined.x = union.x
    else:
        joined.num_nodes = union.num_nodes
    kinds = union.get("edge_attr")
    if kinds is not None and kinds.size(1):
        joined.edge_type = kinds.argmax(-1).to(torch.long)
    return joined


def without_duplicates(data: Data) -> Data:
    """Keep the first of all nodes with the same class and the same targets of their edges.

    Of chameleon's pages many are one page under several names, so that a test node has a training
    node's neighbours and class, as the `"critical look"
    <https://arxiv.org/abs/2302.11640>`_ paper found (section 3; it compares the traffic of a page
    and keeps 890 nodes, classes keep 843). Nodes without outgoing edges are all kept.
    """
    targets = defaultdict[int, set[int]](set)
    for one, other in data.edge_index.T.tolist():
        targets[one].add(other)
    seen, kept = set(), []
    for node, label in enumerate(data.y.tolist()):
        key = (label, frozenset(targets[node]))
        kept.append(key not in seen or not targets[node])
        seen.add(key)
    return data.subgraph(torch.tensor(kept))


SELECTIONS: dict[str, Callable[[Data], Data]] = {
    "distinct": without_duplicates,
    "largest-component": LargestConnectedComponents(),
}
"""From a graph to the part that an entry keeps, by its word in the registry."""
