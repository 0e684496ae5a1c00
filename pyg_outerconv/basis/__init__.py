"""The linear operators A_k: one kind a file, as edges or as a rule, and the algebra of all of them.

To add a kind: one file here with a subclass of :class:`Basis`; what it may do in its own way is in
``kind.py``.
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
