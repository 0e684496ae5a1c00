"""Single layers on a graph: GCN, Chebyshev, walks, compositions; and what preparing one costs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import ChebConv, GCNConv, TAGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from ....basis import Basis, EdgeBasis
from ....families import GCN, Chebyshev, Relation, Walk
from ....nn import OuterConv, compose
from ...train.peers import begin_as
from ..case import (
    CHAINED,
    FORWARD,
    OURS,
    PREPARATION,
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
from ..graphs import grid_graph, random_graph, shuffled, uniform_types
from ..sides import Sides
from ..targets import faster, pays_within

NODES, CHANNELS = 100_000, 64


@case(
    "gcn-100k",
    "gcn",
    "GCN layer on a random graph, the normalised edges prepared for everyone",
    targets=(faster(PYG, 6), faster(PYG_COMPILED, 4), faster(PYG_CSR, 2)),
    memory=(OURS, PYG),
)
def gcn_layer(context: Context) -> Setup:
    """OuterConv, PyG's GCNConv in three ways, and the same by torch-scatter."""
    sides = Sides.on_random_graph(context, NODES, CHANNELS, CHANNELS)
    conv, basis = sides.placed(OuterConv(CHANNELS, CHANNELS, GCN())), sides.basis(GCN())
    kept = sides.placed(GCNConv(CHANNELS, CHANNELS, cached=True))
    bare = sides.placed(GCNConv(CHANNELS, CHANNELS, normalize=False))
    edges, weight = gcn_norm(sides.edge_index, None, sides.nodes, dtype=context.dtype)
    for peer in (kept, bare):
        begin_as(peer, conv)
    theta, bias = bare.lin.weight.detach().t().clone().requires_grad_(), bare.bias
    sides.layer(OURS, conv, basis)
    sides.layer(PYG, kept, sides.edge_index)
    sides.layer(PYG_CSR, bare, sides.matrix(edges, weight))
    sides.compiled(bare, sides.x, edges, weight, of=bare.parameters())
    _by_scatter(sides, edges, weight, theta, bias)
    work = sides.work(CHANNELS**2, basis.edges().num_edges, sides.nodes)
    return sides.setup({"channels": CHANNELS}, work)


def _by_scatter(sides: Sides, edges: Tensor, weight: Tensor, theta: Tensor, bias: Tensor) -> None:
    """Gather, multiply, and reduce segments of edges that are sorted by target beforehand."""
    module = sides.torch_scatter()
    if module is None:
        return
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
    sides = Sides.on_random_graph(context, NODES, CHANNELS, CHANNELS)
    family = Chebyshev(terms, lambda_max=2.0)
    conv = sides.placed(OuterConv(CHANNELS, CHANNELS, family))
    theirs = sides.placed(ChebConv(CHANNELS, CHANNELS, K=terms))
    begin_as(theirs, conv)
    largest = torch.tensor(2.0).to(sides.x)
    prepared = theirs.__norm__(
        sides.edge_index, sides.nodes, None, "sym", largest, dtype=context.dtype
    )
    theirs.__norm__ = lambda *_, **__: prepared  # ChebConv has no cache of its own
    sides.layer(OURS, conv, sides.basis(family))
    sides.layer(PYG, theirs, sides.edge_index)
    sides.compiled(theirs, sides.x, sides.edge_index, of=theirs.parameters())
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
    sides = Sides.on_random_graph(context, NODES, CHANNELS, CHANNELS)
    family = Walk(length, direction="both")
    conv = sides.placed(OuterConv(CHANNELS, CHANNELS, family))
    steps = [
        sides.basis(Walk(1, powers=(1,), direction=way)).edges() for way in ("forward", "backward")
    ]
    ways = [(step.index.long(), step.values()) for step in steps]
    pair: Any = sides.placed(
        torch.nn.ModuleList(
            TAGConv(CHANNELS, CHANNELS, K=length, normalize=False, bias=False) for _ in ways
        )
    )
    lins = [lin for tag in pair for lin in tag.lins]
    with torch.no_grad():
        for lin, theta in zip(lins, conv.theta()[:, 0], strict=True):
            lin.weight.copy_(theta.t())
    bias = torch.zeros_like(sides.direction[0], requires_grad=True)
    parameters = [*pair.parameters(), bias]

    def both(*given: tuple[Any, ...]) -> Tensor:
        there, back = (tag(sides.x, *way) for tag, way in zip(pair, given, strict=True))
        out: Tensor = there + back + bias
        return out

    matrices = [(sides.matrix(*way),) for way in ways]
    sides.layer(OURS, conv, sides.basis(family))
    sides.add(PYG, lambda: both(*ways), parameters)
    sides.add(PYG_CSR, lambda: both(*matrices), parameters)
    sides.compiled(lambda: both(*ways), of=parameters)
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
    ends = list(pairwise(channels))
    ours = [sides.placed(OuterConv(*pair, GCN())) for pair in ends]
    theirs = [sides.placed(GCNConv(*pair, normalize=False)) for pair in ends]
    for peer, conv in zip(theirs, ours, strict=True):
        begin_as(peer, conv)
    basis = sides.basis(GCN())
    edges, weight = gcn_norm(sides.edge_index, None, sides.nodes, dtype=context.dtype)
    matrix = sides.matrix(edges, weight)
    sides.layer(OURS, compose(*ours), basis.compose(basis))
    for name, layers, structure in (
        (CHAINED, ours, (basis,)),
        (PYG, theirs, (edges, weight)),
        (PYG_CSR, theirs, (matrix,)),
    ):
        chain = Chain(*layers)
        sides.layer(name, chain, *structure, own=name == CHAINED)
    work = sides.work(p * q, basis.edges().num_edges, sides.nodes, products=2)
    return sides.setup({"channels": " to ".join(map(str, channels))}, work)


class Chain(torch.nn.Sequential):
    """Layers one after the other, each called with what is given beside the features."""

    def forward(self, x: Tensor, *structure: Any) -> Tensor:
        """(N, Q) of (N, P)."""
        for layer in self:
            x = layer(x, *structure)
        return x


# Preparation, and what a better order of the nodes is worth ---------------------------------------


def prepared(basis: Basis) -> Basis:
    """A basis with all that a layer's forward and backward passes need of its edges."""
    return basis.with_edges(_sorted)


def _sorted(edges: EdgeBasis) -> EdgeBasis:
    # Both are made when first used, and kept: as rows of targets, as rows of (target, label).
    _ = edges.pattern.by_target, edges.pattern.by_target_label
    return edges


@case(
    "prepare-gcn",
    "preparation",
    "GCN: normalising, sorting and both CSR directions from raw edges, against a training step",
    targets=(pays_within(PYG, 2),),
)
def preparing_gcn(context: Context) -> Setup:
    """The basis from raw edges, a step with it, and a step of PyG's GCNConv(cached=True)."""
    sides = Sides.on_random_graph(context, NODES, CHANNELS, CHANNELS)
    conv = sides.placed(OuterConv(CHANNELS, CHANNELS, GCN()))
    theirs = sides.placed(GCNConv(CHANNELS, CHANNELS, cached=True))
    begin_as(theirs, conv)
    ours = sides.layer(OURS, conv, sides.basis(GCN()))
    steps = {PREPARATION: lambda: prepared(sides.basis(GCN())), **ours.steps}
    sides.contenders = [Contender(OURS, steps, ours.check)]
    sides.layer(PYG, theirs, sides.edge_index)
    return sides.setup({"channels": CHANNELS})


@case(
    "prepare-relation",
    "preparation",
    "R-GCN, 40 labels: sorting and both CSR directions from raw edges",
    labels=40,
)
def preparing_relation(context: Context, labels: int) -> Setup:
    """The basis from raw edges and types."""
    generator, nodes = context.generator(), context.size(NODES, at_least=8)
    edge_index = random_graph(nodes, 12 * nodes, generator)
    types = uniform_types(edge_index.size(1), labels, generator).to(context.device)
    edge_index, family = edge_index.to(context.device), Relation(labels, None)

    def prepare() -> Basis:
        return prepared(family.basis(edge_index, edge_type=types, size=(nodes, nodes)))

    sizes = {"nodes": nodes, "edges": edge_index.size(1), "labels": labels}
    return Setup([Contender(OURS, {PREPARATION: prepare})], sizes)


AS_GIVEN = "in the order given"


@case(
    "reorder",
    "preparation",
    "GCN layer on a grid whose nodes were renamed at random, before and after basis.reorder()",
    targets=(faster(AS_GIVEN, 1.0, FORWARD), faster(AS_GIVEN, 1.0, TRAINING)),
)
def reordering(context: Context) -> Setup:
    """The layer on both bases, and what finding the order costs."""
    generator = context.generator()
    side = max(4, math.isqrt(context.size(4 * NODES)))
    edge_index = shuffled(grid_graph(side), side * side, generator).to(context.device)
    x, direction = (context.randn(side * side, CHANNELS, generator=generator) for _ in range(2))
    given = Sides(context, x, direction, edge_index)
    conv, basis = given.placed(OuterConv(CHANNELS, CHANNELS, GCN())), given.basis(GCN())
    reordered, order, place = basis.reorder()
    made = Sides(context, x.detach()[order], direction[order]).layer(OURS, conv, reordered)
    check = made.check
    assert check is not None  # a layer has one
    steps = {PREPARATION: basis.reorder, **made.steps}
    given.contenders = [Contender(OURS, steps, lambda: [part[place] for part in check()])]
    given.layer(AS_GIVEN, conv, basis, own=True)
    return given.setup({"channels": CHANNELS})
