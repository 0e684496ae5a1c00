"""Kronecker products of bases, held as the two; and many copies of a basis side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import TensorMap
from .composed import Composed, Pair
from .derived import Derived
from .edges import EdgeBasis
from .pattern import Pattern


@dataclass(frozen=True, eq=False, repr=False)
class Kronecker(Pair):
    r"""A_i ⊗ B_j: two structures at right angles, as the two axes of a grid are.

    .. math:: C_{i K_2 + j} = A_i \otimes B_j, \qquad \text{size } (M_1 M_2, N_1 N_2)

    Node (a, b) is a·M₂ + b: the second runs fastest. Transposes are products of transposes.

    Attributes:
        first: A, of size (M₁, N₁).
        second: B, of size (M₂, N₂).

    Raises:
        TypeError: they are not bases of one type.
    """

    levels: ClassVar[int] = 2  # those of the chain

    @property
    def size(self) -> tuple[int, int]:
        """(M₁·M₂, N₁·N₂)."""
        a, b = self.first.size, self.second.size
        return a[0] * b[0], a[1] * b[1]

    def chain(self) -> Composed:
        """(A ⊗ I)(I ⊗ B): along one axis, then along the other."""
        return Composed(
            Repeated(self.first, after=self.second.size[0]),
            Repeated(self.second, before=self.first.size[1]),
            plans=self.plans,
        )

    def edges(self) -> EdgeBasis:
        """An edge for each pair of an edge of A and one of B."""
        return kronecker_edges(self.first.edges(), self.second.edges())

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) of the dense factors."""
        dtype = self.dtype or dtype
        a, b = self.first.to_dense(dtype), self.second.to_dense(dtype)
        product = torch.einsum("imn,jab->ijmanb", a, b)
        return product.reshape(self.num_bases, *self.size)

    def mean(self, dtype: torch.dtype | None = None) -> Kronecker:
        """The product of the means: numbers of edges multiply as well."""
        dtype = self.dtype or dtype
        return Kronecker(self.first.mean(dtype), self.second.mean(dtype))

    def transpose(self) -> Kronecker:
        """A_iᵀ ⊗ B_jᵀ, labels as they were."""
        return Kronecker(self.first.transpose(), self.second.transpose())

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Kronecker:
        """See :meth:`Basis.map`."""
        return Kronecker(
            self.first.map(index_map, value_map), self.second.map(index_map, value_map)
        )


@dataclass(frozen=True, eq=False, repr=False)
class Repeated(Derived):
    """I ⊗ A_k ⊗ I: ``before``·``after`` copies of a basis, which have no edges between them.

    Node m of copy (b, a) is (b·M + m)·``after`` + a.
    """

    before: int = 1
    after: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """The copies' sources and targets together."""
        copies = self.before * self.after
        return self.base.size[0] * copies, self.base.size[1] * copies

    def edges(self) -> EdgeBasis:
        """The edges of every copy."""
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

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Repeated:
        """See :meth:`Basis.map`."""
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
