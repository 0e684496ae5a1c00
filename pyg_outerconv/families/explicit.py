"""A structure as an explicit basis, and what another family makes of it, made explicit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..basis.edges import EdgeBasis
from ..basis.pattern import Pattern
from ..graph.edge_list import EdgeList
from .combinators import OfFamily
from .family import Family


def edge_basis(edges: EdgeList, num_labels: int = 1) -> EdgeBasis:
    """The edges of a structure with its weights as values and, if K > 1, its types as labels."""
    label = edges.edge_type if num_labels > 1 else None
    origin = edges.num_edges if edges.origin is None else edges.origin
    own = edges.origin is not None  # a family made this list, and nobody else holds it
    pattern = Pattern.of_list(
        edges.edge_index, label, size=edges.size, num_labels=num_labels, origin=origin, own=own
    )
    weight = edges.edge_weight
    return EdgeBasis.of_list(pattern, weight if own or weight is None else weight.clone())


@dataclass(frozen=True)
class Explicit(OfFamily):
    r"""The matrices of another family as explicit edges, where it would leave them a rule.

    .. math:: A_k \text{ of the family, edge by edge}

    For what a rule does not have: a maximum over the inputs that a walk reaches, a mean of them,
    values to read or replace. The edges of a power can be many; ``cached=True`` makes them once.

    Args:
        family (Family): what is made explicit.

    Raises:
        ValueError: when a basis is made, as ``family`` does.
    """

    equation = "the A_k of the family, as explicit edges"

    family: Family

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> EdgeBasis:
        """All matrices of the family's basis as edges, however many."""
        basis = self.family.basis_on(structure, dtype)
        edges = basis.edges()
        if basis.dtype is None and edges.value is not None and dtype is not None:
            # Walks along ones have been counted, in torch's default type.
            edges = edges.with_values(edges.value.to(dtype))
        return edges
