"""Supports of far nodes: GlobalTokens and RandomLinks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...basis.band import places
from ...basis.edges import EdgeBasis
from ...basis.implicit_edges import sorted_pairs
from ...basis.same_block import SameBlock
from ...graph.positions import graph_numbers
from ...graph.structure import Structure
from ...kernels.lasting import lasting
from ..options import check_least, settle
from .support import Support


@dataclass(frozen=True)
class GlobalTokens(Support):
    r"""All pairs of which one end is a global node.

    .. math:: A_0[m, n] = 1 \iff m \in G \text{ or } n \in G

    The global attention of the `"Longformer" <https://arxiv.org/abs/2004.05150>`_ (section 3.1)
    and `"BigBird" <https://arxiv.org/abs/2007.14062>`_ (section 2) papers, which add it to windows:
    ``Union(SlidingWindow(w), GlobalTokens(g))``. In a batch the places of global nodes are
    counted from the first node of each graph; a graph may be too short for some of them. If M ≠ N,
    sources and targets are both counted from their first node.

    Args:
        tokens (int or tuple): G: the number of first nodes, or the places of nodes.

    Raises:
        ValueError: a number is negative; when a basis is made, the number of nodes is unknown.
    """

    labels = ("to and from global nodes",)
    equation = "A_0[m, n] = 1 where m or n is in G"
    page = (
        "m or n is one of a few",
        "2004.05150, section 3.1; Zaheer et al., *BigBird* (2007.14062), section 2",
    )

    tokens: int | tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, ("tokens",))
        check_least(self, tokens=0)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> EdgeBasis:
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


@dataclass(frozen=True)
class RandomLinks(Support):
    r"""r distinct sources for each target, drawn uniformly.

    .. math:: A_0[m, n] = 1 \iff m \in R_n, \quad |R_n| = \min(r, M)

    The random attention of the `"BigBird" <https://arxiv.org/abs/2007.14062>`_ paper (section 2),
    which adds it to windows and global nodes. The same seed and number of nodes give the same
    links, on every device. A graph has the same links in a batch as by itself.

    Args:
        count (int): r.
        seed (int, optional): seed of the random generator. (default: ``0``)

    Raises:
        ValueError: a number is negative; when a basis is made, the number of nodes is unknown.
    """

    labels = ("random",)
    equation = "A_0[m, n] = 1 where m is one of r random sources of n"
    page = ("m is one of r drawn sources", "2007.14062, section 2")

    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, count=0, seed=0)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The links as explicit edges."""
        sources, targets = graph_numbers(structure)
        graph, order = sources.long().sort(stable=True)
        begin = torch.searchsorted(graph, targets.long())
        there = torch.searchsorted(graph, targets.long(), right=True) - begin
        link = self._draw(there.cpu(), places(targets).cpu()).to(structure.device)
        target, which = (link >= 0).nonzero(as_tuple=True)
        source = order[begin[target] + link[target, which]]
        return sorted_pairs(torch.stack([source, target]), structure.size)

    def _draw(self, there: Tensor, place: Tensor) -> Tensor:
        """Distinct numbers (N, r) below ``there`` (N,) for each target, −1 where there are fewer.

        Draws belong to a target's ``place`` (N,) in its graph. Floyd's algorithm: draw i is from
        all numbers but the last r − 1 − i; if it was drawn before, the last of these is taken.
        """
        rows = int(place.max()) + 1 if place.numel() else 0
        with lasting():
            generator = torch.Generator().manual_seed(self.seed)
            shares = torch.rand(
                rows, self.count, generator=generator, dtype=torch.float64, device="cpu"
            )
        shares = shares[place]
        drawn = torch.full(shares.shape, -1)
        first = (there - self.count).clamp(min=0)
        for i in range(self.count):
            last = first + i
            one = (shares[:, i] * (last + 1)).long().clamp(max=last)
            again = (drawn[:, :i] == one.unsqueeze(1)).any(1)
            drawn[:, i] = torch.where(again, last, one).masked_fill_(last >= there, -1)
        return drawn
