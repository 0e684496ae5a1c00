"""GlobalTokens: a few nodes see all others, and are seen by them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...basis.band import places
from ...basis.edges import EdgeBasis
from ...basis.implicit_edges import sorted_pairs
from ...basis.same_block import SameBlock
from ...graph.batches import graph_numbers
from ...graph.structure import Structure
from ..per_axis import check_least, settle
from .support import Support


@dataclass(frozen=True)
class GlobalTokens(Support):
    r"""All pairs of which one end is a global node.

    .. math:: A_0[m, n] = 1 \iff m \in G \text{ or } n \in G

    The global attention of the `"Longformer" <https://arxiv.org/abs/2004.05150>`_ (section 3.1)
    and `"BigBird" <https://arxiv.org/abs/2007.14062>`_ (section 2) papers, which add it to windows:
    ``Union(SlidingWindow(w), GlobalTokens(g))``. Of the graphs of a batch each has its own global
    nodes, as far as it has those places. Where M ≠ N places are counted from the first node of
    both ends.

    Args:
        tokens (int or tuple): G: the number of first nodes, or the places of nodes.

    Raises:
        TypeError: the option has the wrong type.
        ValueError: a number is negative; when a basis is made, the number of nodes is unknown.
    """

    equation = "A_0[m, n] = 1 where m or n is in G"
    page = (
        "m or n is one of a few",
        "2004.05150, section 3.1; Zaheer et al., *BigBird* (2007.14062), section 2",
    )

    tokens: int | tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, ("tokens",))
        check_least(self, "tokens", 0)

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the label."""
        return ("to and from global nodes",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The pairs as explicit edges."""
        sources, targets = graph_numbers(structure)
        to_all = SameBlock(self._globals(sources), targets).edges().index
        from_all = SameBlock(sources, self._globals(targets)).edges().index
        return sorted_pairs(torch.cat([to_all, from_all], dim=1), structure.size)

    def _globals(self, graph: Tensor) -> Tensor:
        """The graph (n,) of each global node; −1 for other nodes."""
        place = places(graph)
        if isinstance(self.tokens, int):
            return graph.masked_fill(place >= self.tokens, -1)
        chosen = torch.tensor(self.tokens, dtype=torch.long, device=graph.device)
        return graph.masked_fill(~torch.isin(place, chosen), -1)
