"""Explicit edges: of a structure, and of any family whose basis is a rule."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..basis.edges import EdgeBasis
from ..basis.pattern import Pattern
from ..errors import RefusedType, refusal
from ..graph.checks import check_edge_vector, numbers
from ..graph.edge_list import EdgeList
from .combinators import OfFamily
from .family import Family


def edge_basis(edges: EdgeList, num_labels: int = 1, *, weight: Tensor | None = None) -> EdgeBasis:
    """The edges of a structure as explicit edges of K matrices.

    >>> import torch
    >>> from pyg_outerconv.graph import edge_list
    >>> edges = edge_list(torch.tensor([[0, 1], [1, 2]]))
    >>> edge_basis(edges, weight=torch.tensor([0.5, 2.0])).to_dense()[0]
    tensor([[0.0000, 0.5000, 0.0000],
            [0.0000, 0.0000, 2.0000],
            [0.0000, 0.0000, 0.0000]])

    Args:
        edges: E edges. If K > 1, their ``edge_type`` is the label of each.
        num_labels: K.
        weight: (E,) the values, in the place of the weights of ``edges``; may carry gradients.

    Raises:
        TypeError: ``num_labels`` is not an integer, or ``weight`` is not a tensor of numbers.
        ValueError: ``weight`` does not have one finite number for each edge.
    """
    if isinstance(num_labels, bool) or not isinstance(num_labels, Integral):
        raise RefusedType(
            refusal(
                "num_labels is the number of matrices K; values go by weight=",
                "an integer",
                num_labels if isinstance(num_labels, Tensor) else repr(num_labels),
            )
        )
    if weight is not None:
        weight = numbers("weight", weight, edges.edge_index, None)
        check_edge_vector("weight", weight, edges.edge_index, floating=True)
        edges = edges.but(edge_weight=weight)
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
    r"""The matrices of another family as explicit edges, where its basis is a rule.

    .. math:: A_k \text{ of the family, edge by edge}

    Rules have no values to read or replace, and allow no maximum or mean over the inputs that a
    walk reaches; explicit edges do. A power can have many edges; ``cached=True`` makes them once.

    Args:
        family (Family): the family.

    Raises:
        ValueError: when a basis is made, as ``family`` does.
    """

    equation = "the A_k of the family, as explicit edges"

    family: Family

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> EdgeBasis:
        """All matrices of the family's basis as edges."""
        basis = self.family.basis_on(structure, dtype)
        edges = basis.edges()
        if basis.dtype is None and edges.value is not None and dtype is not None:
            # Walks along edges of weight 1 were counted in torch's default dtype.
            edges = edges.with_values(edges.value.to(dtype))
        return edges
