"""Lazy bases made of other bases, one a file: what the methods of a basis return.

Bases are participles: a family called ``Stack`` makes a :class:`Stacked` basis out of structure.
"""

from .composed import Composed
from .derived import Derived
from .kronecker import Kronecker, Repeated
from .mixed import Mixed
from .restricted import Restricted
from .scaled import Scaled
from .selected import Selected
from .stacked import Stacked
from .transposed import Transposed

__all__ = [
    "Composed",
    "Derived",
    "Kronecker",
    "Mixed",
    "Repeated",
    "Restricted",
    "Scaled",
    "Selected",
    "Stacked",
    "Transposed",
]
