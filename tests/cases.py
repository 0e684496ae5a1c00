"""The families and graphs that every law is tested on. A new family is one entry here."""

from dataclasses import replace

import pytest

from pyg_outerconv.basis import (
    FAMILIES,
    GCN,
    Chebyshev,
    Directed,
    Identity,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.testing import awkward_structures

STRUCTURES = awkward_structures()

CASES = [
    Identity(),
    GCN(),
    GCN(norm="rw", improved=True),
    GCN(add_self_loops=False),
    Chebyshev(3),
    Chebyshev(4, lambda_max="bound", normalization=None),
    Chebyshev(2, lambda_max=1.7, normalization="rw"),
    Walk(2),
    Walk(3, norm="target", direction="both"),
    Walk(2, norm="sym", direction="backward", add_self_loops=True, powers=(2, 0)),
    Walk(2, norm=None, aggregate="mean"),
    Walk(2, norm="source", aggregate="max", direction="both"),
    Walk(3, norm=None, aggregate="min"),
    Relation(3),
    Relation(3, norm="sum"),
    Relation(1, norm="mean"),
    Directed(GCN(add_self_loops=False)),
    Directed(Walk(1)),
    Stack(Relation(3), Identity()),
    Stack(GCN(), Chebyshev(2), Directed(Relation(1, "sum"))),
]

# Families that give meaning to M ≠ N; the others refuse it, which is tested too.
RECTANGULAR = (
    Identity(),
    GCN(add_self_loops=False),
    Relation(3),
    Relation(3, norm="sum"),
    Relation(1, norm="mean"),
    Stack(Relation(3), Identity()),
)

assert {type(case).__name__.lower() for case in CASES} == set(FAMILIES), "a family has no case"


def fits(family, name):
    """Whether the structure of that name is one that the family takes."""
    return "rectangular" not in name or family in RECTANGULAR


PAIRS = [(family, name) for family in CASES for name in STRUCTURES if fits(family, name)]
MISFITS = [(family, name) for family in CASES for name in STRUCTURES if not fits(family, name)]


def edges_for(family, name):
    """The structure of that name, with edge types only if the family tells three apart."""
    edges = STRUCTURES[name]
    return edges if "num_relations=3" in repr(family) else replace(edges, edge_type=None)


def over(pairs):
    """Parametrize a test over (family, name of a structure)."""
    return pytest.mark.parametrize(
        ("family", "name"), pairs, ids=[f"{family}-{name}" for family, name in pairs]
    )
