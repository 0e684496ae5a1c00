"""Mean: a family whose matrices take means instead of sums."""

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

    What ``OuterConv(aggr='mean')`` makes of its basis, as a family, so that a factor of
    :class:`Compose` or a part of :class:`Stack` can have a mean of its own.

    Args:
        family (Family, optional): whose matrices. (default: ``GCN()``)

    Raises:
        TypeError: ``family`` is not a family.
        ValueError: when a basis is made, it hides its edges, as powers do; or as ``family`` does.
    """

    equation = "A_k of the family / edges of label k at the target"

    family: Family = field(default_factory=GCN)

    @property
    def labels(self) -> tuple[str, ...]:
        """The mean of what each label means."""
        return tuple(f"mean of {label}" for label in self.family.labels)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """The family's basis with means for sums."""
        if isinstance(structure, EdgeList):
            structure = replace(structure, only_sums=False)  # edges are counted
        return self.family.basis_on(structure, dtype).mean(dtype)
