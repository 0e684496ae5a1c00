"""Families made of one other: Directed, Reverse, Mean and Explicit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ..attention.queries import Content
from ..basis.algebra import Stacked
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..errors import RefusedType
from ..graph.graph import Graph
from ..graph.structure import Structure
from .family import Channels, Family
from .gcn import GCN

if TYPE_CHECKING:
    from typing_extensions import Self


class OfFamily(Family):
    """A family made of one other, its option ``family``, whose attributes it has by default."""

    reads_beside = ()
    takes_content = True
    keeps_labels: ClassVar[bool] = True  # whether labels are those of the family, in their order

    if TYPE_CHECKING:

        @property
        def family(self) -> Family: ...

    def combinations(self) -> list[tuple[str, int]]:
        """As the family, if the labels are its own."""
        return self.family.combinations() if self.keeps_labels else super().combinations()

    def sized(self, in_channels: Channels, out_channels: int, shares: bool = False) -> Family:
        """The same recipe with the family for a layer of these channels."""
        shares = shares and self.keeps_labels
        return self.with_parts(lambda part: part.sized(in_channels, out_channels, shares))

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether the family adds self-loops."""
        return self.family.add_self_loops

    def set_self_loops(self, add: bool) -> Self:
        """The same recipe with or without added self-loops in the family."""
        return replace(self, family=self.family.set_self_loops(add))  # type: ignore[type-var]

    @property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """The kind of structure that the family reads."""
        return self.family.reads

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether the family keeps the nodes."""
        return self.family.keeps_nodes

    @property
    def max_parameters(self) -> int | None:  # type: ignore[override]
        """As the family."""
        return self.family.max_parameters

    def outputs(self, structure: Any) -> Structure:
        """The structure of the targets, that of the family."""
        return self.family.outputs(structure)

    @property
    def num_bases(self) -> int:
        """As the family."""
        return self.family.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        """As the family."""
        return self.family.labels


class _OfReversed(OfFamily):
    """A family made of one of edges, on reversed edges."""

    reads = Graph  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not issubclass(Graph, self.family.reads):
            rule = f"{type(self).__name__} reverses edges"
            raise RefusedType(rule, "a family of edges", repr(self.family))

    def _reversed(self, edges: Graph) -> Graph:
        """The reversed edges."""
        instead = "the family itself, and a layer of its own for the reversed edges"
        edges.require_one_set(type(self).__name__, instead)
        return edges.reversed()


@dataclass(frozen=True)
class Directed(_OfReversed):
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
    keeps_labels = False

    family: Family = field(default_factory=GCN)

    @property
    def num_bases(self) -> int:
        """K, twice that of the family."""
        return 2 * self.family.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        there = self.family.labels
        return (*there, *(f"{label}, reversed" for label in there))

    def basis_on(
        self, edges: Graph, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The bases of the edges and of the reversed edges, stacked."""
        ends = (edges, self._reversed(edges))
        return Stacked(tuple(self.family.basis_with(part, dtype, content) for part in ends))


@dataclass(frozen=True)
class Reverse(_OfReversed):
    r"""The matrices of a family on the reversed edges.

    .. math:: (A_0, \dots, A_{K-1})(W^\top)

    :class:`Directed` has the matrices on the edges, and then these.

    Args:
        family (Family, optional): the family. (default: ``GCN()``)

    Raises:
        TypeError: ``family`` does not read edges.
        ValueError: when a basis is made, sources and targets are different nodes; or as ``family``
            does.
    """

    equation = "A_k(W^T)"

    family: Family = field(default_factory=GCN)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{label}, reversed" for label in self.family.labels)

    def basis_on(
        self, edges: Graph, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The basis of the reversed edges."""
        return self.family.basis_with(self._reversed(edges), dtype, content)


@dataclass(frozen=True)
class Mean(OfFamily):
    r"""Every value of a family divided by the number of edges that share its target and label.

    .. math:: A_k[m, n] / |\{\text{edges of label } k \text{ at } n\}|

    ``OuterConv(aggr='mean')`` divides its whole basis in this way; this family divides only one
    factor of a :class:`Compose`, or one part of a :class:`Stack`.

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
        return tuple(f"mean of {label}" for label in self.family.labels)

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The family's basis, divided by the numbers of edges."""
        if isinstance(structure, Graph):
            structure = replace(structure, only_sums=False)  # edges are counted
        return self.family.basis_with(structure, dtype, content).mean(dtype)


@dataclass(frozen=True)
class Explicit(OfFamily):
    r"""The matrices of another family as explicit edges, where its basis is a rule.

    .. math:: A_k \text{ of the family, edge by edge}

    Rules have no values to read or replace, and allow no maximum or mean over the inputs that a
    walk reaches; explicit edges do. A power can have many edges; ``cached=True`` makes them once.

    Args:
        family (Family): the family.

    Raises:
        ValueError: when a basis is made, as ``family`` does.
    """

    equation = "the A_k of the family, as explicit edges"

    family: Family

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> EdgeBasis:
        """All matrices of the family's basis as edges."""
        basis = self.family.basis_with(structure, dtype, content)
        edges = basis.edges()
        if basis.dtype is None and edges.value is not None and dtype is not None:
            # Walks along edges of weight 1 were counted in torch's default dtype.
            edges = edges.with_values(edges.value.to(dtype))
        return edges
