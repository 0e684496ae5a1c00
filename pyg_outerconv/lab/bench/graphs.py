"""Graphs to measure on, made from a seed alone; and copies of them that no cache knows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.datasets import KarateClub


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


def grid_graph(side: int, reach: int = 1) -> Tensor:
    """(2, E) of a square grid: each node sees the nodes at most ``reach`` away on both axes."""
    nodes = torch.arange(side * side).view(side, side)
    parts = []
    for down in range(-reach, reach + 1):
        for right in range(-reach, reach + 1):
            if (down, right) == (0, 0):
                continue
            rows = slice(max(0, -down), side - max(0, down))
            columns = slice(max(0, -right), side - max(0, right))
            there = nodes[rows, columns].flatten()
            parts.append(torch.stack([there + down * side + right, there]))
    return torch.cat(parts, dim=1)


def shuffled(edge_index: Tensor, nodes: int, generator: torch.Generator) -> Tensor:
    """The same graph with its nodes renamed at random and its edges in random order."""
    names = torch.randperm(nodes, generator=generator)
    return names[edge_index][:, torch.randperm(edge_index.size(1), generator=generator)]


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
        self._copies = [tuple(map(_copy, self.graphs[number])) for number in numbers]
        self._turn, self._next = self._turn + count, 0

    def take(self) -> Graph:
        """A copy that was not returned before; made now if none is prepared."""
        if self._next == len(self._copies):
            self.ready(1)
        taken = self._copies[self._next]
        self._next += 1
        return taken


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
