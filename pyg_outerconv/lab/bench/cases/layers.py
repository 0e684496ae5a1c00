"""Layers on a graph, ours and PyG's of the same family with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, ModuleList
from torch_geometric.data import Data
from torch_geometric.nn import ChebConv, GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from ....nn import OuterConv
from ....nn.recipes import layer_of
from ....pyg import from_pyg, outer_conv
from ...train.peers import begin_as, peer_of
from ..case import (
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
from ..graphs import fb15k_237, power_law_graph, random_graph, uniform_types
from ..roofline import attention, relation_rows
from ..sides import QUICK, Sides
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
    channels = sides.x.size(1)
    ours, theirs, arguments = layer.pair(sides.data, channels, channels)
    is_learned = ours.family.makes_use_of("x")
    ours = outer_conv(theirs) if is_learned else ours  # which has every bias of PyG's
    ours, theirs = sides.placed(ours), sides.placed(theirs)
    if isinstance(theirs, GCNConv):
        theirs.cached = True
    elif isinstance(theirs, ChebConv):  # which has no cache of its own
        norm = theirs.normalization, arguments["lambda_max"].to(sides.x)
        rescaled_laplacian = theirs.__norm__(
            sides.edge_index, sides.nodes, None, *norm, dtype=sides.x.dtype
        )
        theirs.__norm__ = lambda *_, **__: rescaled_laplacian
    structure = sides.edge_index if is_learned else sides.basis(ours.family)
    sides.layer(OURS, ours, structure)
    sides.layer(PYG, theirs, **arguments)
    if compiles:
        sides.compiled(theirs, sides.x, of=theirs.parameters(), **arguments)
    return ours, theirs, structure


def on_random_graph(
    context: Context, draw: Callable[[int, int, torch.Generator], Tensor] = random_graph
) -> Sides:
    """The graph and the channels of most cases: twelve edges into each node on average."""
    generator, nodes = context.generator(), context.size(NODES, at_least=8)
    edge_index = draw(nodes, 12 * nodes, generator)
    return Sides(context, (nodes, CHANNELS), edge_index, generator=generator)


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
    "walk-3-forward",
    "polynomial",
    "walks of length 0 to 3 along the edges, against TAGConv; the transition matrix is prepared",
    targets=(faster(PYG, 6),),
    family="walk(3)",
    terms=4,
)
@case(
    "chebyshev-5",
    "polynomial",
    "Chebyshev layer of 5 terms, lambda_max given; PyG's rescaled Laplacian is prepared too",
    targets=(faster(PYG, 6),),
    memory=(OURS, PYG),
    family="chebyshev(5, lambda_max=2.0)",
    terms=5,
    has_diagonal=True,
)
def polynomial(context: Context, family: str, terms: int, has_diagonal: bool = False) -> Setup:
    """OuterConv and PyG's layer of the same polynomial."""
    sides = on_random_graph(context)
    both(sides, Layer("a polynomial", family))
    entries, rows = sides.edges + has_diagonal * sides.nodes, terms * sides.nodes
    work = sides.work(terms * CHANNELS**2, entries, rows, products=terms - 1)
    return sides.setup({"channels": CHANNELS, "terms": terms}, work)


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


def attention_layer(context: Context, layer: str, power_law: bool = False) -> Setup:
    """A layer with all its projections."""
    sides = on_random_graph(context, power_law_graph if power_law else random_graph)
    both(sides, LAYERS[layer], compiles=not power_law)
    work = attention(sides.nodes, sides.edges, CHANNELS, context.item_size)
    setup = sides.setup({"heads": HEADS, "channels of a head": CHANNELS // HEADS}, work)
    # Over a million edges PyG's gradient of x in float32 was 7e-4 away from that in float64, ours
    # 4e-7; on this graph the two differ by 2e-3.
    return replace(setup, slack=5.0) if layer == "gat" else setup


for _name, _what, _asked in (
    ("gat", "GAT", 3.5),
    ("gatv2", "GATv2", 3.0),
    ("transformer", "TransformerConv", 3.0),
):
    case(
        f"{_name}-100k",
        "attention-layers",
        f"{_what} layer, 4 heads of 16 channels, on a random graph",
        targets=(faster(PYG, 5), smaller(PYG, 4)),
        memory=(OURS, PYG),
        layer=_name,
    )(attention_layer)
    case(
        f"{_name}-power-law",
        "power-law",
        f"{_what} layer, 4 heads of 16 channels, on a graph with hubs",
        targets=(faster(PYG, _asked),),
        layer=_name,
        power_law=True,
    )(attention_layer)


# Under torch.compile -----------------------------------------------------------------------------

EAGER = "outerconv, not compiled"
SIZES = {"small": (500, 2_500), "middle": (5_000, 50_000), "large": (20_000, 200_000)}


class TwoLayers(Module):
    """Two layers with an ELU between them.

    No ReLU: torch's compiled one is slow on some CPUs, where it stores a boolean for each number
    (12 ms instead of 2 for 20,000 x 64 on an AMD EPYC with torch 2.13).
    """

    def __init__(self, layers: list[Module]) -> None:
        super().__init__()
        self.layers = ModuleList(layers)

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        first, second = self.layers
        out: Tensor = second(F.elu(first(x, *edges)), *edges)
        return out


def two_layers(context: Context, layer: str, size: str) -> Setup:
    """Ours compiled, ours as it is, and PyG's compiled; a quick run compiles nothing."""
    generator, (nodes, edges) = context.generator(), SIZES[size]
    nodes, edges = context.size(nodes, 8), context.size(edges, 16)
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    types = uniform_types(edges, RELATIONS, generator) if layer == "rgcn" else None
    sides = Sides(context, (nodes, CHANNELS), edge_index, types)
    arguments = [part for part in (sides.edge_index, sides.types) if part is not None]
    pairs = [LAYERS[layer].pair(sides.data, CHANNELS, CHANNELS) for _ in range(2)]
    theirs = sides.placed(TwoLayers([one for _, one, _ in pairs]))
    ours = from_pyg(theirs)
    running = {OURS: (ours, True), EAGER: (ours, False), PYG_COMPILED: (theirs, True)}
    if context.quick:
        sides.absent[PYG_COMPILED] = QUICK
        running[PYG] = running.pop(PYG_COMPILED)
    else:
        torch.compiler.reset()  # layers of one class share a bound on how often they are compiled
    for name, (model, compiles) in running.items():
        step: Any = torch.compile(model) if compiles and not context.quick else model
        sides.layer(name, step, *arguments, own=model is ours)
    return sides.setup({"channels": CHANNELS})


for _layer in ("gcn", "sage", "gat", "gatv2", "transformer", "rgcn"):
    for _size in SIZES:
        case(
            f"compiled-{_layer}-{_size}",
            "compiled",
            f"two layers of {LAYERS[_layer].words}, compiled",
            targets=(faster(EAGER, 1.0), faster(PYG_COMPILED, 1.0)),
            quick=False,
            layer=_layer,
            size=_size,
        )(two_layers)
