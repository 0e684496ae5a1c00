"""Mean: the matrices of a family, divided so that sums become means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..basis.base import Basis
from ..graph.edge_list import EdgeList
from .combinators import OfFamily
from .family import Family
from .gcn import GCN


@dataclass(frozen=True)
class Mean(OfFamily):
    r"""Every value of a family divided by the number of edges that share its target and label.

    .. math:: A_k[m, n] / |\{\text{edges of label } k \text{ at } n\}|

    As ``OuterConv(aggr='mean')`` divides its basis, but as a family, so that a factor of
    :class:`Compose` or a part of :class:`Stack` can have its own mean.

    Args:
        family (Family, optional): the family. (default: ``GCN()``)

    Raises:
        TypeError: ``family`` is not a family.
        ValueError: when a basis is made, it is a rule without edges, such as powers; or as
            ``family`` does.
    """

    equation = "A_k of the family / edges of label k at the target"

    family: Family = field(default_factory=GCN)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each label."""
        return tuple(f"mean of {label}" for label in self.family.labels)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """The family's basis, divided by the numbers of edges."""
        if isinstance(structure, EdgeList):
            structure = replace(structure, only_sums=False)  # edges are counted
        return self.family.basis_on(structure, dtype).mean(dtype)
