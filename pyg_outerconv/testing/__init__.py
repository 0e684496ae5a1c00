"""The laws that every basis, family, layer and backend obeys, as assertions to call on your own.

Closeness is the largest difference, relative to the largest entry of the reference:
``max|Δ| <= tolerance * max|reference|``, with 1e-10 in float64 and 1e-5 in float32 unless given.
"""

from .backend_laws import assert_backend_equals_reference
from .basis_laws import (
    assert_adjoint,
    assert_contraction,
    assert_lazy_equals_explicit,
    assert_stack,
    assert_transpose,
    dense_contraction,
    legal_orders,
)
from .closeness import TOLERANCE, assert_near, assert_same_gradients
from .layer_laws import (
    assert_batch_equals_graphs,
    assert_layer_equals_dense,
    assert_permutation_equivariant,
)
from .structures import awkward_structures

__all__ = [
    "TOLERANCE",
    "assert_adjoint",
    "assert_backend_equals_reference",
    "assert_batch_equals_graphs",
    "assert_contraction",
    "assert_layer_equals_dense",
    "assert_lazy_equals_explicit",
    "assert_near",
    "assert_permutation_equivariant",
    "assert_same_gradients",
    "assert_stack",
    "assert_transpose",
    "awkward_structures",
    "dense_contraction",
    "legal_orders",
]
