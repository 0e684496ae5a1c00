"""Products of two bases, stored as the two factors, and disjoint copies of a basis."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .base import Basis, nest
from .edge_products import check_product, compose_edges
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .label_maps import Derived
from .pattern import Pattern
from .registry import makes

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf


@dataclass(frozen=True, eq=False, repr=False)
class BinaryProduct(Basis):
    """A basis of two factors, whose labels are pairs: (i, j) is label i·K₂ + j.

    Attributes:
        first: K₁ matrices A_i.
        second: K₂ matrices B_j.

    Raises:
        TypeError: they are not bases of one type.
    """

    hides_edges: ClassVar[bool] = True
    levels: ClassVar[int] = 1  # of nesting

    first: Basis
    second: Basis

    def __post_init__(self) -> None:
        for part in (self.first, self.second):
            if not isinstance(part, Basis):
                raise RefusedType(refusal("a product takes bases", "a Basis", type(part).__name__))
        dtypes = (self.first.dtype, self.second.dtype)
        if None not in dtypes and dtypes[0] != dtypes[1]:
            raise RefusedType(refusal("bases in a product must have one dtype", *dtypes))
        nest(self, self.first, self.second, levels=self.levels)

    @property
    def num_bases(self) -> int:
        """K₁·K₂."""
        return self.first.num_bases * self.second.num_bases

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self.first.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the values; None if the values of both are ones."""
        return self.first.dtype or self.second.dtype

    @property
    def learns(self) -> bool:
        """Whether values of either factor require gradients."""
        return self.first.learns or self.second.learns

    def swapped(self) -> tuple[int, ...]:
        """For each label (i, j), the label (j, i) of the product with exchanged factors."""
        ours, theirs = self.first.num_bases, self.second.num_bases
        return tuple(j * ours + i for i in range(ours) for j in range(theirs))

    @property
    def shares_nodes(self) -> bool:
        """Whether sources and targets of both factors are the nodes of the product."""
        return False

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """``change`` applied to every edge set: those of both factors."""
        if same_nodes and not self.shares_nodes:
            return change(self.edges())
        first, second = (part.with_edges(change, same_nodes) for part in (self.first, self.second))
        return replace(self, first=first, second=second)

    def transposed(self) -> Basis:
        """The transpose, which is never lazy here."""
        return self.transpose()

    def shape_class(self) -> Hashable:
        """Cache key for the choice of an order; see :meth:`.Kind.shape_class`."""
        return type(self), self.first.shape_class(), self.second.shape_class()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._head()}, {self.first!r}, {self.second!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Composed(BinaryProduct):
    r"""The products of A's and B's matrices.

    .. math:: C_{i K_2 + j} = A_i B_j, \qquad \text{size } (M, N)

    A linear convolution over A followed by one over B is a convolution over their composition, with
    the products of their parameters (Proposition 2 of *Convolution is outer product*). Only the
    factors are stored, because products of sparse matrices can be nearly dense.

    Attributes:
        first: A, of size (M, L).
        second: B, of size (L, N).

    Raises:
        TypeError: they are not bases of one type.
        ValueError: N of A is not M of B.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_product(self.first.size, self.second.size)

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets, (M, N)."""
        return self.first.size[0], self.second.size[1]

    def edges(self) -> EdgeBasis:
        """One edge per label for each (m, n) joined by paths m → l → n, with their summed value."""
        return compose_edges(self.first.edges(), self.second.edges())

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) as products of the dense factors."""
        dtype = self.dtype or dtype
        a, b = self.first.to_dense(dtype), self.second.to_dense(dtype)
        return torch.einsum("iml,jln->ijmn", a, b).flatten(0, 1)

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """Refused, because the edges of a product are known only after computing them.

        Raises:
            ValueError: always; call ``edges().mean()``.
        """
        raise RefusedValue(
            refusal(
                "a mean within labels counts edges, which a product does not store",
                "an explicit basis: basis.edges()",
                repr(self),
            )
        )

    def transpose(self) -> Basis:
        """(A_i B_j)ᵀ = B_jᵀ A_iᵀ: the transposes composed, with their labels exchanged."""
        transposed = Composed(self.second.transpose(), self.first.transpose())
        if 1 in (self.first.num_bases, self.second.num_bases):
            return transposed
        return transposed.select(self.swapped())

    @property
    def shares_nodes(self) -> bool:
        """Whether the matrices are square, so that inner nodes may be numbered as outer ones."""
        return self.first.size[0] == self.first.size[1]

    def factors(self) -> list[Basis]:
        """The factors of both; see :meth:`.Kind.factors`."""
        return [*self.first.factors(), *self.second.factors()]

    def grids(self) -> tuple[Shape, Shape] | None:
        """The input grid of the first factor and the output grid of the second."""
        first, second = self.first.grids(), self.second.grids()
        return None if first is None or second is None else (first[0], second[1])

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Composed:
        """A_k[sources, targets]: rows of the first, columns of the second."""
        first, second = self.first, self.second
        return Composed(
            first if sources is None else first.restricted(sources, None),
            second if targets is None else second.restricted(None, targets),
        )

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``.

        Labels of the first that occur with the same labels of the second are handled together.
        """
        partners: dict[int, tuple[int, ...]] = {}
        for label in labels:
            first, second = divmod(label, self.second.num_bases)
            partners[first] = (*partners.get(first, ()), second)
        groups: dict[tuple[int, ...], list[int]] = {}
        for first, seconds in partners.items():
            groups.setdefault(seconds, []).append(first)
        out = seen.new_zeros(self.size[transposed])
        for seconds, firsts in groups.items():
            if transposed:
                between = self.first.reached(seen, firsts, transposed)
                out = out | self.second.reached(between, seconds, transposed)
            else:
                between = self.second.reached(seen, seconds, transposed)
                out = out | self.first.reached(between, firsts, transposed)
        return out

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X: along one factor, then along the other."""
        h = self.second.propagate(self.first.propagate(x))  # (N, K₂, K₁, *batch, P)
        return h.transpose(1, 2).flatten(1, 2)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`: those of both factors."""
        between = (self.first.size[1], self.first.num_bases, *shape[1:])
        then = self.second.products(between, learns or self.first.learns)
        return [*self.first.products(shape, learns), *then]

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The basis itself as a leaf: orders can contract products."""
        return [(self, theta)]

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Composed:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Composed(self.first.map(index_map, value_map), self.second.map(index_map, value_map))


LONG = 10  # number of levels from which a chain of products is stored as a balanced tree


@makes("compose")
def composed(first: Basis, second: Basis) -> Composed:
    """Compose two bases; long chains are rebalanced, since products and labels are associative.

    Raises:
        TypeError: the factors are not bases of one dtype.
        ValueError: their sizes do not fit.
    """
    are_bases = isinstance(first, Basis) and isinstance(second, Basis)
    if not are_bases or max(first.nesting, second.nesting) < LONG:
        return Composed(first, second)
    check_product(first.size, second.size)
    return _balanced([*first.factors(), *second.factors()])


def _balanced(factors: list[Basis]) -> Composed:
    half = len(factors) // 2
    first, second = factors[:half], factors[half:]
    return Composed(
        first[0] if len(first) == 1 else _balanced(first),
        second[0] if len(second) == 1 else _balanced(second),
    )


@makes("kron")
@dataclass(frozen=True, eq=False, repr=False)
class Kronecker(BinaryProduct):
    r"""The Kronecker products A_i ⊗ B_j, such as those of the two axes of a grid.

    .. math:: C_{i K_2 + j} = A_i \otimes B_j, \qquad \text{size } (M_1 M_2, N_1 N_2)

    Node (a, b) has the number a·M₂ + b: the second factor runs fastest.

    Attributes:
        first: A, of size (M₁, N₁).
        second: B, of size (M₂, N₂).

    Raises:
        TypeError: they are not bases of one type.
    """

    levels: ClassVar[int] = 2  # as many as chain() has

    @property
    def size(self) -> tuple[int, int]:
        """(M₁·M₂, N₁·N₂)."""
        a, b = self.first.size, self.second.size
        return a[0] * b[0], a[1] * b[1]

    def chain(self) -> Composed:
        """The composition (A ⊗ I)(I ⊗ B): along one axis, then along the other."""
        return Composed(
            Repeated(self.first, after=self.second.size[0]),
            Repeated(self.second, before=self.first.size[1]),
        )

    def edges(self) -> EdgeBasis:
        """One edge for each pair of an edge of A and an edge of B."""
        return kronecker_edges(self.first.edges(), self.second.edges())

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) from the dense factors."""
        dtype = self.dtype or dtype
        a, b = self.first.to_dense(dtype), self.second.to_dense(dtype)
        product = torch.einsum("imn,jab->ijmanb", a, b)
        return product.reshape(self.num_bases, *self.size)

    def mean(self, dtype: torch.dtype | None = None) -> Kronecker:
        """The product of the means, because numbers of edges multiply."""
        dtype = self.dtype or dtype
        return Kronecker(self.first.mean(dtype), self.second.mean(dtype))

    def transpose(self) -> Kronecker:
        """A_iᵀ ⊗ B_jᵀ, with the same labels."""
        return Kronecker(self.first.transpose(), self.second.transpose())

    def grids(self) -> tuple[Shape, Shape] | None:
        """The axes of the first, then those of the second."""
        first, second = self.first.grids(), self.second.grids()
        if first is None or second is None:
            return None
        return first[0] + second[0], first[1] + second[1]

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: axis by axis."""
        return self.chain().reached(seen, labels, transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X: axis by axis."""
        return self.chain().propagate(x)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`: those of the axes."""
        return self.chain().products(shape, learns)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The composition :meth:`chain` as a leaf, which orders can contract."""
        return [(self.chain(), theta)]

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Kronecker:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Kronecker(
            self.first.map(index_map, value_map), self.second.map(index_map, value_map)
        )


@dataclass(frozen=True, eq=False, repr=False)
class Repeated(Derived):
    """I ⊗ A_k ⊗ I: ``before``·``after`` disjoint copies of a basis.

    Node m of copy (b, a) has the number (b·M + m)·``after`` + a.
    """

    before: int = 1
    after: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets of all copies."""
        copies = self.before * self.after
        return self.base.size[0] * copies, self.base.size[1] * copies

    def edges(self) -> EdgeBasis:
        """The edges of all copies."""
        edges = self.base.edges()
        device, pattern = edges.device, edges.pattern
        before = torch.arange(self.before, device=device).view(-1, 1, 1)
        after = torch.arange(self.after, device=device)

        def ends(node: Tensor, count: int) -> Tensor:
            return ((before * count + node.long().view(-1, 1)) * self.after + after).flatten()

        def spread(of_edge: Tensor) -> Tensor:
            return of_edge.view(-1, 1).expand(self.before, -1, self.after).flatten()

        made = Pattern.build(
            torch.stack(
                [
                    ends(pattern.source, edges.size[0]),
                    ends(pattern.target, edges.size[1]),
                ]
            ),
            spread(pattern.label),
            size=self.size,
            num_labels=self.num_bases,
        )
        return EdgeBasis(
            made, None if edges.value is None else made.sort_values(spread(edges.value))
        )

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) of all copies."""
        dense = self.base.to_dense(self.dtype or dtype)
        left, right = (torch.eye(n).to(dense) for n in (self.before, self.after))
        product = torch.einsum("ab,kmn,cd->kamcbnd", left, dense, right)
        return product.reshape(self.num_bases, *self.size)

    def mean(self, dtype: torch.dtype | None = None) -> Repeated:
        """The mean within each copy."""
        return Repeated(self.base.mean(dtype), self.before, self.after)

    def transpose(self) -> Repeated:
        """Copies of the transpose."""
        return Repeated(self.base.transpose(), self.before, self.after)

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """``change`` applied to every edge set: those of one copy, which has nodes of its own."""
        return change(self.edges()) if same_nodes else super().with_edges(change)

    def transposed(self) -> Repeated:
        """The transpose, which is never lazy here."""
        return self.transpose()

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: copy by copy."""
        here, there = self.base.size[not transposed], self.base.size[transposed]
        copies = seen.view(self.before, here, self.after).transpose(1, 2).flatten(0, 1)
        out = seen.new_zeros(copies.size(0), there)
        for copy in copies.any(1).nonzero().view(-1).tolist():
            out[copy] = self.base.reached(copies[copy], labels, transposed)
        return out.view(self.before, self.after, there).transpose(1, 2).flatten()

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X: copies are items of a batch."""
        copies = x.unflatten(0, (self.before, self.base.size[0], self.after)).movedim(1, 0)
        h = self.base.propagate(copies)  # (N, K, before, after, *batch, P)
        return h.permute(2, 0, 3, 1, *range(4, h.dim())).flatten(0, 2)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`: those of a batch with an item for each copy."""
        copies = (self.base.size[0], self.before, self.after, *shape[1:])
        return self.base.products(copies, learns)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The basis itself as a leaf: orders can contract copies."""
        return [(self, theta)]

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Repeated:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Repeated(self.base.map(index_map, value_map), self.before, self.after)

    def __repr__(self) -> str:
        return f"Repeated({self.before} x {self.base!r} x {self.after})"


def kronecker_edges(first: EdgeBasis, second: EdgeBasis) -> EdgeBasis:
    """The edges of A_i ⊗ B_j: (a, b) → (c, d) for edges a → c of A_i and b → d of B_j."""
    a, b = first.pattern, second.pattern

    def both(outer: Tensor, inner: Tensor, count: int) -> Tensor:
        return (outer.long().unsqueeze(1) * count + inner.long()).flatten()

    (rows, columns), (inner_rows, inner_columns) = first.size, second.size
    pattern = Pattern.build(
        torch.stack(
            [both(a.source, b.source, inner_rows), both(a.target, b.target, inner_columns)]
        ),
        both(a.label, b.label, b.num_labels),
        size=(rows * inner_rows, columns * inner_columns),
        num_labels=a.num_labels * b.num_labels,
    )
    if first.value is None and second.value is None:
        return EdgeBasis(pattern)
    dtype = first.dtype or second.dtype
    value = torch.outer(first.values(dtype), second.values(dtype)).flatten()
    return EdgeBasis(pattern, pattern.sort_values(value))
