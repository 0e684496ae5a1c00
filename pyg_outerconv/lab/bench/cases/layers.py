"""Layers on a graph, ours and PyG's of the same family with the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import ChebConv, GCNConv, TAGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from ....families import GCN, Walk
from ....nn import OuterConv, compose
from ....nn.recipes import layer_of
from ....pyg import outer_conv
from ...train.peers import begin_as, peer_of
from ..case import (
    CHAINED,
    FLOOR,
    FORWARD,
    OURS,
    PYG,
    PYG_COMPILED,
    PYG_CSR,
    SCATTER,
    TRAINING,
    Contender,
    Context,
    Setup,
    case,
)
from ..graphs import random_graph, uniform_types
from ..real_graphs import fb15k_237
from ..roofline import attention, relation_rows
from ..sides import Sides
from ..targets import faster, smaller

NODES, CHANNELS, HEADS, RELATIONS = 100_000, 64, 4, 3
MOST_UNROLLED = 8


@dataclass(frozen=True)
class Layer:
    """A layer in words, its family, and options beside it."""

    words: str
    family: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def pair(
        self, data: Data, p: int, q: int, cached: bool = False
    ) -> tuple[OuterConv, Any, Mapping[str, Any]]:
        """Ours, PyG's with its weights, and what PyG's is called with beside x."""
        ours = layer_of(p, q, self.family, cached=cached or None, **self.options)
        peer = peer_of(self.family, data, **self.options)
        return ours, peer.layer(ours, p, q), peer.arguments


WITH_ROOT = {"root_weight": True}
LAYERS = {
    "gcn": Layer("GCN", "gcn"),
    "sage": Layer("GraphSAGE (mean and root)", "relation(1)", WITH_ROOT),
    "chebyshev": Layer("Chebyshev of 3 terms", "chebyshev(3)"),
    "rgcn": Layer(f"R-GCN of {RELATIONS} relations", f"relation({RELATIONS})", WITH_ROOT),
    "gat": Layer(f"GAT of {HEADS} heads", f"gat({HEADS})"),
    "gatv2": Layer(f"GATv2 of {HEADS} heads", f"gatv2({HEADS})"),
    "transformer": Layer(f"TransformerConv of {HEADS} heads", f"transformer({HEADS})", WITH_ROOT),
}


def both(sides: Sides, layer: Layer, compiles: bool = True) -> tuple[OuterConv, Any, Any]:
    """Add ours and PyG's, and PyG's compiled; return both, and what ours is called with.

    The edges are normalised, and sorted, before the clock starts, for either of them.
    """
    ours, theirs, given = layer.pair(sides.data, sides.x.size(1), sides.direction.size(1))
    is_learned = ours.family.makes_use_of("x")
    ours = outer_conv(theirs) if is_learned else ours  # which has every bias of PyG's
    ours, theirs = sides.placed(ours), sides.placed(theirs)
    if isinstance(theirs, GCNConv):
        theirs.cached = True
    elif isinstance(theirs, ChebConv):  # which has no cache of its own
        norm = theirs.normalization, given["lambda_max"].to(sides.x)
        made = theirs.__norm__(sides.edge_index, sides.nodes, None, *norm, dtype=sides.x.dtype)
        theirs.__norm__ = lambda *_, **__: made
    structure = sides.edge_index if is_learned else sides.basis(ours.family)
    sides.layer(OURS, ours, structure)
    sides.layer(PYG, theirs, **given)
    if compiles:
        sides.compiled(theirs, sides.x, of=theirs.parameters(), **given)
    return ours, theirs, structure


def on_random_graph(context: Context) -> Sides:
    """The graph and the channels of most cases."""
    return Sides.on_random_graph(context, NODES, CHANNELS, CHANNELS)


@case(
    "gcn-100k",
    "gcn",
    "GCN layer on a random graph, the normalised edges prepared for everyone",
    targets=(faster(PYG, 6), faster(PYG_COMPILED, 4), faster(PYG_CSR, 2)),
    memory=(OURS, PYG),
)
def gcn_layer(context: Context) -> Setup:
    """OuterConv, PyG's GCNConv in three ways, and the same by torch-scatter."""
    sides = on_random_graph(context)
    conv, _, basis = both(sides, LAYERS["gcn"], compiles=False)
    bare = sides.placed(GCNConv(CHANNELS, CHANNELS, normalize=False))
    begin_as(bare, conv)
    edges, weight = gcn_norm(sides.edge_index, None, sides.nodes, dtype=context.dtype)
    sides.layer(PYG_CSR, bare, sides.matrix(edges, weight))
    sides.compiled(bare, sides.x, edges, weight, of=bare.parameters())
    _by_scatter(sides, edges, weight, bare)
    work = sides.work(CHANNELS**2, basis.edges().num_edges, sides.nodes)
    return sides.setup({"channels": CHANNELS}, work)


def _by_scatter(sides: Sides, edges: Tensor, weight: Tensor, layer: GCNConv) -> None:
    """Gather, multiply, and reduce segments of edges that are sorted by target beforehand."""
    module = sides.torch_scatter()
    if module is None:
        return
    theta, bias = layer.lin.weight.detach().t().clone().requires_grad_(), layer.bias
    target, order = edges[1].sort(stable=True)
    source, value = edges[0][order], weight[order].view(-1, 1)
    pointer = torch.zeros(sides.nodes + 1, dtype=torch.long, device=edges.device)
    pointer[1:] = torch.bincount(target, minlength=sides.nodes).cumsum(0)

    def forward() -> Tensor:
        messages = (sides.x @ theta).index_select(0, source) * value
        out: Tensor = module.segment_csr(messages, pointer, reduce="sum") + bias
        return out

    sides.add(SCATTER, forward, [theta, bias])


@case(
    "chebyshev-5",
    "polynomial",
    "Chebyshev layer of 5 terms, lambda_max given; PyG's rescaled Laplacian is prepared too",
    targets=(faster(PYG, 6),),
    memory=(OURS, PYG),
    terms=5,
)
def chebyshev(context: Context, terms: int) -> Setup:
    """OuterConv and PyG's ChebConv."""
    sides = on_random_graph(context)
    both(sides, Layer("Chebyshev", f"chebyshev({terms}, lambda_max=2.0)"))
    rows = terms * sides.nodes
    work = sides.work(terms * CHANNELS**2, sides.edges + sides.nodes, rows, products=terms - 1)
    return sides.setup({"channels": CHANNELS, "terms": terms}, work)


@case(
    "walk-3",
    "polynomial",
    "walks of length 0 to 3, forward and backward, against a pair of TAGConv",
    targets=(faster(PYG, 6),),
    length=3,
)
def walk(context: Context, length: int) -> Setup:
    """OuterConv and two of PyG's TAGConv, one on reversed edges; transition matrices prepared."""
    sides, family = on_random_graph(context), Walk(length, direction="both")
    conv = sides.placed(OuterConv(CHANNELS, CHANNELS, family))
    steps = [
        sides.basis(Walk(1, powers=(1,), direction=way)).edges() for way in ("forward", "backward")
    ]
    ways = [(step.index.long(), step.values()) for step in steps]
    tags = [TAGConv(CHANNELS, CHANNELS, K=length, normalize=False, bias=False) for _ in ways]
    pair: Any = sides.placed(torch.nn.ModuleList(tags))
    lins = [lin for tag in tags for lin in tag.lins]
    with torch.no_grad():
        for lin, theta in zip(lins, conv.theta()[:, 0], strict=True):
            lin.weight.copy_(theta.t())
    bias = torch.zeros_like(sides.direction[0], requires_grad=True)
    parameters = [*pair.parameters(), bias]

    def two(*given: tuple[Any, ...]) -> Tensor:
        there, back = (tag(sides.x, *way) for tag, way in zip(pair, given, strict=True))
        out: Tensor = there + back + bias
        return out

    matrices = [(sides.matrix(*way),) for way in ways]
    sides.layer(OURS, conv, sides.basis(family))
    sides.add(PYG, lambda: two(*ways), parameters)
    sides.add(PYG_CSR, lambda: two(*matrices), parameters)
    sides.compiled(lambda: two(*ways), of=parameters)
    terms = 2 * (length + 1)
    work = sides.work(terms * CHANNELS**2, sides.edges, terms * sides.nodes, products=2 * length)
    return sides.setup({"channels": CHANNELS, "length": length}, work)


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
def composition(context: Context, channels: tuple[int, int, int]) -> Setup:
    """The composition of two OuterConv, both in a chain, and two of PyG's GCNConv in two ways."""
    p, _, q = channels
    sides = Sides.on_random_graph(context, NODES, p, q, degree=10)
    ours = [sides.placed(OuterConv(*ends, GCN())) for ends in pairwise(channels)]
    theirs = [sides.placed(GCNConv(*ends, normalize=False)) for ends in pairwise(channels)]
    for peer, conv in zip(theirs, ours, strict=True):
        begin_as(peer, conv)
    basis = sides.basis(GCN())
    edges, weight = gcn_norm(sides.edge_index, None, sides.nodes, dtype=context.dtype)
    sides.layer(OURS, compose(*ours), basis.compose(basis))
    sides.layer(CHAINED, Chain(*ours), basis, own=True)
    sides.layer(PYG, Chain(*theirs), edges, weight)
    sides.layer(PYG_CSR, Chain(*theirs), sides.matrix(edges, weight))
    work = sides.work(p * q, basis.edges().num_edges, sides.nodes, products=2)
    return sides.setup({"channels": " to ".join(map(str, channels))}, work)


class Chain(torch.nn.Sequential):
    """Layers one after the other, each called with what is given beside the features."""

    def forward(self, x: Tensor, *structure: Any) -> Tensor:
        """(N, Q) of (N, P)."""
        for layer in self:
            x = layer(x, *structure)
        return x


# Relations ----------------------------------------------------------------------------------------


@case(
    "rgcn-40",
    "relation",
    "R-GCN layer, 40 labels on a random graph, summed within labels",
    targets=(faster(PYG, 2.5, floor=FLOOR),),
    labels=40,
)
@case(
    "rgcn-8",
    "relation",
    "R-GCN layer, 8 labels on a random graph, summed within labels",
    targets=(faster(PYG, 1.3, floor=FLOOR),),
    labels=8,
)
def relations(context: Context, labels: int) -> Setup:
    """Labels drawn uniformly."""
    generator, nodes = context.generator(), context.size(NODES, at_least=8)
    edge_index = random_graph(nodes, 12 * nodes, generator)
    types = uniform_types(edge_index.size(1), labels, generator)
    return relational(context, (edge_index, types, nodes, labels, "random"))


@case(
    "rgcn-fb15k-bases",
    "relation",
    "R-GCN layer on FB15k-237 with reverses (474 labels), mixed of 30 bases",
    targets=(faster(PYG, 10),),
    memory=(OURS, PYG),
    bases=30,
)
@case(
    "rgcn-fb15k",
    "relation",
    "R-GCN layer on FB15k-237 with reverses (474 labels), or a graph of its counts",
    targets=(faster(PYG, 5, floor=FLOOR), smaller(PYG, 3)),
    memory=(OURS, PYG),
)
def on_fb15k(context: Context, bases: int | None = None) -> Setup:
    """Real triples where they are, else a graph of the same counts."""
    return relational(context, fb15k_237(context), bases)


def relational(
    context: Context, graph: tuple[Tensor, Tensor, int, int, str], bases: int | None = None
) -> Setup:
    """A parameter for each type of edge, in full or as a mix of few bases."""
    edge_index, types, nodes, labels, origin = graph
    sides = Sides(context, (nodes, CHANNELS), edge_index, types)
    form = "full" if bases is None else f"basis-decomposed(num_bases={bases})"
    layer = Layer("R-GCN", f"relation({labels}, None)", {"theta": form, **WITH_ROOT})
    ours, _, basis = both(sides, layer, compiles=labels <= MOST_UNROLLED)
    if labels > MOST_UNROLLED:
        reason = f"torch.compile would unroll RGCNConv's loop over {labels} labels"
        sides.absent[PYG_COMPILED] = reason
    rows = relation_rows(basis)
    if bases is None:
        sides.contenders.append(_products_alone(context, rows, nodes, labels))
    count = sum(parameter.numel() for parameter in ours.parameters())
    dense_rows = nodes + (rows if bases is None else min(rows, nodes * bases))
    work = sides.work(count, sides.edges, dense_rows, valued=False)
    sizes = {"labels": labels, "channels": CHANNELS, "rows of products": rows}
    return sides.setup({**sizes, "graph": origin}, work)


def _products_alone(context: Context, rows: int, nodes: int, labels: int) -> Contender:
    """What nobody can leave out: the rows times Θ_k, the nodes times the root's, and backward.

    Each label gets an equal share of the rows, in one batched product.
    """
    tall, wide, x, root = (
        torch.ones(*shape, CHANNELS, device=context.device, dtype=context.dtype)
        for shape in ((labels, max(1, rows // labels)), (labels, CHANNELS), (nodes,), (CHANNELS,))
    )

    def forward() -> tuple[Tensor, Tensor]:
        return tall @ wide, x @ root

    def training() -> tuple[tuple[Tensor, Tensor], Tensor, Tensor, Tensor, Tensor]:
        transposed = tall.transpose(1, 2)
        return forward(), tall @ wide.transpose(1, 2), transposed @ tall, x @ root.t(), x.t() @ x

    return Contender(FLOOR, {FORWARD: forward, TRAINING: training})


# Attention ----------------------------------------------------------------------------------------


def attention_layer(context: Context, layer: str) -> Setup:
    """A layer with all its projections."""
    sides = on_random_graph(context)
    both(sides, LAYERS[layer])
    work = attention(sides.nodes, sides.edges, CHANNELS, context.item_size)
    return sides.setup({"heads": HEADS, "channels of a head": CHANNELS // HEADS}, work)


for _name, _what in (("gat", "GAT"), ("gatv2", "GATv2"), ("transformer", "TransformerConv")):
    case(
        f"{_name}-100k",
        "attention-layers",
        f"{_what} layer, 4 heads of 16 channels, on a random graph",
        targets=(faster(PYG, 5), smaller(PYG, 4)),
        memory=(OURS, PYG),
        layer=_name,
    )(attention_layer)
