"""Directed: a family on the edges, and the same family on the reversed edges."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..basis.base import Basis
from ..basis.stacked import Stacked
from ..errors import RefusedType, refusal
from ..graph.edge_list import EdgeList
from .combinators import OfFamily
from .family import Family
from .gcn import GCN


@dataclass(frozen=True)
class Directed(OfFamily):
    r"""The matrices of a family on the edges, then those on the reversed edges.

    .. math:: (A_0, \dots, A_{K-1})(W), \; (A_0, \dots, A_{K-1})(W^\top)

    With ``GCN(add_self_loops=False)`` it is the pair of the `"Edge Directionality Improves
    Learning on Heterophilic Graphs" <https://arxiv.org/abs/2305.10498>`_ paper.

    Args:
        family (Family, optional): the family. (default: ``GCN()``)

    Raises:
        TypeError: ``family`` does not read edges.
        ValueError: when a basis is made, sources and targets are different nodes, so that reversed
            edges run between other sets; or as ``family`` does.
    """

    equation = "A_k(W), then A_k(W^T)"
    reads = EdgeList  # type: ignore[assignment]

    family: Family = field(default_factory=GCN)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not issubclass(EdgeList, self.family.reads):
            raise RefusedType(
                refusal("Directed reverses edges", "a family of edges", repr(self.family))
            )

    @property
    def num_bases(self) -> int:
        """K, twice that of the family."""
        return 2 * self.family.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each label."""
        there = self.family.labels
        return (*there, *(f"{label}, reversed" for label in there))

    def basis_on(self, edges: EdgeList, dtype: torch.dtype | None = None) -> Basis:
        """The bases of the edges and of the reversed edges, stacked."""
        instead = "the family itself, and a layer of its own for the reversed edges"
        edges.require_one_set("Directed", instead)
        transposed = edges.reversed()
        if edges.content is not None:
            transposed = transposed.with_content(edges.content)
        ends = (edges, transposed)
        return Stacked(tuple(self.family.basis_on(part, dtype) for part in ends))
