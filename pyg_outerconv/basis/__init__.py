"""Bases: the linear operators A_k, stored as edges or defined by a rule, and their algebra.

Each kind of basis is a subclass of :class:`Basis`; ``base.py`` says which methods a new kind
must define, and which it may override.
"""

from ..registry import import_files
from .algebra import Mixed, Stacked, Transposed
from .band import Band
from .base import Basis
from .channel_polynomial import ChannelPolynomial
from .edge_sets import drop_edges
from .edges import EdgeBasis
from .export import to_edge_index, to_networkx, to_scipy, to_torch_sparse
from .eye import Eye, UnitMatrices
from .multi_head_edges import MultiHeadEdges
from .pattern import Pattern
from .polynomial import CHEBYSHEV, MONOMIAL, Polynomial, Recurrence
from .products import Composed, Kronecker, Repeated, Restricted
from .same_block import SameBlock

__all__ = [
    "CHEBYSHEV",
    "MONOMIAL",
    "Band",
    "Basis",
    "ChannelPolynomial",
    "Composed",
    "EdgeBasis",
    "Eye",
    "Kronecker",
    "Mixed",
    "MultiHeadEdges",
    "Pattern",
    "Polynomial",
    "Recurrence",
    "Repeated",
    "Restricted",
    "SameBlock",
    "Stacked",
    "Transposed",
    "UnitMatrices",
    "drop_edges",
    "to_edge_index",
    "to_networkx",
    "to_scipy",
    "to_torch_sparse",
]

import_files(__name__, __path__)
