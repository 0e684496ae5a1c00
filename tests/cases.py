"""The families and structures that every law is tested on. A new family is one entry here."""

from dataclasses import replace

import pytest
import torch

from pyg_outerconv.families import (
    FAMILIES,
    GCN,
    Add,
    Bernstein,
    Blocks,
    Causal,
    Chebyshev,
    ChebyshevFirst,
    ChebyshevNodes,
    ChebyshevSecond,
    Cluster,
    Complete,
    Compose,
    Diffusion,
    Directed,
    Explicit,
    Gegenbauer,
    GlobalTokens,
    Grid,
    HighPass,
    Hops,
    Identity,
    Jacobi,
    Legendre,
    Mean,
    Monomial,
    Nearest,
    Pool,
    RandomLinks,
    Relation,
    Reverse,
    Scale,
    Select,
    SlidingWindow,
    Stack,
    Strided,
    Sub,
    Union,
    Walk,
)
from pyg_outerconv.graph import Assignment, Graph
from pyg_outerconv.testing import awkward_cells, awkward_structures

STRUCTURES = awkward_structures()
CELLS = awkward_cells()
ASSIGNMENTS = {
    "clusters": Assignment.read(torch.tensor([3, 0, 0, 3, 0])),
    "one cluster each": Assignment.read(torch.tensor([1, 0, 2])),
    "no members": Assignment.read(torch.empty(0, dtype=torch.long), size=(0, 2)),
    "assigned softly": Assignment.read(
        torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.0, -2.0]], dtype=torch.float64)
    ),
}

CASES = [
    Identity(),
    GCN(),
    GCN(norm="target", improved=True),
    GCN(add_self_loops=False),
    Chebyshev(3, "exact"),
    Chebyshev(4, lambda_max="bound", norm=None),
    Chebyshev(2, lambda_max=1.7, norm="source"),
    Monomial(3, of="laplacian", norm="both"),
    ChebyshevFirst(4, norm="target"),
    ChebyshevSecond(3, add_self_loops=True),
    Legendre(4, norm="source"),
    Bernstein(4),
    ChebyshevNodes(3, of="adjacency", norm="target", add_self_loops=True),
    Gegenbauer(4, -0.3, of="laplacian"),
    Jacobi(4, 1.0, -0.5),
    Jacobi(3, 0.3, 2.0, of="laplacian", norm=None),
    Walk(2),
    Walk(3, norm="target", direction="both"),
    Walk(2, norm="sym", direction="backward", add_self_loops=True, powers=(2, 0)),
    Walk(2, norm=None, aggr="mean"),
    Walk(2, norm="source", aggr="max", direction="both"),
    Walk(3, norm=None, aggr="min"),
    Walk(1),
    Walk(3, norm="sym", powers=(1, 0)),
    Walk(2, norm="target", aggr="max", powers=(1,)),
    Relation(3),
    Relation(3, norm=None),
    Relation(1, norm="mean"),
    Diffusion(length=3),
    Diffusion("heat", t=1.5, length=2, norm="source", add_self_loops=False, remainder="normalise"),
    Diffusion((0.5, 0.0, -1.0), norm=None),
    Directed(GCN(add_self_loops=False)),
    Directed(Walk(1)),
    Compose(GCN(), Relation(3)),
    Mean(Relation(3, norm=None)),
    Mean(Stack(Identity(), Directed(GCN()))),
    Compose(Walk(1), Compose(Stack(Identity(), GCN()), Chebyshev(2))),
    Explicit(Walk(2)),
    Explicit(Stack(Relation(3), Identity())),
    HighPass(),
    HighPass(norm="target", add_self_loops=False, epsilon=0.3),
    Directed(GCN("both", add_self_loops=False)),
    Diffusion(length=2, norm="both"),
    Reverse(Relation(3)),
    Scale(Relation(3), (0.5, -2.0, 0.0)),
    Scale(Chebyshev(2), -1.5),
    Scale(Walk(2, None), 0.1),
    Add(Relation(1, norm=None), Identity()),
    Sub(GCN(), Walk(2, norm="sym", powers=(2,))),
    Sub(Directed(GCN()), Stack(Identity(), HighPass())),
    Select(Walk(3, norm="sym"), (3, 1)),
    Stack(Relation(3), Identity()),
    Stack(GCN(), Chebyshev(2), Directed(Relation(1, None))),
    Stack(Walk(1, norm=None), GCN(add_self_loops=False), Identity()),
    Complete(add_self_loops=False),
    Hops(3, add_self_loops=True),
]

# Families that say who sees whom, and what fits with them; all give meaning to M ≠ N.
SUPPORTS = [
    Complete(),
    Causal(strict=True),
    SlidingWindow(2, dilation=2, causal=True),
    Blocks(3, shift=1),
    Strided(2),
    GlobalTokens(1),
    RandomLinks(2),
    Hops(add_self_loops=True),
    Union(SlidingWindow(1), GlobalTokens(1), RandomLinks(1)),
    Stack(Complete(), Causal(), SlidingWindow(0)),
]
CASES += SUPPORTS

# Families that give meaning to a pair of sets of nodes; the others refuse it, which is tested too.
RECTANGULAR = (
    Identity(),
    GCN(add_self_loops=False),
    Relation(3),
    Relation(3, norm=None),
    Relation(1, norm="mean"),
    Stack(Relation(3), Identity()),
    Mean(Relation(3, norm=None)),
    Scale(Relation(3), (0.5, -2.0, 0.0)),
    Add(Relation(1, norm=None), Identity()),
    Explicit(Stack(Relation(3), Identity())),
    Walk(1),
    Walk(3, norm="sym", powers=(1, 0)),
    Walk(2, norm="target", aggr="max", powers=(1,)),
    Stack(Walk(1, norm=None), GCN(add_self_loops=False), Identity()),
    *SUPPORTS,
)

# Families of grids, and of what fits on one.
CELL_CASES = [
    Grid((3, 3), padding=1),
    Grid((2, 3), padding="same", padding_mode=("circular", "reflect"), dilation=2),
    Grid(3, padding="causal", padding_mode="replicate", dim=2),
    Grid(3, 2, 1, growth="full", dim=2),
    Grid((3, 2), (2, 1), (2, 1), 2, growth="full", padding_mode=("reflect", "circular")),
    Grid((2, 3), (2, 1), (1, 1), transposed=True, output_padding=(1, 0), growth="full"),
    Grid((3, 3), padding=1, transposed=True),
    Grid(offsets=((0, 0), (2, -1), (-1, 0))),
    Grid(offsets=((1, 0), (0, 1), (1, 1)), stride=(1, 2), growth="full"),
    Pool((2, 2), padding=1),
    Pool((3, 2), (2, 1), (1, 1), (1, 2), ceil_mode=True),
    Stack(Grid(offsets=((1, 0),)), Identity()),
    Mean(Grid((3, 3), (2, 1), (1, 1), transposed=True, growth="full")),
    Explicit(Pool((2, 2), padding=1)),
    Complete(),
    Causal(),
    SlidingWindow((1, 2)),
    SlidingWindow(1, 2, causal=True),
    Blocks((2, 3), shift=(1, 0)),
    Nearest(3),
    Stack(Nearest(1, add_self_loops=True), Grid(offsets=((1, 0),))),
]

# Families of clusters.
CLUSTER_CASES = [
    Cluster(),
    Cluster(positions=3),
    Stack(Cluster(), Cluster(positions=4)),
]

# Families that fit one size alone, need attributes, or make targets of some sources: they have
# tests of their own.
ELSEWHERE = {"full", "kernel", "part"}

ALL_CASES = CASES + CELL_CASES + CLUSTER_CASES

# Families whose values are of what nodes hold: their tests are in tests/attention.
OF_CONTENT = {"attention", "linearattention", "gat", "gatv2", "transformer", "multihead"}
OF_CONTENT |= {"favard", "optbasis"}

assert {type(case).__name__.lower() for case in ALL_CASES} | ELSEWHERE == (
    set(FAMILIES) - OF_CONTENT
), "a family has no case"


def fits(family, name):
    """Whether the structure of that name is one that the family takes."""
    return not STRUCTURES[name].bipartite or family in RECTANGULAR


def fits_cells(family, name):
    """Whether the cells of that name are such that the family takes them."""
    needs_ends = any(mode in repr(family) for mode in ("circular", "reflect", "replicate"))
    return not (name.startswith("unbounded") and needs_ends)


PAIRS = [(family, name) for family in CASES for name in STRUCTURES if fits(family, name)]
MISFITS = [(family, name) for family in CASES for name in STRUCTURES if not fits(family, name)]

CELL_PAIRS = [(family, name) for family in CELL_CASES for name in CELLS if fits_cells(family, name)]
ALL_PAIRS = [
    *PAIRS,
    *CELL_PAIRS,
    *((family, name) for family in CLUSTER_CASES for name in ASSIGNMENTS),
]


def structure_for(family, name):
    """What has that name; edges as :func:`edges_for` has them."""
    others = CELLS | ASSIGNMENTS
    return others[name] if name in others else edges_for(family, name)


def arguments_of(structure):
    """A structure as the arguments of a layer: what stands for edge_index, and what is beside."""
    if not isinstance(structure, Graph) or structure.bipartite:
        return structure, {}
    names = ("edge_weight", "edge_type", "size")
    return structure.edge_index, {name: getattr(structure, name) for name in names}


def edges_for(family, name):
    """The structure of that name, with what the family reads; types if it tells three apart."""
    edges = STRUCTURES[name]
    edges = edges if "num_relations=3" in repr(family) else replace(edges, edge_type=None)
    return edges if family.makes_use_of("edge_weight") else replace(edges, edge_weight=None)


def random_graph(family, nodes, edges, seed=0):
    """Edges at random between some nodes, with what the family reads beside them."""
    draw = torch.Generator().manual_seed(seed)
    index = torch.randint(nodes, (2, edges), generator=draw)
    weight = torch.rand(edges, generator=draw, dtype=torch.float64)
    kinds = torch.randint(3, (edges,), generator=draw)
    return Graph.read(
        index,
        edge_weight=weight if family.makes_use_of("edge_weight") else None,
        edge_type=kinds if "num_relations=3" in repr(family) else None,
        size=(nodes, nodes),
    )


def over(pairs):
    """Parametrize a test over (family, name of a structure)."""
    return pytest.mark.parametrize(
        ("family", "name"), pairs, ids=[f"{family}-{name}" for family, name in pairs]
    )


BESIDE = ("edge_index", "edge_weight", "edge_type", "size", "batch")


def named(*arguments):
    """Arguments of a layer beside x by name, in this order, without those that are None."""
    return {name: part for name, part in zip(BESIDE, arguments, strict=False) if part is not None}
