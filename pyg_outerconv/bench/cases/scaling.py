"""How the cost of an edge grows with the graph, with and without locality."""

from __future__ import annotations

import torch
from torch import Tensor

from ...basis import EdgeBasis, Pattern
from ...families import Relation
from ...nn import OuterConv
from ..bounds import convolution
from ..case import Contender, Point, Setup, case
from ..context import Context
from ..machine import free_memory
from ..names import FORWARD, OURS
from ..targets import Flat, Under

MILLION = 1_000_000
DEGREE, CHANNELS, BAND = 12, 16, 64
# Preparation and a forward pass held 54 at their peak, measured; the rest is a margin.
BYTES_AN_EDGE = 100


def edge_counts(context: Context) -> list[int]:
    """From 1M to 100M edges as far as memory goes, to 4M in a quick run."""
    counts = (1, 2, 4) if context.quick else (1, 3, 10, 30, 100)
    sizes = [context.size(count * MILLION, at_least=DEGREE, quick=False) for count in counts]
    room = free_memory(context.device)
    return [size for size in sizes if size * BYTES_AN_EDGE < room] or sizes[:1]


def edges_in_order(edges: int, local: bool, generator: torch.Generator) -> tuple[Tensor, int]:
    """(2, E) int32 edges, 12 into each node, from anywhere or from the 64 nodes around it."""
    nodes = max(2, edges // DEGREE)
    index = torch.empty((2, nodes * DEGREE), dtype=torch.int32)
    torch.arange(nodes, dtype=torch.int32, out=index[1, :nodes])
    index[1] = index[1, :nodes].clone().repeat_interleave(DEGREE)
    if local:
        index[0].random_(0, BAND, generator=generator)
        index[0].add_(index[1]).sub_(BAND // 2).remainder_(nodes)
    else:
        index[0].random_(0, nodes, generator=generator)
    return index, nodes


@case(
    "scaling-random",
    "scaling",
    "forward pass of one label on a random graph: every neighbour is anywhere",
    axis="edges",
    points=edge_counts,
    targets=(Flat("edges", 3), Under(20)),
    memory=(OURS,),
    local=False,
)
@case(
    "scaling-local",
    "scaling",
    "forward pass of one label on a banded graph: every neighbour is at most 32 nodes away",
    axis="edges",
    points=edge_counts,
    targets=(Flat("edges", 1.5), Under(20)),
    memory=(OURS,),
    local=True,
)
def growing_graph(context: Context, point: Point, local: bool) -> Setup:
    """OuterConv on weighted edges whose pattern is sorted beforehand."""
    generator = context.generator()
    assert isinstance(point, int)  # edge_counts
    index, nodes = edges_in_order(point, local, generator)
    pattern = Pattern.build(index.to(context.device), size=(nodes, nodes))
    del index
    value = torch.rand(pattern.num_edges, generator=generator).to(context.device, context.dtype)
    basis = EdgeBasis(pattern, value)
    x = context.randn(nodes, CHANNELS, generator=generator)
    conv = OuterConv(CHANNELS, CHANNELS, Relation(1, None)).to(context.device, context.dtype)

    def forward() -> Tensor:
        with torch.no_grad():
            return conv(x, basis)

    work = convolution(
        (nodes, nodes, CHANNELS, CHANNELS),
        CHANNELS**2,
        pattern.num_edges,
        nodes,
        context.item_size,
    )
    sizes = {"edges": pattern.num_edges, "nodes": nodes, "channels": CHANNELS}
    return Setup([Contender(OURS, {FORWARD: forward})], sizes, work={FORWARD: work[FORWARD]})
