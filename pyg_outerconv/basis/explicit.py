"""A structure as an explicit basis, as it is."""

from __future__ import annotations

from .edges import EdgeBasis
from .pattern import Pattern
from .structure import Structure


def edge_basis(edges: Structure, num_labels: int = 1) -> EdgeBasis:
    """The edges of a structure with its weights as values and, if K > 1, its types as labels."""
    label = edges.edge_type if num_labels > 1 else None
    pattern = Pattern.build(
        edges.edge_index, label, size=edges.size, num_labels=num_labels, origin=edges.origins()
    )
    weight = edges.edge_weight
    return EdgeBasis(pattern, None if weight is None else pattern.sort_values(weight))
