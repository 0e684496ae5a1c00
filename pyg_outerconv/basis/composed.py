"""Composition: the products of two bases' matrices, held as the two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .base import Basis, TensorMap, nest
from .edges import EdgeBasis
from .product import check_product, compose_edges


@dataclass(frozen=True, eq=False, repr=False)
class Pair(Basis):
    """What is made of two bases, its labels pairs: (i, j) is label i·K₂ + j.

    Attributes:
        first: K₁ matrices A_i.
        second: K₂ matrices B_j.
        plans: contraction orders that were chosen, kept by what they depend on.

    Raises:
        TypeError: they are not bases of one type.
    """

    hides_edges: ClassVar[bool] = True
    levels: ClassVar[int] = 1  # of nesting

    first: Basis
    second: Basis
    plans: dict[Any, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        for part in (self.first, self.second):
            if not isinstance(part, Basis):
                raise RefusedType(refusal("a product is of bases", "a Basis", type(part).__name__))
        dtypes = (self.first.dtype, self.second.dtype)
        if None not in dtypes and dtypes[0] != dtypes[1]:
            raise RefusedType(refusal("bases in a product must have one type", *dtypes))
        nest(self, self.first, self.second, levels=self.levels)

    @property
    def num_bases(self) -> int:
        """K₁·K₂."""
        return self.first.num_bases * self.second.num_bases

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.first.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the values, None if both hold ones."""
        return self.first.dtype or self.second.dtype

    @property
    def learns(self) -> bool:
        """Whether values of either require a gradient."""
        return self.first.learns or self.second.learns

    def swapped(self) -> tuple[int, ...]:
        """For each label (i, j) of this one, (j, i) of a product in which the two change places."""
        ours, theirs = self.first.num_bases, self.second.num_bases
        return tuple(j * ours + i for i in range(ours) for j in range(theirs))

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: no choice of orders, which another machine may make otherwise."""
        return {**vars(self), "plans": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._head()}, {self.first!r}, {self.second!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Composed(Pair):
    r"""The products of A's and B's matrices.

    .. math:: C_{i K_2 + j} = A_i B_j, \qquad \text{size } (M, N)

    A convolution over A followed by one over B, linear both, is one over the composition, with
    parameters that multiply too (Proposition 2 of *Convolution is outer product*): first A, then
    B. Only the two are held; products of sparse matrices can be nearly dense.

    Attributes:
        first: A, of size (M, L).
        second: B, of size (L, N).

    Raises:
        TypeError: they are not bases of one type.
        ValueError: their sizes do not fit.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_product(self.first.size, self.second.size)

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.first.size[0], self.second.size[1]

    def edges(self) -> EdgeBasis:
        """An edge for every path m → l → n; those that share ends and label are merged."""
        return compose_edges(self.first.edges(), self.second.edges())

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) by products of dense matrices."""
        dtype = self.dtype or dtype
        a, b = self.first.to_dense(dtype), self.second.to_dense(dtype)
        return torch.einsum("iml,jln->ijmn", a, b).flatten(0, 1)

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """Refused: which edges a product has is known only once it is explicit.

        Raises:
            ValueError: always; ``edges().mean()`` says that the edges are wanted.
        """
        raise RefusedValue(
            refusal(
                "a mean within labels counts edges, which a product does not hold",
                "an explicit basis: basis.edges()",
                repr(self),
            )
        )

    def transpose(self) -> Basis:
        """(A_i B_j)ᵀ = B_jᵀ A_iᵀ: the transposes composed, with labels of pairs swapped."""
        turned = Composed(self.second.transpose(), self.first.transpose())
        if 1 in (self.first.num_bases, self.second.num_bases):
            return turned
        return turned.select(self.swapped())

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Composed:
        """See :meth:`Basis.map`."""
        return Composed(self.first.map(index_map, value_map), self.second.map(index_map, value_map))


LONG = 10  # levels, from which on a chain of products is held as a balanced tree


def composed(first: Basis, second: Basis) -> Composed:
    """``first``, then ``second``; products are associative, and so are their labels.

    Raises:
        TypeError, ValueError: see :class:`Composed`.
    """
    made = isinstance(first, Basis) and isinstance(second, Basis)
    if not made or max(first.nesting, second.nesting) < LONG:
        return Composed(first, second)
    check_product(first.size, second.size)
    return _balanced([*_factors(first), *_factors(second)])


def _factors(basis: Basis) -> list[Basis]:
    if isinstance(basis, Composed):
        return [*_factors(basis.first), *_factors(basis.second)]
    return [basis]


def _balanced(factors: list[Basis]) -> Composed:
    half = len(factors) // 2
    first, second = factors[:half], factors[half:]
    return Composed(
        first[0] if len(first) == 1 else _balanced(first),
        second[0] if len(second) == 1 else _balanced(second),
    )
