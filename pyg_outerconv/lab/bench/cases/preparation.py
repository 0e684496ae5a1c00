"""What preparing a basis costs, and what a better order of the nodes is worth."""

from __future__ import annotations

import math
from dataclasses import replace

from ....basis import Basis, EdgeBasis
from ....basis.edge_sets import with_edges
from ....families import GCN, Relation
from ....nn import OuterConv
from ..case import FORWARD, OURS, PREPARATION, PYG, TRAINING, Contender, Context, Setup, case
from ..graphs import grid_graph, random_graph, shuffled, uniform_types
from ..sides import Sides
from ..targets import faster, pays_within
from .layers import CHANNELS, LAYERS, NODES, both, on_random_graph

AS_GIVEN = "in the order given"


def prepared(basis: Basis) -> Basis:
    """A basis with all that a layer's forward and backward passes need of its edges."""
    return with_edges(basis, _sorted)


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
    sides = on_random_graph(context)
    both(sides, LAYERS["gcn"], compiles=False)
    ours, theirs = sides.contenders
    steps = {PREPARATION: lambda: prepared(sides.basis(GCN())), **ours.steps}
    sides.contenders = [replace(ours, steps=steps), theirs]
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


@case(
    "reorder",
    "preparation",
    "GCN layer on a grid whose nodes were renamed at random, before and after basis.reorder()",
    targets=(faster(AS_GIVEN, 1.0, FORWARD), faster(AS_GIVEN, 1.0, TRAINING)),
)
def reordering(context: Context) -> Setup:
    """The layer on both bases, and what finding the order costs."""
    generator, side = context.generator(), max(4, math.isqrt(context.size(4 * NODES)))
    edge_index = shuffled(grid_graph(side), side * side, generator)
    shape = (side * side, CHANNELS)
    given, other = (Sides(context, shape, edge_index) for _ in range(2))
    conv, basis = given.placed(OuterConv(CHANNELS, CHANNELS, GCN())), given.basis(GCN())
    reordered, order, place = basis.reorder()
    other.x = given.x.detach()[order].requires_grad_()
    other.direction = given.direction[order]
    made = other.layer(OURS, conv, reordered)
    check = made.check
    assert check is not None  # a layer has one
    steps = {PREPARATION: basis.reorder, **made.steps}
    given.contenders = [Contender(OURS, steps, lambda: [part[place] for part in check()])]
    given.layer(AS_GIVEN, conv, basis, own=True)
    return given.setup({"channels": CHANNELS})
