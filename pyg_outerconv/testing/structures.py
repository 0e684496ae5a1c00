"""Small graphs and grids with the corner cases that break careless code."""

from __future__ import annotations

import torch

from ..graph import Cells, Graph
from ..signatures import typed


@typed
def awkward_structures(dtype: torch.dtype = torch.float64) -> dict[str, Graph]:
    """Small graphs with corner cases, by name; weights require gradients.

    Edge types are below 3, weights are positive. 'rectangular' and 'wide rectangular' have M ≠ N;
    'pair of as many' has M = N, but sources and targets are different nodes.
    """
    generator = torch.Generator().manual_seed(7)

    def make(
        pairs: list[tuple[int, int]],
        size: tuple[int, int],
        weighted: bool,
        bipartite: bool | None = None,
    ) -> Graph:
        edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()
        count = edge_index.size(1)
        weight = None
        if weighted:
            weight = torch.rand(count, dtype=dtype, generator=generator).add_(0.1)
            weight.requires_grad_()
        kinds = torch.randint(3, (count,), generator=generator)
        return Graph.read(edge_index, weight, kinds, size=size, bipartite=bipartite)

    ring = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (4, 1)]
    both_ways = ring + [(target, source) for source, target in ring]
    several = [*ring, (0, 1), (0, 1), (3, 0)]
    return {
        "directed": make(ring, (5, 5), False),
        "undirected": make(both_ways, (5, 5), False),
        "weighted": make(ring[::-1], (5, 5), True),
        "multi-edge": make(several, (5, 5), True),
        "self-loops": make([*ring, (2, 2), (2, 2), (4, 4)], (5, 5), True),
        "isolated nodes": make(ring, (8, 8), True),
        "zero edges": make([], (4, 4), True),
        "one node": make([], (1, 1), False),
        "one loop": make([(0, 0)], (1, 1), True),
        "no nodes": make([], (0, 0), False),
        "rectangular": make([(0, 1), (5, 0), (3, 1), (3, 1), (2, 2)], (6, 4), True),
        "wide rectangular": make([(0, 6), (2, 5), (1, 1)], (3, 7), False),
        "pair of as many": make([(0, 1), (3, 0), (3, 1), (3, 1), (2, 2)], (4, 4), True, True),
    }


def awkward_cells() -> dict[str, Cells]:
    """Small grids of two axes with corner cases, by name.

    All have a shape but those whose name begins with 'unbounded'.
    """
    generator = torch.Generator().manual_seed(7)
    mask = torch.rand(3, 4, generator=generator) < 0.6
    holes = Cells.of_mask(mask)
    shuffled = torch.randperm(holes.num_cells, generator=generator)
    points = torch.tensor([[5, -3], [-2, 0], [-2, 1], [5, -4], [-3, 1], [0, 0]])
    return {
        "shape": Cells.of_shape((3, 4)),
        "one cell": Cells.of_shape((1, 1)),
        "empty axis": Cells.of_shape((0, 3)),
        "holes": holes,
        "holes in any order": Cells(mask.nonzero()[shuffled], (3, 4)),
        "every cell listed": Cells.of_shape((3, 4)).listed(),
        "nothing listed": Cells(points[:0], (2, 2)),
        "batch of masks": Cells.of_mask(torch.stack([mask, ~mask, mask & ~mask]), batched=True),
        "unbounded": Cells(points),
        "unbounded batch": Cells(points, batch=torch.tensor([2, 0, 0, 2, 0, 2])),
        "unbounded and empty": Cells(points[:0]),
    }
