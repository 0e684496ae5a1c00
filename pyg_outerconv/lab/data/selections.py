"""Parts of a graph that data sets of their own are made of, see :attr:`.registry.Entry.keeps`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import LargestConnectedComponents


def without_duplicates(data: Data) -> Data:
    """Keep the first of all nodes with the same class and the same targets of their edges.

    Of chameleon's pages many are one page under several names, so that a test node has a training
    node's neighbours and class, as the `"critical look"
    <https://arxiv.org/abs/2302.11640>`_ paper found (section 3; it compares the traffic of a page
    and keeps 890 nodes, classes keep 843). Nodes without outgoing edges are all kept.

    Args:
        data: with ``edge_index`` and ``y``; what has a row for each node is selected too.
    """
    num_nodes = int(data.num_nodes or 0)
    source, target = data.edge_index
    targets: list[set[int]] = [set() for _ in range(num_nodes)]
    for one, other in zip(source.tolist(), target.tolist(), strict=True):
        targets[one].add(other)
    seen, kept = set(), torch.zeros(num_nodes, dtype=torch.bool)
    for node, label in enumerate(data.y.tolist()):
        key = (label, frozenset(targets[node]))
        kept[node] = key not in seen or not targets[node]
        seen.add(key)
    return data.subgraph(kept)


SELECTIONS: dict[str, Callable[[Data], Data]] = {
    "distinct": without_duplicates,
    "largest-component": LargestConnectedComponents(),
}
"""From a graph to the part that an entry keeps, by its word in the registry."""
