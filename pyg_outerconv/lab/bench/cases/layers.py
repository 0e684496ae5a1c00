"""Single layers on a random graph: GCN, Chebyshev, walks; and two linear layers composed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import ChebConv, GCNConv, TAGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from ....families import GCN, Chebyshev, Walk
from ....nn import OuterConv, compose
from ...train.peers import begin_as
from ..case import (
    CHAINED,
    DGL,
    OURS,
    PYG,
    PYG_COMPILED,
    PYG_CSR,
    SCATTER,
    Contender,
    Context,
    Setup,
    adjacency,
    case,
    compiled,
    layer_contender,
    load_peer,
    of_layer,
)
from ..graphs import inputs_on_random_graph
from ..roofline import convolution
from ..targets import faster

_NO_FORM = "has no layer for this convolution that takes prepared edges"
_CHAIN = "as the chain in PyG, of which the layer alone is in gcn-100k"


@case(
    "gcn-100k",
    "gcn",
    "GCN layer on a random graph, the normalised edges prepared for everyone",
    targets=(faster(PYG, 6), faster(PYG_COMPILED, 4), faster(PYG_CSR, 2)),
    memory=(OURS, PYG),
)
def gcn_layer(context: Context, nodes: int = 100_000, channels: int = 64) -> Setup:
    """OuterConv, PyG's GCNConv in three ways, the same by torch-scatter, and DGL's GraphConv."""
    edge_index, x, direction = inputs_on_random_graph(context, nodes, channels, channels)
    nodes = x.size(0)
    conv = OuterConv(channels, channels, GCN()).to(context.device, context.dtype)
    basis = GCN().basis(edge_index, size=(nodes, nodes), dtype=context.dtype).to(context.device)
    kept = GCNConv(channels, channels, cached=True).to(context.device, context.dtype)
    edges, weight = gcn_norm(edge_index, None, nodes, dtype=context.dtype)
    bare = GCNConv(channels, channels, normalize=False).to(context.device, context.dtype)
    matrix = adjacency(edges, weight, nodes)
    for peer in (kept, bare):
        begin_as(peer, conv)
    absent: dict[str, str] = {}
    shared = bare.lin.weight.detach().t().clone().requires_grad_(), bare.bias
    contenders = [
        of_layer(OURS, conv, x, direction, basis),
        of_layer(PYG, kept, x, direction, edge_index),
        of_layer(PYG_CSR, bare, x, direction, matrix),
        *compiled(context, absent, bare, (x, edges, weight), x, bare.parameters(), direction),
        *_by_scatter(edges, weight, x, *shared, direction, absent),
        *_by_dgl(edges, weight, x, *shared, direction, absent),
    ]
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
    x: Tensor,
    theta: Tensor,
    bias: Tensor,
    direction: Tensor,
    absent: dict[str, str],
) -> list[Contender]:
    """Gather, multiply, and reduce segments of edges that are sorted by target beforehand."""
    module = load_peer(SCATTER, absent)
    if module is None:
        return []
    target, order = edges[1].sort(stable=True)
    source, value = edges[0][order], weight[order].view(-1, 1)
    pointer = torch.zeros(x.size(0) + 1, dtype=torch.long, device=edges.device)
    pointer[1:] = torch.bincount(target, minlength=x.size(0)).cumsum(0)

    def forward() -> Tensor:
        messages = (x @ theta).index_select(0, source) * value
        out: Tensor = module.segment_csr(messages, pointer, reduce="sum") + bias
        return out

    return [layer_contender(SCATTER, forward, x, [theta, bias], direction)]


def _by_dgl(
    edges: Tensor,
    weight: Tensor,
    x: Tensor,
    theta: Tensor,
    bias: Tensor,
    direction: Tensor,
    absent: dict[str, str],
) -> list[Contender]:
    """DGL's GraphConv on the normalised edges, its formats made beforehand."""
    module = load_peer(DGL, absent)
    if module is None:
        return []
    graph = module.graph((edges[0], edges[1]), num_nodes=x.size(0))
    graph.create_formats_()
    conv = module.nn.GraphConv(x.size(1), direction.size(1), norm="none", weight=False, bias=False)

    def forward() -> Tensor:
        out: Tensor = conv(graph, x @ theta, edge_weight=weight) + bias
        return out

    return [layer_contender(DGL, forward, x, [theta, bias], direction)]


@case(
    "chebyshev-5",
    "polynomial",
    "Chebyshev layer of 5 terms, lambda_max given; PyG's rescaled Laplacian is prepared too",
    targets=(faster(PYG, 6),),
    memory=(OURS, PYG),
    terms=5,
)
def chebyshev(context: Context, terms: int, nodes: int = 100_000, channels: int = 64) -> Setup:
    """OuterConv and PyG's ChebConv."""
    edge_index, x, direction = inputs_on_random_graph(context, nodes, channels, channels)
    nodes = x.size(0)
    family = Chebyshev(terms, lambda_max=2.0)
    conv = OuterConv(channels, channels, family).to(context.device, context.dtype)
    basis = family.basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    theirs = ChebConv(channels, channels, K=terms).to(context.device, context.dtype)
    begin_as(theirs, conv)
    prepared = theirs.__norm__(
        edge_index, nodes, None, "sym", torch.tensor(2.0).to(x), dtype=context.dtype
    )
    theirs.__norm__ = lambda *_, **__: prepared  # ChebConv has no cache of its own
    absent = {PYG_CSR: "ChebConv takes no sparse matrix", SCATTER: _NO_FORM, DGL: _NO_FORM}
    contenders = [
        of_layer(OURS, conv, x, direction, basis),
        of_layer(PYG, theirs, x, direction, edge_index),
        *compiled(context, absent, theirs, (x, edge_index), x, theirs.parameters(), direction),
    ]
    work = convolution(
        (nodes, nodes, channels, channels),
        terms * channels**2,
        edge_index.size(1) + nodes,
        terms * nodes,
        context.item_size,
        products=terms - 1,
    )
    sizes = {"nodes": nodes, "edges": edge_index.size(1), "channels": channels, "terms": terms}
    return Setup(contenders, sizes, absent, work)


@case(
    "walk-3",
    "polynomial",
    "walks of length 0 to 3, forward and backward, against a pair of TAGConv",
    targets=(faster(PYG, 6),),
    length=3,
)
def walk(context: Context, length: int, nodes: int = 100_000, channels: int = 64) -> Setup:
    """OuterConv and two of PyG's TAGConv, one on reversed edges; transition matrices prepared."""
    edge_index, x, direction = inputs_on_random_graph(context, nodes, channels, channels)
    nodes = x.size(0)
    family = Walk(length, direction="both")
    conv = OuterConv(channels, channels, family).to(context.device, context.dtype)
    basis = family.basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    ways = []
    for way in ("forward", "backward"):
        step = Walk(1, powers=(1,), direction=way)
        edges = step.basis(edge_index, size=(nodes, nodes), dtype=context.dtype).edges()
        ways.append((edges.index.long(), edges.values()))
    matrices = [adjacency(index, value, nodes) for index, value in ways]
    pair: Any = torch.nn.ModuleList(
        TAGConv(channels, channels, K=length, normalize=False, bias=False) for _ in ways
    ).to(context.device, context.dtype)
    lins = [lin for tag in pair for lin in tag.lins]
    with torch.no_grad():
        for lin, theta in zip(lins, conv.theta()[:, 0], strict=True):
            lin.weight.copy_(theta.t())
    bias = torch.zeros(channels, device=x.device, dtype=x.dtype, requires_grad=True)
    parameters = [*pair.parameters(), bias]

    def by_edges() -> Tensor:
        there, back = (tag(x, *way) for tag, way in zip(pair, ways, strict=True))
        out: Tensor = there + back + bias
        return out

    def by_matrices() -> Tensor:
        there, back = (tag(x, matrix) for tag, matrix in zip(pair, matrices, strict=True))
        out: Tensor = there + back + bias
        return out

    absent = {SCATTER: _NO_FORM, DGL: _NO_FORM}
    contenders = [
        of_layer(OURS, conv, x, direction, basis),
        layer_contender(PYG, by_edges, x, parameters, direction),
        layer_contender(PYG_CSR, by_matrices, x, parameters, direction),
        *compiled(context, absent, by_edges, (), x, parameters, direction),
    ]
    work = convolution(
        (nodes, nodes, channels, channels),
        2 * (length + 1) * channels**2,
        edge_index.size(1),
        2 * (length + 1) * nodes,
        context.item_size,
        products=2 * length,
    )
    sizes = {"nodes": nodes, "edges": edge_index.size(1), "channels": channels, "length": length}
    return Setup(contenders, sizes, absent, work)


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
def composition(context: Context, channels: tuple[int, int, int], nodes: int = 100_000) -> Setup:
    """The composition of two OuterConv, both in a chain, and two of PyG's GCNConv in two ways."""
    edge_index, x, direction = inputs_on_random_graph(
        context, nodes, channels[0], channels[2], degree=10
    )
    nodes = x.size(0)
    ends = list(pairwise(channels))
    layers = [OuterConv(*pair, GCN()).to(context.device, context.dtype) for pair in ends]
    both = compose(*layers)
    basis = GCN().basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    product = basis.compose(basis)
    peers = [GCNConv(*pair, normalize=False).to(context.device, context.dtype) for pair in ends]
    for peer, conv in zip(peers, layers, strict=True):
        begin_as(peer, conv)
    edges, weight = gcn_norm(edge_index, None, nodes, dtype=context.dtype)
    matrix = adjacency(edges, weight, nodes)

    def chain(pair: list[Any], *structure: Any) -> Tensor:
        out: Tensor = pair[1](pair[0](x, *structure), *structure)
        return out

    ours = [parameter for conv in layers for parameter in conv.parameters()]
    theirs = [parameter for peer in peers for parameter in peer.parameters()]
    contenders = [
        of_layer(OURS, both, x, direction, product),
        layer_contender(CHAINED, lambda: chain(layers, basis), x, ours, direction, own=True),
        layer_contender(PYG, lambda: chain(peers, edges, weight), x, theirs, direction),
        layer_contender(PYG_CSR, lambda: chain(peers, matrix), x, theirs, direction),
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
