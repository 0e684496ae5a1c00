"""Families made of others: Stack, Union, Compose, Directed, Reverse, Mean and Explicit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ..attention.queries import Content
from ..basis.algebra import Stacked
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import sorted_pairs
from ..basis.products import composed
from ..equations import row
from ..errors import RefusedType, RefusedValue
from ..graph.graph import Graph
from ..graph.structure import Structure, common_kind
from ..memo import cached_property
from ..theta import as_theta
from .family import Channels, Family
from .gcn import GCN
from .options import nested
from .support.support import kept_basis

if TYPE_CHECKING:
    from typing_extensions import Self


class OfOthers(Family):
    """A family made of others, its parts, which read structures of one kind.

    Attributes:
        keeps_labels: whether labels are those of the families, in turn.
    """

    reads_beside = ()
    takes_content = True
    keeps_labels: ClassVar[bool] = False

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether any of the families adds self-loops."""
        return any(part.add_self_loops for part in self.parts)

    @cached_property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """The kind of structure that all of the families read."""
        return common_kind(self.parts)

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether this is true of all families."""
        return all(part.keeps_nodes for part in self.parts)

    def outputs(self, structure: Any) -> Structure:
        """The structure of the targets, which is that of the first family."""
        return self.parts[0].outputs(structure)

    def sized(self, in_channels: Channels, out_channels: int, shares: bool = False) -> Family:
        """The same recipe with the families for a layer of these channels."""
        shares = shares and self.keeps_labels
        return self.with_parts(lambda part: part.sized(in_channels, out_channels, shares))


class OfSeveral(OfOthers):
    """A family made of several others."""

    if TYPE_CHECKING:

        @property
        def families(self) -> tuple[Family, ...]: ...

    @property
    def parts(self) -> tuple[Family, ...]:
        return self.families

    def set_self_loops(self, add: bool) -> Self:
        """The same recipe without added self-loops; adding them is refused."""
        name = type(self).__name__.lower()
        if add:
            raise RefusedValue(
                f"self-loops are an option of each family of a {name}",
                "GCN(add_self_loops=True) among them",
                repr(self),
            )
        return type(self)(*(family.set_self_loops(False) for family in self.families))

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether this is true of all families."""
        return all(family.takes_nodes_alone for family in self.families)


class OfTwo(OfSeveral):
    """A family made of a first and a second."""

    if TYPE_CHECKING:  # fields of the subclasses

        @property
        def first(self) -> Family: ...

        @property
        def second(self) -> Family: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        common_kind(self.families)

    @property
    def families(self) -> tuple[Family, Family]:  # type: ignore[override]
        """The first and the second."""
        return self.first, self.second


@dataclass(frozen=True, init=False)
class OfFamilies(OfSeveral):
    """A family made of ``families``, at least one, which read structures of one kind.

    Raises:
        TypeError: an argument is not a family, or two read structures of different kinds.
        ValueError: no family is given.
    """

    families: tuple[Family, ...]

    def __init__(self, *families: Family) -> None:
        name = type(self).__name__.lower()
        if not families:
            raise RefusedValue(f"a {name} needs a family", "at least one", "none")
        for family in families:
            if not isinstance(family, Family):
                raise RefusedType(f"a {name} is made of families", "Family", type(family).__name__)
        object.__setattr__(self, "families", families)
        self._nest()
        common_kind(families)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.families))})"

    def with_parts(self, change: Callable[[Family], Family]) -> Self:
        """The same combination of ``change`` of each family."""
        families = [change(family) for family in self.families]
        same = all(new is old for new, old in zip(families, self.families, strict=True))
        return self if same else type(self)(*families)


@row(
    "Alignment", "one alignment for each head", "Andreoli, section 4", option="`Stack(T_1, …, T_H)`"
)
@row(
    "Support",
    "supports for heads, H/L each",
    "1904.10509, section 4.3",
    option="`Stack(S_1, …, S_L)`",
)
@dataclass(frozen=True, init=False, repr=False)
class Stack(OfFamilies):
    r"""The matrices of several families, one family after another.

    .. math:: (A^{(1)}_0, A^{(1)}_1, \dots, A^{(2)}_0, \dots)

    On one set of nodes ``Stack(Relation(1, None), Identity())`` is GraphConv, with ``'mean'``
    GraphSAGE. Where targets have features of their own (pairs, ``to_hetero``), these layers are
    ``Relation(1)`` with ``root_weight=True``.

    Args:
        *families (Family): the families, at least one.

    Raises:
        TypeError: an argument is not a family, or two read structures of different kinds.
        ValueError: no family is given; when a basis is made, as the families do.
    """

    equation = "the A_k of the first family, then those of the next"
    keeps_labels = True

    @property
    def num_bases(self) -> int:
        """K, the sum over the families."""
        return sum(family.num_bases for family in self.families)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for family in self.families for label in family.labels)

    def combinations(self) -> list[tuple[str, int]]:
        """Those of the families, one after another."""
        runs = [run for family in self.families for run in family.combinations()]
        if all(combine == "sum" for combine, _ in runs):
            return [("sum", self.num_bases)]
        return runs

    @property
    def initial_coefficients(self) -> tuple[float, ...] | None:
        """Those of the families; ones where only others have some."""
        each = [(family.initial_coefficients, family.num_bases) for family in self.families]
        if all(own is None for own, _ in each):
            return None
        return tuple(
            number for own, count in each for number in ((1.0,) * count if own is None else own)
        )

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The bases of the families, stacked; those that depend on no features are kept."""
        if content is None:
            return Stacked(tuple(family.basis_on(structure, dtype) for family in self.families))
        parts, start = [], 0
        for family in self.families:
            every = nested(family)
            if any(part.reads_theta for part in every):
                mine = _of_labels(content, start, start + family.num_bases)
                parts.append(family.basis_with(structure, dtype, mine))
            elif any(part.learns for part in every):
                parts.append(family.basis_with(structure, dtype, content))
            else:
                parts.append(kept_basis(family, structure, dtype))
            start += family.num_bases
        return Stacked(of_one_type(*parts))


def of_one_type(*parts: Basis) -> tuple[Basis, ...]:
    """Bases in autocast's type, if attention, which uses it, stands beside values in float32."""
    types, device = {part.dtype for part in parts} - {None}, parts[0].device.type
    if len(types) == 2 and torch.is_autocast_enabled(device):
        short = torch.get_autocast_dtype(device)
        if types == {torch.float32, short}:
            return tuple(part.to(short) for part in parts)
    return parts


def _of_labels(content: Content, start: int, end: int) -> Content:
    """The content with Θ_k of the labels from ``start`` to ``end`` alone."""
    if content.theta is None:
        return content
    theta = as_theta(content.theta).labels(start, end)
    return content.but(theta=theta.full() if theta.is_tensor else theta)


@row("Support", "any of several supports has the edge", "2004.05150, 2007.14062")
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

    @property
    def labels(self) -> tuple[str, ...]:
        return (" or ".join(label for family in self.families for label in family.labels),)

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> EdgeBasis:
        bases = [family.basis_with(structure, dtype, content) for family in self.families]
        size = Stacked(tuple(bases)).size  # of all; a stack refuses others
        return sorted_pairs(torch.cat([one.edges().index for one in bases], dim=1), size)


@dataclass(frozen=True)
class Compose(OfTwo):
    r"""The products of two families' matrices: one convolution, then the other.

    .. math:: A_{i K_2 + j} = A^{(1)}_i A^{(2)}_j

    Two linear convolutions in a chain as one (Proposition 2 of *Convolution is outer product*).
    ``Compose(GCN(), GCN())`` sees neighbours of neighbours; nested, it is SGConv. The second family
    reads the targets of the first: the same edges, where sources and targets are the same nodes, or
    the grid that a family of grids makes.

    Args:
        first (Family, optional): the family applied to the input. (default: ``GCN()``)
        second (Family, optional): the family applied to the outputs of the first.
            (default: ``GCN()``)

    Raises:
        TypeError: an argument is not a family, or the two read structures of different kinds.
        ValueError: the first family does not define its outputs; when a basis is made,
            edges run between a pair of sets of nodes, or as the families do.
    """

    equation = "A_{i K2 + j} = A_i of the first, times A_j of the second"

    first: Family = field(default_factory=GCN)
    second: Family = field(default_factory=GCN)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.first.keeps_nodes and type(self.first).outputs is Family.outputs:
            raise RefusedValue(
                "the second family reads the targets of the first",
                "a first family that defines outputs; "
                "basis.compose(other) takes any two bases that fit",
                self.first,
            )

    def factors(self) -> list[Family]:
        """The factors of the first family, then those of the second."""
        return [*self.first.factors(), *self.second.factors()]

    def outputs(self, structure: Any) -> Structure:
        """The outputs of the second family on the outputs of the first."""
        return self.second.outputs(self.first.outputs(structure))

    @property
    def num_bases(self) -> int:
        return self.first.num_bases * self.second.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each pair of labels."""
        return tuple(
            f"{first}, then {second}"
            for first in self.first.labels
            for second in self.second.labels
        )

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The product of both bases; equal families share one basis."""
        between = self.first.outputs(structure)
        first = self.first.basis_with(structure, dtype, content)
        made_alike = self.first == self.second and not any(p.learns for p in nested(self.first))
        same = between is structure and made_alike
        second = first if same else self.second.basis_with(between, dtype, content)
        return composed(*of_one_type(first, second))


# Of one family ------------------------------------------------------------------------------------


class OfFamily(OfOthers):
    """A family made of one other, its option ``family``, whose attributes it has by default."""

    keeps_labels = True

    if TYPE_CHECKING:

        @property
        def family(self) -> Family: ...

    @property
    def parts(self) -> tuple[Family, ...]:
        return (self.family,)

    def combinations(self) -> list[tuple[str, int]]:
        """As the family, if the labels are its own."""
        return self.family.combinations() if self.keeps_labels else super().combinations()

    def set_self_loops(self, add: bool) -> Self:
        """The same recipe with or without added self-loops in the family."""
        return replace(self, family=self.family.set_self_loops(add))  # type: ignore[type-var]

    @property
    def max_parameters(self) -> int | None:  # type: ignore[override]
        """As the family."""
        return self.family.max_parameters

    @property
    def num_bases(self) -> int:
        return self.family.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
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
