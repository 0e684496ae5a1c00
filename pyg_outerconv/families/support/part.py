"""Part: some consecutive sources, each as a target of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch_geometric.data import Data

from ...basis.band import Band
from ...equations import row
from ...errors import RefusedValue, refusal
from ...graph.node_set import NodeSet
from ...graph.structure import Structure
from ..family import Family
from ..per_axis import check_least


@row(
    "Alignment",
    "some of the joined sources: a rectangular identity",
    "Andreoli, section 4",
    option="`Part(count, start)`",
)
@dataclass(frozen=True)
class Part(Family):
    r"""A rectangular identity: target n is source s + n.

    .. math:: A_0[m, n] = 1 \iff m = s + n

    As an alignment T it takes the queries TᵀX from a part of the sources: where X joins the nodes
    of two sequences, the second may be the queries of attention to both, as in a decoder. Queries
    keep their places among the sources, for supports that depend on order and for positions. With
    s = 0 and as many targets as sources it is :class:`~pyg_outerconv.families.Identity`. Source:
    section 4 of `"Convolution is outer product" <https://arxiv.org/abs/1905.01289>`_.

    Args:
        count (int, optional): N. (default: that of the structure, or all sources from s on)
        start (int, optional): s; negative numbers count from the end, as in Python.
            (default: ``0``)

    Raises:
        TypeError: an option has the wrong type.
        ValueError: the count is negative; when a basis is made, there are fewer sources, or
            another number of targets.
    """

    equation = "A_0[m, n] = 1 where m = s + n"
    reads = Structure
    keeps_nodes = False
    symmetries = ()

    count: int | None = None
    start: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count is not None:
            check_least(self, "count", 0)

    @property
    def num_bases(self) -> int:
        """K = 1."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the label."""
        return ("the same node",)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Band:
        """A :class:`~.band.Band` of one diagonal."""
        if isinstance(structure, NodeSet):
            targets = structure.known[1]
        else:
            targets = structure.size[1] if structure.targets_are_sources else None
        sources = structure.size[0]
        start = self.start + sources if self.start < 0 else self.start
        if targets is None:
            targets = sources - start if self.count is None else self.count
        if self.count not in (None, targets):
            rule = f"{self} has a fixed number of targets"
            raise RefusedValue(refusal(rule, self.count, targets))
        if targets < 0 or not 0 <= start <= sources - targets:
            got = f"{targets} from {start} on, of {sources}"
            raise RefusedValue(refusal("a part lies within the sources", self, got))
        return Band(sources, targets, left=0, right=0, offset=start, on=structure.device)

    def structure_in(self, data: Data) -> NodeSet:
        """The nodes of a graph as sources; the number of targets stays open."""
        return NodeSet.of_sources(super().structure_in(data))
