"""A structure as an explicit basis, and what another family makes of it, made explicit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .any_structure import AnyStructure
from .edges import EdgeBasis
from .family import Family
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


@dataclass(frozen=True)
class Explicit(Family):
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

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether the family adds self-loops."""
        return self.family.add_self_loops

    def set_self_loops(self, add: bool) -> Explicit:
        """See :meth:`Family.set_self_loops`."""
        return Explicit(self.family.set_self_loops(add))

    @property
    def reads(self) -> type[AnyStructure]:  # type: ignore[override]
        """The kind of structure that the family reads."""
        return self.family.reads

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether the family does."""
        return self.family.keeps_nodes

    @property
    def max_parameters(self) -> int | None:  # type: ignore[override]
        """The family's."""
        return self.family.max_parameters

    def outputs(self, structure: Any) -> AnyStructure:
        """See :meth:`Family.outputs`."""
        return self.family.outputs(structure)

    @property
    def num_bases(self) -> int:
        """The family's."""
        return self.family.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        """The family's."""
        return self.family.labels

    def operators(self, structure: Any, dtype: torch.dtype | None) -> list[EdgeBasis]:
        """All matrices of the family's basis, as one edge set."""
        basis = self.family.basis_on(structure, dtype)
        edges = basis.edges()
        if basis.dtype is None and edges.value is not None and dtype is not None:
            # Walks along ones have been counted, in torch's default type.
            edges = edges.with_values(edges.value.to(dtype))
        return [edges]

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> EdgeBasis:
        """That edge set, whatever its size."""
        return self.operators(structure, dtype)[0]
