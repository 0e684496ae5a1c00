"""The GCN layer: one sparse product and one dense one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from ...families import GCN
from ...nn import OuterConv
from ..bounds import convolution
from ..case import Contender, Setup, case, layer_contender
from ..context import Context
from ..graphs import random_graph
from ..names import DGL, OURS, PYG, PYG_COMPILED, PYG_CSR, SCATTER
from ..peers import adjacency, compiled, load_peer, set_parameter
from ..targets import Faster


@case(
    "gcn-100k",
    "gcn",
    "GCN layer on a random graph, the normalised edges prepared for everyone",
    targets=(Faster(PYG, 6), Faster(PYG_COMPILED, 4), Faster(PYG_CSR, 2)),
    memory=(OURS, PYG),
)
def gcn_layer(context: Context, nodes: int = 100_000, channels: int = 64) -> Setup:
    """OuterConv, PyG's GCNConv in three ways, the same by torch-scatter, and DGL's GraphConv."""
    generator = context.generator()
    nodes = context.size(nodes, at_least=8)
    edge_index = random_graph(nodes, 12 * nodes, generator)
    x = context.randn(nodes, channels, generator=generator).requires_grad_()
    direction = context.randn(nodes, channels, generator=generator)
    edge_index = edge_index.to(context.device)

    conv = OuterConv(channels, channels, GCN()).to(context.device, context.dtype)
    basis = GCN().basis(edge_index, size=(nodes, nodes), dtype=context.dtype).to(context.device)
    ours = layer_contender(OURS, lambda: conv(x, basis), x, conv.parameters(), direction)

    kept = GCNConv(channels, channels, cached=True).to(context.device, context.dtype)
    edges, weight = gcn_norm(edge_index, None, nodes, dtype=context.dtype)
    bare = GCNConv(channels, channels, normalize=False).to(context.device, context.dtype)
    matrix = adjacency(edges, weight, nodes)
    for peer in (kept, bare):
        set_parameter(peer.lin.weight, conv.theta()[0, 0].t())
    absent: dict[str, str] = {}
    contenders = [
        ours,
        layer_contender(PYG, lambda: kept(x, edge_index), x, kept.parameters(), direction),
        layer_contender(PYG_CSR, lambda: bare(x, matrix), x, bare.parameters(), direction),
    ]
    if (fused := compiled(bare, context, absent)) is not None:
        contenders.append(
            layer_contender(
                PYG_COMPILED, lambda: fused(x, edges, weight), x, bare.parameters(), direction
            )
        )
    parameters = [bare.lin.weight.detach().t().clone().requires_grad_(), bare.bias]
    for make in (_by_scatter, _by_dgl):
        contender = make(edges, weight, nodes, x, parameters, direction, absent)
        contenders += [] if contender is None else [contender]
    work = convolution(
        (nodes, nodes, channels, channels),
        channels**2,
        basis.edges().num_edges,
        nodes,
        context.item_size,
    )
    sizes = {"nodes": nodes, "edges": edge_index.size(1), "channels": channels}
    return Setup(contenders, sizes, absent, work)


def _by_scatter(
    edges: Tensor,
    weight: Tensor,
    nodes: int,
    x: Tensor,
    parameters: list[Any],
    direction: Tensor,
    absent: dict[str, str],
) -> Contender | None:
    """Gather, multiply, and reduce segments of edges that are sorted by target beforehand."""
    module = load_peer(SCATTER, absent)
    if module is None:
        return None
    target, order = edges[1].sort(stable=True)
    source, value = edges[0][order], weight[order].view(-1, 1)
    pointer = torch.zeros(nodes + 1, dtype=torch.long, device=edges.device)
    pointer[1:] = torch.bincount(target, minlength=nodes).cumsum(0)
    theta, bias = parameters

    def forward() -> Tensor:
        messages = (x @ theta).index_select(0, source) * value
        out: Tensor = module.segment_csr(messages, pointer, reduce="sum") + bias
        return out

    return layer_contender(SCATTER, forward, x, parameters, direction)


def _by_dgl(
    edges: Tensor,
    weight: Tensor,
    nodes: int,
    x: Tensor,
    parameters: list[Any],
    direction: Tensor,
    absent: dict[str, str],
) -> Contender | None:
    """DGL's GraphConv on the normalised edges, its formats made beforehand."""
    module = load_peer(DGL, absent)
    if module is None:
        return None
    graph = module.graph((edges[0], edges[1]), num_nodes=nodes)
    graph.create_formats_()
    theta, bias = parameters
    conv = module.nn.GraphConv(x.size(1), direction.size(1), norm="none", weight=False, bias=False)

    def forward() -> Tensor:
        out: Tensor = conv(graph, x @ theta, edge_weight=weight) + bias
        return out

    return layer_contender(DGL, forward, x, parameters, direction)
