"""What preparation costs, and what a better order of the nodes is worth."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch_geometric.nn import GCNConv

from ....basis import Basis, EdgeBasis
from ....families import GCN, Family, Relation
from ....nn import OuterConv
from ...train.peers import begin_as
from ..case import (
    DGL,
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
    of_layer,
)
from ..graphs import grid_graph, inputs_on_random_graph, random_graph, shuffled, uniform_types
from ..targets import faster, pays_within

_PEERS = (PYG_CSR, PYG_COMPILED, SCATTER, DGL)


def prepare(family: Family, edge_index: Tensor, size: int, **options: Any) -> Basis:
    """All that a layer's forward and backward passes need of the edges, from the raw list."""
    basis = family.basis(edge_index, size=(size, size), **options)
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
def preparing_gcn(context: Context, nodes: int = 100_000, channels: int = 64) -> Setup:
    """The basis from raw edges, a step with it, and a step of PyG's GCNConv(cached=True)."""
    edge_index, x, direction = inputs_on_random_graph(context, nodes, channels, channels)
    nodes = x.size(0)
    conv = OuterConv(channels, channels, GCN()).to(context.device, context.dtype)
    basis = GCN().basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    theirs = GCNConv(channels, channels, cached=True).to(context.device, context.dtype)
    begin_as(theirs, conv)
    ours = of_layer(OURS, conv, x, direction, basis)
    steps = {
        PREPARATION: lambda: prepare(GCN(), edge_index, nodes, dtype=context.dtype),
        **ours.steps,
    }
    peer = of_layer(PYG, theirs, x, direction, edge_index)
    sizes = {"nodes": nodes, "edges": edge_index.size(1), "channels": channels}
    absent = dict.fromkeys(_PEERS, "measured in gcn-100k")
    return Setup([Contender(OURS, steps, ours.check), peer], sizes, absent)


@case(
    "prepare-relation",
    "preparation",
    "R-GCN, 40 labels: sorting and both CSR directions from raw edges",
    labels=40,
)
def preparing_relation(context: Context, labels: int, nodes: int = 100_000) -> Setup:
    """The basis from raw edges and types."""
    generator = context.generator()
    nodes = context.size(nodes, at_least=8)
    edge_index = random_graph(nodes, 12 * nodes, generator)
    types = uniform_types(edge_index.size(1), labels, generator).to(context.device)
    edge_index = edge_index.to(context.device)
    family = Relation(labels, None)
    steps = {PREPARATION: lambda: prepare(family, edge_index, nodes, edge_type=types)}
    sizes = {"nodes": nodes, "edges": edge_index.size(1), "labels": labels}
    return Setup([Contender(OURS, steps)], sizes)


AS_GIVEN = "in the order given"


@case(
    "reorder",
    "preparation",
    "GCN layer on a grid whose nodes were renamed at random, before and after basis.reorder()",
    targets=(faster(AS_GIVEN, 1.0, FORWARD), faster(AS_GIVEN, 1.0, TRAINING)),
)
def reordering(context: Context, nodes: int = 400_000, channels: int = 64) -> Setup:
    """The layer on both bases, and what finding the order costs."""
    generator = context.generator()
    side = max(4, math.isqrt(context.size(nodes)))
    nodes = side * side
    edge_index = shuffled(grid_graph(side), nodes, generator).to(context.device)
    x = context.randn(nodes, channels, generator=generator)
    direction = context.randn(nodes, channels, generator=generator)
    conv = OuterConv(channels, channels, GCN()).to(context.device, context.dtype)
    basis = GCN().basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    reordered, order, place = basis.reorder()
    ordered_x = x[order].requires_grad_()
    x.requires_grad_()

    made = of_layer(OURS, conv, ordered_x, direction[order], reordered)
    check = made.check
    assert check is not None  # a layer has one
    steps = {PREPARATION: basis.reorder, **made.steps}
    ordered = Contender(OURS, steps, lambda: [part[place] for part in check()])
    given = of_layer(AS_GIVEN, conv, x, direction, basis, own=True)
    sizes = {"nodes": nodes, "edges": edge_index.size(1), "channels": channels}
    return Setup([ordered, given], sizes)
