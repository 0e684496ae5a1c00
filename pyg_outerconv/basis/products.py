"""Products of two bases, stored as the two factors, and disjoint copies of a basis."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType
from ..signatures import typed
from .base import Basis, Shape
from .compound import Compound, Derived, Stacked
from .edge_products import check_product, compose_edges, kronecker_edges
from .edges import EdgeBasis
from .pattern import Pattern
from .registry import makes


@dataclass(frozen=True, eq=False, repr=False)
class BinaryProduct(Compound):
    """A basis of two factors, whose labels are pairs: (i, j) is label i·K₂ + j.

    Attributes:
        first: K₁ matrices A_i.
        second: K₂ matrices B_j.

    Raises:
        TypeError: they are not bases of one type.
    """

    hides_edges: ClassVar[bool] = True

    first: Basis
    second: Basis

    def __post_init__(self) -> None:
        for part in (self.first, self.second):
            if not isinstance(part, Basis):
                raise RefusedType("a product takes bases", "a Basis", type(part).__name__)
        dtypes = (self.first.dtype, self.second.dtype)
        if None not in dtypes and dtypes[0] != dtypes[1]:
            raise RefusedType("bases in a product must have one dtype", *dtypes)
        super().__post_init__()

    @property
    def parts(self) -> tuple[Basis, Basis]:
        """The two factors."""
        return self.first, self.second

    @property
    def num_bases(self) -> int:
        return self.first.num_bases * self.second.num_bases

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

    is_leaf: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_product(self.first.size, self.second.size)

    @property
    def size(self) -> tuple[int, int]:
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
        return Basis.mean(self, dtype)

    def transpose(self) -> Basis:
        """(A_i B_j)ᵀ = B_jᵀ A_iᵀ: the transposes composed, with their labels exchanged."""
        transposed = Composed(self.second.transpose(), self.first.transpose())
        count, other = self.first.num_bases, self.second.num_bases
        if 1 in (count, other):
            return transposed
        return transposed.select([j * count + i for i in range(count) for j in range(other)])

    def picked(self, labels: Sequence[int]) -> Basis:
        """Products of selected labels of both factors, in the order of ``labels``."""
        pairs = [divmod(label, self.second.num_bases) for label in labels]
        runs = [(i, [j for _, j in run]) for i, run in groupby(pairs, lambda pair: pair[0])]
        products = []
        for seconds, same in groupby(runs, lambda run: run[1]):
            firsts = [i for i, _ in same]
            products.append(Composed(self.first.select(firsts), self.second.select(seconds)))
        return products[0] if len(products) == 1 else Stacked(tuple(products))

    @property
    def shares_nodes(self) -> bool:
        """Whether the matrices are square, so that inner nodes may be numbered as outer ones."""
        return self.first.size[0] == self.first.size[1]

    def factors(self) -> list[Basis]:
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

    def diagonal_block(self, nodes: Tensor) -> Basis:
        """A_k[nodes, nodes] of components: the products of blocks, where both have these nodes."""
        square = all(part.size[0] == part.size[1] for part in (self.first, self.second))
        if not square:
            return self.restricted(nodes, nodes)
        return Composed(self.first.diagonal_block(nodes), self.second.diagonal_block(nodes))

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
    sides = factors[:half], factors[half:]
    return Composed(*[side[0] if len(side) == 1 else _balanced(side) for side in sides])


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

    @property
    def shares_nodes(self) -> bool:
        """False: nodes are pairs of those of the factors."""
        return False

    def picked(self, labels: Sequence[int]) -> Basis:
        """The selected labels of the composition."""
        return self.simpler().picked(labels)

    def simpler(self) -> Composed:
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

    def grids(self) -> tuple[Shape, Shape] | None:
        """The axes of the first, then those of the second."""
        first, second = self.first.grids(), self.second.grids()
        if first is None or second is None:
            return None
        return first[0] + second[0], first[1] + second[1]


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Repeated(Derived):
    """I ⊗ A_k ⊗ I: ``before``·``after`` disjoint copies of a basis.

    Node m of copy (b, a) has the number (b·M + m)·``after`` + a.
    """

    is_leaf: ClassVar[bool] = True

    before: int = 1
    after: int = 1

    def picked(self, labels: Sequence[int]) -> Basis:
        """Copies of the selected labels of the base."""
        return replace(self, base=self.base.select(labels))

    @property
    def shares_nodes(self) -> bool:
        """False: each copy has nodes of its own."""
        return False

    def shape_class(self) -> Hashable:
        return self.before, self.after, super().shape_class()

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets of all copies."""
        copies = self.before * self.after
        return self.base.size[0] * copies, self.base.size[1] * copies

    def edges(self) -> EdgeBasis:
        """The edges of all copies."""
        before, after = (
            EdgeBasis(Pattern.build(torch.arange(n, device=self.device).expand(2, -1), size=(n, n)))
            for n in (self.before, self.after)
        )
        return kronecker_edges(kronecker_edges(before, self.base.edges()), after)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) of all copies."""
        dense = self.base.to_dense(self.dtype or dtype)
        left, right = (torch.eye(n).to(dense) for n in (self.before, self.after))
        product = torch.einsum("ab,kmn,cd->kamcbnd", left, dense, right)
        return product.reshape(self.num_bases, *self.size)

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

    def __repr__(self) -> str:
        return f"Repeated({self.before} x {self.base!r} x {self.after})"
