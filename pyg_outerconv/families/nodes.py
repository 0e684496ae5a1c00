"""Families that read only numbers of nodes: Identity, Full and Part."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch
from torch_geometric.data import Data

from ..basis.band import Band
from ..basis.eye import Eye, UnitMatrices
from ..equations import row
from ..errors import RefusedValue
from ..graph.node_set import NodeSet
from ..graph.structure import Structure
from .family import Family
from .options import check_least, settle


@dataclass(frozen=True)
class Identity(Family):
    r"""The identity matrix, with which a convolution is a linear layer on each node.

    .. math:: A_0 = I

    Between two sets of nodes, target n sees source n for n < min(M, N): the targets come first
    among the sources, as in PyG's sampled bipartite blocks. Source: section 3.1 of *Convolution is
    outer product*.
    """

    labels = ("self",)
    equation = "A_0 = I"
    reads = Structure
    reads_beside = ()

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Eye:
        """The identity, as a rule."""
        return Eye(structure.size, structure.device)


class _OtherTargets(Family):
    """A family of sources alone, whose targets are other nodes."""

    reads = Structure
    reads_beside: tuple[str, ...] = ()
    keeps_nodes = False
    symmetries = ()

    def structure_in(self, data: Data) -> NodeSet:
        """The nodes of a graph as sources; the number of targets stays open."""
        return NodeSet.of_sources(super().structure_in(data))


@dataclass(frozen=True)
class Full(_OtherTargets):
    r"""The M·N unit matrices, the largest basis, of no structure.

    .. math:: A_{mN + n} = e_m e_n^{\top}

    A convolution over it is a fully connected layer from M·P to N·Q numbers; :class:`Identity` is
    the opposite end. It has K·P·Q = M·N·P·Q parameters, so a layer refuses more than
    ``max_parameters``. It takes ``None`` in place of ``edge_index``. Source: section 3.1 of
    *Convolution is outer product*.

    Args:
        size (tuple): (M, N).
        max_parameters (int, optional): the largest number of parameters of a layer; ``None`` for
            no limit. (default: ``10_000_000``)

    Raises:
        ValueError: the size is not two positive numbers; when a basis is made, M or N differs;
            when a layer is made, it would have too many parameters.
    """

    equation = "A_k = e_m e_n^T for k = m N + n"

    size: tuple[int, ...]
    max_parameters: int | None = 10_000_000

    def __post_init__(self) -> None:
        settle(self, ("size",))
        super().__post_init__()
        if len(self.size) != 2 or min(self.size) < 1:
            raise RefusedValue("a full basis has a size", "(M, N), both >= 1", self.size)
        check_least(self, max_parameters=1)

    @property
    def num_bases(self) -> int:
        """K = M·N."""
        return prod(self.size)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{source} to {target}" for source, target in product(*map(range, self.size)))

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> UnitMatrices:
        """The unit matrices, if M and N are those of the family."""
        counts = structure.num_nodes if isinstance(structure, NodeSet) else structure.size
        if not (isinstance(structure, NodeSet) or structure.targets_are_sources):
            counts = (counts[0], None)  # a grid has no given number of targets
        for what, count, wanted in zip(("sources", "targets"), counts, self.size, strict=True):
            if count not in (None, wanted):
                raise RefusedValue(f"{self} has a fixed number of {what}", wanted, count)
        return UnitMatrices((self.size[0], self.size[1]), on=structure.device)


@row(
    "Alignment",
    "some of the joined sources: a rectangular identity",
    "Andreoli, section 4",
    option="`Part(count, start)`",
)
@dataclass(frozen=True)
class Part(_OtherTargets):
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
        ValueError: the count is negative; when a basis is made, there are fewer sources, or
            another number of targets.
    """

    labels = ("the same node",)
    equation = "A_0[m, n] = 1 where m = s + n"

    count: int | None = None
    start: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, count=0)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Band:
        """A band of one diagonal."""
        if isinstance(structure, NodeSet):
            targets = structure.num_nodes[1]
        else:
            targets = structure.size[1] if structure.targets_are_sources else None
        sources = structure.size[0]
        start = self.start + sources if self.start < 0 else self.start
        if targets is None:
            targets = sources - start if self.count is None else self.count
        if self.count not in (None, targets):
            rule = f"{self} has a fixed number of targets"
            raise RefusedValue(rule, self.count, targets)
        if targets < 0 or not 0 <= start <= sources - targets:
            got = f"{targets} from {start} on, of {sources}"
            raise RefusedValue("a part lies within the sources", self, got)
        return Band(sources, targets, left=0, right=0, offset=start, on=structure.device)
