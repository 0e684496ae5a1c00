"""Polynomials of one matrix: Chebyshev terms, and walks in both directions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import ChebConv, TAGConv

from ...families import Chebyshev, Walk
from ...nn import OuterConv
from ..bounds import convolution
from ..case import Setup, case, layer_contender
from ..context import Context
from ..graphs import random_graph
from ..names import DGL, OURS, PYG, PYG_COMPILED, PYG_CSR, SCATTER
from ..peers import adjacency, compiled, set_parameter
from ..targets import Faster

_NO_FORM = "has no layer for this convolution that takes prepared edges"


@case(
    "chebyshev-5",
    "polynomial",
    "Chebyshev layer of 5 terms, lambda_max given; PyG's rescaled Laplacian is prepared too",
    targets=(Faster(PYG, 6),),
    memory=(OURS, PYG),
    terms=5,
)
def chebyshev(context: Context, terms: int, nodes: int = 100_000, channels: int = 64) -> Setup:
    """OuterConv and PyG's ChebConv."""
    generator = context.generator()
    nodes = context.size(nodes, at_least=8)
    edge_index = random_graph(nodes, 12 * nodes, generator).to(context.device)
    x = context.randn(nodes, channels, generator=generator).requires_grad_()
    direction = context.randn(nodes, channels, generator=generator)

    family = Chebyshev(terms, lambda_max=2.0)
    conv = OuterConv(channels, channels, family).to(context.device, context.dtype)
    basis = family.basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    theirs = ChebConv(channels, channels, K=terms).to(context.device, context.dtype)
    for lin, theta in zip(theirs.lins, conv.theta()[:, 0], strict=True):
        set_parameter(lin.weight, theta.t())
    prepared = theirs.__norm__(
        edge_index, nodes, None, "sym", torch.tensor(2.0).to(x), dtype=context.dtype
    )
    theirs.__norm__ = lambda *_, **__: prepared  # ChebConv has no cache of its own
    absent = {
        PYG_CSR: "ChebConv takes no sparse matrix",
        SCATTER: _NO_FORM,
        DGL: _NO_FORM,
    }
    contenders = [
        layer_contender(OURS, lambda: conv(x, basis), x, conv.parameters(), direction),
        layer_contender(PYG, lambda: theirs(x, edge_index), x, theirs.parameters(), direction),
    ]
    if (fused := compiled(theirs, context, absent)) is not None:
        contenders.append(
            layer_contender(
                PYG_COMPILED, lambda: fused(x, edge_index), x, theirs.parameters(), direction
            )
        )
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
    targets=(Faster(PYG, 6),),
    length=3,
)
def walk(context: Context, length: int, nodes: int = 100_000, channels: int = 64) -> Setup:
    """OuterConv and two of PyG's TAGConv, one on reversed edges; transition matrices prepared."""
    generator = context.generator()
    nodes = context.size(nodes, at_least=8)
    edge_index = random_graph(nodes, 12 * nodes, generator).to(context.device)
    x = context.randn(nodes, channels, generator=generator).requires_grad_()
    direction = context.randn(nodes, channels, generator=generator)

    family = Walk(length, direction="both")
    conv = OuterConv(channels, channels, family).to(context.device, context.dtype)
    basis = family.basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    ways = []
    for direction_of in ("forward", "backward"):
        step = Walk(1, powers=(1,), direction=direction_of)
        edges = step.basis(edge_index, size=(nodes, nodes), dtype=context.dtype).edges()
        ways.append((edges.index.long(), edges.values()))
    matrices = [adjacency(index, value, nodes) for index, value in ways]
    pair = torch.nn.ModuleList(
        TAGConv(channels, channels, K=length, normalize=False, bias=False) for _ in ways
    ).to(context.device, context.dtype)
    lins = [lin for tag in pair for lin in tag.lins]  # type: ignore[union-attr]
    for lin, theta in zip(lins, conv.theta()[:, 0], strict=True):
        set_parameter(lin.weight, theta.t())
    bias = torch.zeros(channels, device=x.device, dtype=x.dtype, requires_grad=True)
    parameters = [*pair.parameters(), bias]

    def by_edges() -> Tensor:
        there, back = (tag(x, *way) for tag, way in zip(pair, ways, strict=True))
        return there + back + bias

    def by_matrices() -> Tensor:
        there, back = (tag(x, matrix) for tag, matrix in zip(pair, matrices, strict=True))
        return there + back + bias

    absent = {SCATTER: _NO_FORM, DGL: _NO_FORM}
    contenders = [
        layer_contender(OURS, lambda: conv(x, basis), x, conv.parameters(), direction),
        layer_contender(PYG, by_edges, x, parameters, direction),
        layer_contender(PYG_CSR, by_matrices, x, parameters, direction),
    ]
    fused = [tag for layer in pair if (tag := compiled(layer, context, absent)) is not None]
    if fused:

        def by_compiled() -> Tensor:
            there, back = (tag(x, *way) for tag, way in zip(fused, ways, strict=True))
            return there + back + bias  # type: ignore[no-any-return]

        contenders.append(layer_contender(PYG_COMPILED, by_compiled, x, parameters, direction))
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
