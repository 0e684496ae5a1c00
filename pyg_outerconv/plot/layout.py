"""The layout of a graph: which of its nodes are drawn, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx
import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import RefusedIndex, RefusedValue, unknown

if TYPE_CHECKING:
    from ..basis.base import Basis

LAYOUTS = ("spring", "circle")
MAX_NODES = 100  # of a whole graph; of a larger one a part is drawn
PART = 40  # nodes of a part at most

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Edges:
    """Labelled edges as arrays: (E,) sources, targets, labels and values, and the size (M, N).

    Nodes of a picture are the N nodes if M = N, else M sources and then N targets.
    """

    source: Numbers
    target: Numbers
    label: Numbers
    value: Values
    size: tuple[int, int]

    @property
    def is_square(self) -> bool:
        """Whether M = N, so that sources and targets are drawn as the same nodes."""
        return self.size[0] == self.size[1]

    @property
    def num_nodes(self) -> int:
        """Number of nodes in the picture."""
        return self.size[0] if self.is_square else sum(self.size)

    @property
    def ends(self) -> tuple[Numbers, Numbers]:
        """Source and target of every edge, as nodes of the picture."""
        return self.source, self.target + (0 if self.is_square else self.size[0])

    def name(self, node: int) -> str:
        """A node of the picture in words."""
        if self.is_square:
            return f"node {node}"
        m = self.size[0]
        return f"source {node}" if node < m else f"target {node - m}"


def edges_of(basis: Basis) -> Edges:
    """The edges of a basis."""
    edges = basis.edges()
    source, target = edges.index.long().cpu().numpy()
    values = edges.values(torch.double).detach().cpu().numpy()
    return Edges(source, target, edges.label.long().cpu().numpy(), values, edges.size)


def part(edges: Edges, around: Sequence[int]) -> tuple[Numbers, list[int], str]:
    """The nodes to draw, those in their middle, and which they are in words; '' for all."""
    for node in around:
        if not 0 <= node < edges.num_nodes:
            raise RefusedIndex("a node is in the graph", f"below {edges.num_nodes}", node)
    if edges.num_nodes <= MAX_NODES and not len(around):
        return np.arange(edges.num_nodes), [], ""
    middle = list(dict.fromkeys(around)) or [_typical(edges)]
    nodes = np.sort(nearest(edges, middle, max(PART, len(middle))))
    names = ", ".join(map(edges.name, middle[:4])) + (", …" if len(middle) > 4 else "")
    said = f"{names} and what is nearest: {len(nodes)} of {edges.num_nodes} nodes"
    return nodes, middle, said


def _typical(edges: Edges) -> int:
    """The node whose number of neighbours is closest to 8: neither alone nor a hub."""
    source, target = edges.ends
    apart = source != target
    pairs = np.unique(np.sort(np.stack([source[apart], target[apart]]), axis=0), axis=1)
    count = np.bincount(pairs.ravel(), minlength=edges.num_nodes)
    return int(np.abs(count - 8).argmin())


def nearest(edges: Edges, middle: Sequence[int], most: int) -> Numbers:
    """The nodes nearest to some, up to a number: by distance, then by the values of their edges."""
    ordered = list(middle)
    inside = np.zeros(edges.num_nodes, dtype=bool)
    inside[ordered] = True
    source, target = edges.ends
    weight = np.abs(edges.value) + 1e-12
    while (room := most - int(inside.sum())) > 0:
        score = np.zeros(edges.num_nodes)
        for near, far in ((source, target), (target, source)):
            out = inside[near] & ~inside[far]
            np.add.at(score, far[out], weight[out])
        neighbours = np.argsort(-score, kind="stable")[: min(room, int((score > 0).sum()))]
        if not len(neighbours):
            break
        inside[neighbours] = True
        ordered += neighbours.tolist()
    return np.array(ordered, dtype=np.int64)


def of_label(edges: Edges, label: int | None, nodes: Numbers) -> tuple[Numbers, Numbers, Values]:
    """The edges between nodes, of a label or of all for None; ends are places among the nodes."""
    place = np.full(edges.num_nodes, -1)
    place[nodes] = np.arange(len(nodes))
    source, target = (place[end] for end in edges.ends)
    there = (source >= 0) & (target >= 0)
    if label is not None:
        there &= edges.label == label
    return source[there], target[there], edges.value[there]


def lay_out(edges: Edges, nodes: Numbers, layout: str, seed: int) -> Values:
    """(nodes, 2) the position of each node in [-1, 1]², no two in one place."""
    if layout not in LAYOUTS:
        raise RefusedValue(unknown("layout", layout, LAYOUTS))
    count = len(nodes)
    if not edges.is_square:
        is_target = nodes >= edges.size[0]
        places = np.empty((count, 2))
        for side, there in ((-0.7, ~is_target), (0.7, is_target)):
            heights = np.linspace(1, -1, int(there.sum()) + 2)[1:-1]
            places[there] = np.stack([np.full(len(heights), side), heights], axis=1)
        return places
    graph = networkx.Graph()
    graph.add_nodes_from(range(count))
    for m, n, value in zip(*of_label(edges, None, nodes), strict=True):
        if m != n:  # the larger its values, the closer a pair
            before = graph.get_edge_data(m, n, {"weight": 0.05})["weight"]
            graph.add_edge(m, n, weight=before + abs(value))
    if layout == "circle":
        placed = networkx.circular_layout(graph)
    else:
        placed = networkx.spring_layout(
            graph, seed=seed, k=1.8 / max(count, 1) ** 0.5, iterations=200
        )
    places = np.array([placed[node] for node in range(count)]).reshape(-1, 2)
    low, high = places.min(0), places.max(0)
    places = 2 * (places - low) / np.where(high > low, high - low, 1) - 1  # fills the panel
    return _spread(places, 1.3 / max(count, 1) ** 0.5)


def on_grid(shape: tuple[int, int], nodes: Numbers) -> Values:
    """(nodes, 2) the position of nodes that are cells of a grid, the first in the corner above."""
    row, column = np.divmod(nodes, shape[1])
    middle = (np.array([shape[1], shape[0]]) - 1) / 2
    step = 2 / max(*shape, 2)
    return step * (np.stack([column, shape[0] - 1 - row], axis=1) - middle)


def _spread(places: Values, apart: float) -> Values:
    """Push nodes away from each other until no two are closer than a distance."""
    places = places + 1e-6 * np.random.default_rng(0).standard_normal(places.shape)
    for _ in range(300):
        away = places[:, None] - places
        distance = np.linalg.norm(away, axis=-1)
        np.fill_diagonal(distance, np.inf)
        close = np.clip(1.02 * apart - distance, 0, None) / 2
        if (distance >= apart).all():
            break
        places = places + (away / distance[..., None] * close[..., None]).sum(1)
        places = np.clip(places, -1, 1)
    return places


def radius(places: Values) -> float:
    """Radius of a node, so small that a self-loop beside it touches no other node."""
    if len(places) < 2:
        return 0.08
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    np.fill_diagonal(distance, np.inf)
    return min(0.08, 0.33 * float(distance.min()))
