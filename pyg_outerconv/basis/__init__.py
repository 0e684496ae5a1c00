"""Bases: the linear operators A_k, stored as edges or defined by a rule, and their algebra.

Each kind of basis is a subclass of :class:`Basis` in a file of its own. ``kind.py`` lists the
methods that a new kind must define, and those that it may override.
"""

from ..found import import_files
from .band import Band
from .base import Basis
from .composed import Composed
from .edge_dropout import drop_edges
from .edges import EdgeBasis
from .export import to_edge_index, to_networkx, to_scipy, to_torch_sparse
from .eye import Eye
from .kronecker import Kronecker, Repeated
from .mixed import Mixed
from .multi_head_edges import MultiHeadEdges
from .pattern import Pattern
from .polynomial import CHEBYSHEV, MONOMIAL, Polynomial, Recurrence
from .restricted import Restricted
from .same_block import SameBlock
from .scaled import Scaled
from .selected import Selected
from .stacked import Stacked
from .transposed import Transposed
from .unit_matrices import UnitMatrices

__all__ = [
    "CHEBYSHEV",
    "MONOMIAL",
    "Band",
    "Basis",
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
    "Scaled",
    "Selected",
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
