"""Complete: every target sees every source."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...basis.band import Band
from ...basis.base import Basis
from ...basis.edges import EdgeBasis
from ...basis.same_block import SameBlock
from ...graph.batches import graphs_of
from ...graph.checks import check_one_set
from ...graph.structure import Structure
from .support import Support


@dataclass(frozen=True)
class Complete(Support):
    r"""All pairs of a source and a target, or all that are of one graph.

    .. math:: A_0[m, n] = 1

    The support of full attention, and with M ≠ N of cross-attention (``size=(M, N)``, or a pair
    of features). With ``batch``, nodes see the nodes of their own graph. From the
    `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ paper, section 3.2.

    Args:
        add_self_loops (bool, optional): if ``False``, no node sees itself, and sources and targets
            must be the same nodes; else every node does. (default: ``None``)

    Raises:
        TypeError: the option has the wrong type.
        ValueError: when a basis is made, the number of nodes is unknown, or sources and
            targets are a pair, without self-loops.
    """

    equation = "A_0[m, n] = 1"
    page = ("always", "Vaswani et al., *Attention Is All You Need* (1706.03762), section 3.2")
    symmetries = ("permutation-equivariant",)

    add_self_loops: bool | None = None  # type: ignore[assignment]

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the label."""
        return ("all pairs",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Basis:
        """A :class:`Band` without limits, or :class:`SameBlock`; edges, without self-loops."""
        graphs, size = graphs_of(structure), structure.size
        all_pairs = Band(*size, on=structure.device)
        pairs = all_pairs if graphs is None else SameBlock.of_graphs(*graphs)
        if self.add_self_loops is not False:
            return pairs
        check_one_set(structure.bipartite, size, "leaving out self-loops", "Complete()")
        pattern = pairs.edges().pattern
        ends = pattern.source, pattern.target
        return EdgeBasis(pattern.subset(ends[0] != ends[1], *ends, size))
