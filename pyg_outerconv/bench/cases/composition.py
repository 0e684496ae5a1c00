"""Two linear layers: composed to one, and one after the other."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from ...families import GCN
from ...nn import OuterConv, compose
from ..bounds import convolution
from ..case import Setup, case, layer_contender
from ..context import Context
from ..graphs import random_graph
from ..names import CHAINED, DGL, OURS, PYG, PYG_COMPILED, PYG_CSR, SCATTER
from ..peers import adjacency, set_parameter

_CHAIN = "as the chain in PyG, of which the layer alone is in gcn-100k"


@case(
    "composition-64",
    "composition",
    "two linear GCN layers of 64 channels, composed and in a chain, normalised edges prepared",
    channels=(64, 64, 64),
)
@case(
    "composition-wide-inside",
    "composition",
    "two linear GCN layers of 16, 64 and 16 channels, composed and in a chain",
    channels=(16, 64, 16),
)
@case(
    "composition-500-16-7",
    "composition",
    "two linear GCN layers of 500, 16 and 7 channels, composed and in a chain",
    channels=(500, 16, 7),
)
def composition(
    context: Context, channels: tuple[int, int, int], nodes: int = 100_000, degree: int = 10
) -> Setup:
    """The composition of two OuterConv, both in a chain, and two of PyG's GCNConv in two ways."""
    generator = context.generator()
    nodes = context.size(nodes, at_least=8)
    edge_index = random_graph(nodes, degree * nodes, generator)
    x = context.randn(nodes, channels[0], generator=generator).requires_grad_()
    direction = context.randn(nodes, channels[2], generator=generator)
    edge_index = edge_index.to(context.device)

    ends = list(pairwise(channels))
    layers = [OuterConv(*pair, GCN()).to(context.device, context.dtype) for pair in ends]
    both = compose(*layers)
    basis = GCN().basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    product = basis.compose(basis)
    peers = [GCNConv(*pair, normalize=False).to(context.device, context.dtype) for pair in ends]
    for peer, conv in zip(peers, layers, strict=True):
        set_parameter(peer.lin.weight, conv.theta()[0, 0].t())
    edges, weight = gcn_norm(edge_index, None, nodes, dtype=context.dtype)
    matrix = adjacency(edges, weight, nodes)

    def by_edges() -> Tensor:
        out: Tensor = peers[1](peers[0](x, edges, weight), edges, weight)
        return out

    def by_matrix() -> Tensor:
        out: Tensor = peers[1](peers[0](x, matrix), matrix)
        return out

    ours = [parameter for conv in layers for parameter in conv.parameters()]
    theirs = [parameter for peer in peers for parameter in peer.parameters()]
    contenders = [
        layer_contender(OURS, lambda: both(x, product), x, both.parameters(), direction),
        layer_contender(
            CHAINED, lambda: layers[1](layers[0](x, basis), basis), x, ours, direction, own=True
        ),
        layer_contender(PYG, by_edges, x, theirs, direction),
        layer_contender(PYG_CSR, by_matrix, x, theirs, direction),
    ]
    work = convolution(
        (nodes, nodes, channels[0], channels[2]),
        channels[0] * channels[2],
        basis.edges().num_edges,
        nodes,
        context.item_size,
        products=2,
    )
    sizes: dict[str, int | str] = {
        "nodes": nodes,
        "edges": edge_index.size(1),
        "channels": " to ".join(map(str, channels)),
    }
    absent = {PYG_COMPILED: _CHAIN, SCATTER: _CHAIN, DGL: _CHAIN}
    return Setup(contenders, sizes, absent, work)
