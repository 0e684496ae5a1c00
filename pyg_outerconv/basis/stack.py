"""Stack: several families on the same structure, their labels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import RefusedType, RefusedValue, refusal
from .algebra import Stacked
from .any_structure import AnyStructure, common_kind
from .base import Basis
from .edges import EdgeBasis
from .family import Family


@dataclass(frozen=True, init=False)
class Stack(Family):
    r"""The matrices of several families, one family after another.

    .. math:: (A^{(1)}_0, A^{(1)}_1, \dots, A^{(2)}_0, \dots)

    On one set of nodes ``Stack(Relation(1, 'sum'), Identity())`` is GraphConv, with ``'mean'``
    GraphSAGE. Where targets have features of their own (pairs, ``to_hetero``), these layers are
    ``Relation(1)`` with ``root_weight=True``.

    Args:
        *families (Family): what to stack, at least one.

    Raises:
        TypeError: an argument is not a family, or two read structures of different kinds.
        ValueError: no family is given; when a basis is made, as the families do.
    """

    equation = "the A_k of the first family, then those of the next"

    families: tuple[Family, ...]

    def __init__(self, *families: Family) -> None:
        if not families:
            raise RefusedValue(refusal("a stack needs a family", "at least one", "none"))
        for family in families:
            if not isinstance(family, Family):
                raise RefusedType(
                    refusal("a stack is of families", "Family", type(family).__name__)
                )
        object.__setattr__(self, "families", families)
        common_kind(families)

    def __repr__(self) -> str:
        return f"Stack({', '.join(map(repr, self.families))})"

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether any of the families adds self-loops."""
        return any(family.add_self_loops for family in self.families)

    def set_self_loops(self, add: bool) -> Stack:
        """See :meth:`Family.set_self_loops`, which a stack can only drop."""
        if add:
            raise RefusedValue(
                refusal(
                    "which family of a stack adds self-loops is its own option",
                    "GCN(add_self_loops=True) among them",
                    repr(self),
                )
            )
        return Stack(*(family.set_self_loops(False) for family in self.families))

    @property
    def reads(self) -> type[AnyStructure]:  # type: ignore[override]
        """The kind of structure that all of the families read."""
        return common_kind(self.families)

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether all of the families do."""
        return all(family.keeps_nodes for family in self.families)

    def outputs(self, structure: Any) -> AnyStructure:
        """See :meth:`Family.outputs`: those of the first, for all have one size."""
        return self.families[0].outputs(structure)

    @property
    def num_bases(self) -> int:
        """The sum of the families'."""
        return sum(family.num_bases for family in self.families)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each label means."""
        return tuple(label for family in self.families for label in family.labels)

    def operator_labels(self) -> list[int]:
        """See :meth:`Family.operator_labels`."""
        return [labels for family in self.families for labels in family.operator_labels()]

    def operators(self, structure: Any, dtype: torch.dtype | None) -> list[EdgeBasis]:
        """Those of each family in turn."""
        return [
            operator for family in self.families for operator in family.operators(structure, dtype)
        ]

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """See :meth:`Family.basis_on`: the bases of the families, stacked."""
        return Stacked(tuple(family.basis_on(structure, dtype) for family in self.families))

    def assemble(
        self, operators: Sequence[EdgeBasis], size: tuple[int, int], device: torch.device
    ) -> Basis:
        """The bases of the families, stacked."""
        parts, start = [], 0
        for family in self.families:
            end = start + family.num_operators
            parts.append(family.assemble(operators[start:end], size, device))
            start = end
        return Stacked(tuple(parts))
