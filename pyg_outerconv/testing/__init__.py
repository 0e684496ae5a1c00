"""Laws of bases, families, layers and backends, as assertions for your own classes too.

Two tensors are close if the largest difference is small against the largest reference entry:
``max|Δ| <= tolerance * max|reference|``, with 1e-10 in float64 and 1e-5 in float32 unless given.
"""

from .backend_laws import assert_backend_equals_reference, primitive_calls
from .basis_laws import (
    assert_adjoint,
    assert_associative,
    assert_compose,
    assert_contraction,
    assert_edges_alone_carry,
    assert_is_dense,
    assert_kron,
    assert_lazy_equals_explicit,
    assert_mix,
    assert_mixed_product,
    assert_receptive_field,
    assert_restrict,
    assert_stack,
    assert_transpose,
    assert_transpose_of_product,
    legal_orders,
)
from .declared import LAWS, assert_declared_laws
from .layer_laws import (
    assert_batch_equals_graphs,
    assert_layer_equals_dense,
    assert_learned_queries_invariant,
    assert_permutation_equivariant,
    assert_stochastic,
    assert_translation_equivariant,
)
from .reference import (
    TOLERANCE,
    assert_near,
    assert_same_gradients,
    assert_seen_alone,
    dense_contraction,
)
from .structures import awkward_cells, awkward_structures

__all__ = [
    "LAWS",
    "TOLERANCE",
    "assert_adjoint",
    "assert_associative",
    "assert_backend_equals_reference",
    "assert_batch_equals_graphs",
    "assert_compose",
    "assert_contraction",
    "assert_declared_laws",
    "assert_edges_alone_carry",
    "assert_is_dense",
    "assert_kron",
    "assert_layer_equals_dense",
    "assert_lazy_equals_explicit",
    "assert_learned_queries_invariant",
    "assert_mix",
    "assert_mixed_product",
    "assert_near",
    "assert_permutation_equivariant",
    "assert_receptive_field",
    "assert_restrict",
    "assert_same_gradients",
    "assert_seen_alone",
    "assert_stack",
    "assert_stochastic",
    "assert_translation_equivariant",
    "assert_transpose",
    "assert_transpose_of_product",
    "awkward_cells",
    "awkward_structures",
    "dense_contraction",
    "legal_orders",
    "primitive_calls",
]
