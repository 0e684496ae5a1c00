"""Stack: several families on the same structure, their labels side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..basis.base import Basis
from ..basis.stacked import Stacked
from ..equations import row
from .combinators import OfFamilies


@row(
    "Alignment", "one alignment for each head", "Andreoli, section 4", option="`Stack(T_1, …, T_H)`"
)
@row(
    "Support",
    "supports for heads, H/L each",
    "1904.10509, section 4.3",
    option="`Stack(S_1, …, S_L)`",
)
@dataclass(frozen=True, init=False, repr=False)
class Stack(OfFamilies):
    r"""The matrices of several families, one family after another.

    .. math:: (A^{(1)}_0, A^{(1)}_1, \dots, A^{(2)}_0, \dots)

    On one set of nodes ``Stack(Relation(1, None), Identity())`` is GraphConv, with ``'mean'``
    GraphSAGE. Where targets have features of their own (pairs, ``to_hetero``), these layers are
    ``Relation(1)`` with ``root_weight=True``.

    Args:
        *families (Family): the families, at least one.

    Raises:
        TypeError: an argument is not a family, or two read structures of different kinds.
        ValueError: no family is given; when a basis is made, as the families do.
    """

    equation = "the A_k of the first family, then those of the next"

    @property
    def num_bases(self) -> int:
        """K, the sum over the families."""
        return sum(family.num_bases for family in self.families)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each label."""
        return tuple(label for family in self.families for label in family.labels)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """The bases of the families, stacked."""
        return Stacked(tuple(family.basis_on(structure, dtype) for family in self.families))
