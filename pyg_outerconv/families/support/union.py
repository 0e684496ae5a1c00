"""Union: the pairs that are joined by any of several families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...basis.edges import EdgeBasis
from ...basis.implicit_edges import sorted_pairs
from ...basis.stacked import Stacked
from ..combinators import OfFamilies


@dataclass(frozen=True, init=False, repr=False)
class Union(OfFamilies):
    r"""The pairs that an edge of any family joins, under any label, each once.

    .. math:: A_0[m, n] = 1 \iff A^{(f)}_k[m, n] \text{ has an edge for some } f, k

    f then normalises over all sources that a target sees; in a
    :class:`~pyg_outerconv.families.Stack` each family has its own. The
    `"Longformer" <https://arxiv.org/abs/2004.05150>`_'s pattern is
    ``Union(SlidingWindow(w), GlobalTokens(g))``, that of `"BigBird"
    <https://arxiv.org/abs/2007.14062>`_ has ``RandomLinks(r)`` too. Values are ignored.

    Args:
        *families (Family): at least one.

    Raises:
        TypeError: an argument is not a family, or two read structures of different kinds.
        ValueError: no family is given; when a basis is made, as the families do.
    """

    equation = "A_0[m, n] = 1 where any of the families has an edge"
    page = ("any of several supports has the edge", "2004.05150, 2007.14062")

    @property
    def num_bases(self) -> int:
        """K = 1."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the label."""
        return (" or ".join(label for family in self.families for label in family.labels),)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The pairs as explicit edges."""
        bases = [family.basis_on(structure, dtype) for family in self.families]
        size = Stacked(tuple(bases)).size  # of all; a stack refuses others
        return sorted_pairs(torch.cat([one.edges().index for one in bases], dim=1), size)
