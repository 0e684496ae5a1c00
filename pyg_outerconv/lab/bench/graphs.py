"""Graphs to measure on: random ones, made from a seed alone, and real ones where their files are.

And copies of graphs that no cache knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.separate import separate
from torch_geometric.datasets import KarateClub
from torch_geometric.io import read_tu_data

from .. import data
from ..data.graph import MASKS
from .case import Context

# Nodes, edges, features, the share of these that is not zero, classes.
CITATION = {"Cora": (2708, 10556, 1433, 0.0127, 7), "CiteSeer": (3327, 9104, 3703, 0.0086, 6)}
FB15K_NODES, FB15K_EDGES, FB15K_RELATIONS = 14_541, 272_115, 237
CLASSES, FEATURES, COUNT = 2, 3, 1113  # of PROTEINS
FILES = ("A", "graph_indicator", "graph_labels", "node_labels")


def random_graph(nodes: int, edges: int, generator: torch.Generator) -> Tensor:
    """(2, E) distinct directed edges without self-loops, uniformly random, in no order."""
    edges = min(edges, nodes * (nodes - 1))
    keys = torch.empty(0, dtype=torch.long)
    while keys.numel() < edges:
        more = edges - keys.numel() + edges // 16 + 16
        source = torch.randint(nodes, (more,), generator=generator)
        # A step of 1 … nodes − 1 never comes back to the source.
        target = (source + torch.randint(1, max(nodes, 2), (more,), generator=generator)) % nodes
        keys = torch.cat([keys, source * nodes + target]).unique()
    keys = keys[torch.randperm(keys.numel(), generator=generator)[:edges]]
    return torch.stack([keys // nodes, keys % nodes])


def power_law_graph(nodes: int, edges: int, generator: torch.Generator) -> Tensor:
    """(2, E) edges whose ends are drawn, each by itself, so that few nodes have most of them.

    Node i of a random order is drawn in proportion to i^(-1/2): the number of nodes of degree d
    falls as d^(-3), as in a graph of preferential attachment.
    """
    weight = torch.arange(1, nodes + 1, dtype=torch.float64).rsqrt()
    order = torch.randperm(nodes, generator=generator)
    ends = torch.multinomial(weight, 2 * edges, replacement=True, generator=generator)
    return order[ends].view(2, edges)


def zipf_counts(total: int, kinds: int) -> Tensor:
    """(K,) how often each of some kinds comes, the k-th about 1/k as often as the first."""
    share = 1.0 / torch.arange(1, kinds + 1, dtype=torch.float64)
    counts = (total * share / share.sum()).floor().long()
    counts[: total - int(counts.sum())] += 1  # fewer than K are lacking
    return counts


def uniform_types(edges: int, kinds: int, generator: torch.Generator) -> Tensor:
    """(E,) a type for each edge, all alike."""
    return torch.randint(kinds, (edges,), generator=generator)


def zipf_types(edges: int, kinds: int, generator: torch.Generator) -> Tensor:
    """(E,) a type for each edge, in random order, with counts as :func:`zipf_counts` has them."""
    types = torch.repeat_interleave(torch.arange(kinds), zipf_counts(edges, kinds))
    return types[torch.randperm(edges, generator=generator)]


def karate(generator: torch.Generator) -> Tensor:
    """(2, 156) Zachary's karate club with its 34 nodes renamed at random, sorted by source."""
    (club,) = KarateClub()
    names = torch.randperm(34, generator=generator)
    return sorted_by_source(names[club.edge_index], 34)


def small_graphs(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(2, E) and (N,): undirected graphs side by side, as a loader collates molecules or proteins.

    Each is a path of 20 to 58 nodes with as many bonds between nodes two to five apart;
    edges are sorted by source. The second tensor says to which graph a node belongs.
    """
    sizes = torch.randint(20, 59, (count,), generator=generator)
    parts, first = [], 0
    for size in sizes.tolist():
        path = torch.arange(size - 1)
        begin = torch.randint(size - 5, (size,), generator=generator)
        end = begin + torch.randint(2, 6, (size,), generator=generator)
        bonds = torch.stack([torch.cat([path, begin]), torch.cat([path + 1, end])]) + first
        parts.append(torch.cat([bonds, bonds.flip(0)], dim=1))
        first += size
    edges = sorted_by_source(torch.cat(parts, dim=1), first)
    return edges, torch.arange(count).repeat_interleave(sizes)


def sampled_block(nodes: int, fan_out: int, generator: torch.Generator) -> Tensor:
    """(2, E) as a neighbour sampler delivers it: the first 60 % of nodes see ``fan_out`` others.

    Sorted by target; sources at random, distinct and never the target, in no order.
    """
    targets = torch.arange(max(1, 3 * nodes // 5)).view(-1, 1)
    width = (nodes - 1) // fan_out  # each source from a stretch of its own, so that none is twice
    order = torch.rand(targets.size(0), fan_out, generator=generator).argsort(dim=1)
    steps = 1 + order * width + torch.randint(width, order.shape, generator=generator)
    return torch.stack([(targets + steps) % nodes, targets.expand_as(steps)]).flatten(1)


def sorted_by_source(edge_index: Tensor, nodes: int) -> Tensor:
    """The distinct edges, sorted by source and then by target, as PyG's data sets hold them."""
    keys = (edge_index[0] * nodes + edge_index[1]).unique()
    return torch.stack([keys // nodes, keys % nodes])


Graph = tuple[Tensor, ...]


class Fresh:
    """Returns copies of some graphs in turn, so that nothing cached by identity or by value helps.

    Copies are made by :meth:`ready`, which is not timed, and live until it is called again.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = graphs
        self._copies: list[Graph] = []
        self._turn = self._next = 0

    def ready(self, count: int) -> None:
        """Have copies for some calls."""
        numbers = [(self._turn + step) % len(self.graphs) for step in range(count)]
        self._copies = [
            tuple(one.detach().clone().requires_grad_(one.requires_grad) for one in self.graphs[n])
            for n in numbers
        ]
        self._turn, self._next = self._turn + count, 0

    def take(self) -> Graph:
        """A copy that was not returned before; made now if none is prepared."""
        if self._next == len(self._copies):
            self.ready(1)
        taken = self._copies[self._next]
        self._next += 1
        return taken


# Real graphs, else random ones of their counts ------------------------------------------------


def citation_graph(context: Context, name: str) -> tuple[Data, str]:
    """A citation graph with its classes and masks, and where it is from."""
    if context.scale == 1 and data.is_here(name, context.root):
        graph = data.load(name, context.root).data
        graph.x = graph.x.float()
        return graph, "real"
    nodes, edges, width, density, classes = CITATION[name]
    nodes, edges, width = (context.size(count, 16, quick=False) for count in (nodes, edges, width))
    generator = context.generator()
    x = (torch.rand(nodes, width, generator=generator) < density).float()
    edge_index = random_graph(nodes, edges, generator)
    y = torch.randint(classes, (nodes,), generator=generator)
    order = torch.randperm(nodes, generator=generator)
    masks = {
        key: torch.zeros(nodes, dtype=torch.bool).index_fill(0, order[low:high], True)
        for key, (low, high) in zip(
            MASKS, pairwise((0, nodes // 20, nodes // 4, nodes)), strict=True
        )
    }
    return Data(x, edge_index, y=y, **masks), f"random, with the counts of {name}"


def fb15k_237(context: Context) -> tuple[Tensor, Tensor, int, int, str]:
    """Edges, types, nodes and labels of FB15k-237 with reverses, and where they are from.

    The training triples if PyG's raw files are below the root, else a random graph of the same
    counts, with relations of very unequal size.
    """
    raw = data.data_root(context.root) / "FB15k_237" / "raw"
    files = [raw / f"{part}.txt" for part in ("train", "valid", "test")]
    if context.share == 1 and all(file.is_file() for file in files):
        index, types, nodes = _read_triples(files)
        relations, origin = FB15K_RELATIONS, "real, training triples"
    else:
        generator = context.generator()
        nodes = context.size(FB15K_NODES, at_least=16)
        relations = context.size(FB15K_RELATIONS, at_least=3)
        index = random_graph(nodes, context.size(FB15K_EDGES), generator)
        types = zipf_types(index.size(1), relations, generator)
        origin = "random, with the counts of FB15k-237"
    both = torch.cat([index, index.flip(0)], dim=1)
    return both, torch.cat([types, types + relations]), nodes, 2 * relations, origin


def _read_triples(files: list[Path]) -> tuple[Tensor, Tensor, int]:
    """Nodes and relations numbered as they first come, over all files; the first file's edges."""
    options = {"sep": "\t", "header": None, "dtype": str, "na_filter": False, "quoting": 3}
    parts = [pd.read_csv(file, **options) for file in files]
    triples = pd.concat(parts)
    ends, names = pd.factorize(triples[[0, 2]].to_numpy().ravel())
    types, _ = pd.factorize(triples[1])
    count = len(parts[0])
    index = torch.from_numpy(ends).view(-1, 2)[:count].t().contiguous()
    return index, torch.from_numpy(types)[:count], len(names)


def proteins(context: Context) -> tuple[list[Data], str]:
    """The graphs of PROTEINS, or as many random ones; and which."""
    raw = data.data_root(context.root) / "TUDataset" / "PROTEINS" / "raw"
    if context.scale == 1 and all((raw / f"PROTEINS_{name}.txt").is_file() for name in FILES):
        together, slices, _ = read_tu_data(str(raw), "PROTEINS")
        together.x = together.x[:, -FEATURES:]  # labels of nodes, without their attribute
        numbers = range(slices["x"].numel() - 1)
        graphs = [separate(Data, together, one, slices, decrement=False) for one in numbers]
        origin = "real"
    else:
        graphs, origin = _random_proteins(context), "random, as many as PROTEINS has"
    for graph in graphs:
        graph.x = graph.x.to(context.dtype)
    return [graph.to(context.device) for graph in graphs], origin


def _random_proteins(context: Context) -> list[Data]:
    generator, graphs = context.generator(), []
    for _ in range(context.size(COUNT, 8, quick=False)):
        edge_index, graph = small_graphs(1, generator)
        label = torch.randint(CLASSES, (1,), generator=generator)
        kinds = torch.randint(FEATURES, graph.shape, generator=generator)
        graphs.append(Data(x=F.one_hot(kinds, FEATURES).float(), edge_index=edge_index, y=label))
    return graphs
