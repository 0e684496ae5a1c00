"""Bases: patterns, values, the algebra, and the families that make bases out of structure."""

from .algebra import Scaled, Selected, Stacked, Transposed
from .base import Basis
from .cache import IdentityCache
from .chebyshev import Chebyshev
from .directed import Directed
from .doors import (
    from_hetero,
    from_networkx,
    from_scipy,
    to_edge_index,
    to_networkx,
    to_scipy,
    to_torch_sparse,
)
from .edges import EdgeBasis
from .explicit import edge_basis
from .eye import Eye
from .family import FAMILIES, Family, structure_of
from .gcn import GCN
from .identity import Identity
from .pattern import Pattern
from .polynomial import CHEBYSHEV, MONOMIAL, Polynomial, Recurrence
from .registry import parse_family
from .relation import Relation
from .stack import Stack
from .structure import Structure, structure
from .walk import Walk

__all__ = [
    "CHEBYSHEV",
    "FAMILIES",
    "GCN",
    "MONOMIAL",
    "Basis",
    "Chebyshev",
    "Directed",
    "EdgeBasis",
    "Eye",
    "Family",
    "Identity",
    "IdentityCache",
    "Pattern",
    "Polynomial",
    "Recurrence",
    "Relation",
    "Scaled",
    "Selected",
    "Stack",
    "Stacked",
    "Structure",
    "Transposed",
    "Walk",
    "edge_basis",
    "from_hetero",
    "from_networkx",
    "from_scipy",
    "parse_family",
    "structure",
    "structure_of",
    "to_edge_index",
    "to_networkx",
    "to_scipy",
    "to_torch_sparse",
]
