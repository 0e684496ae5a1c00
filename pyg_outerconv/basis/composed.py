"""Composition: the products of two bases' matrices, held as the two."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .base import Basis, nest
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .makers import makes
from .product import check_product, compose_edges

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf


@dataclass(frozen=True, eq=False, repr=False)
class Pair(Basis):
    """What is made of two bases, its labels pairs: (i, j) is label i·K₂ + j.

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

    @property
    def shares_nodes(self) -> bool:
        """Whether nodes of the factors are those of the product, at both ends."""
        return False

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """See :meth:`.Kind.with_edges`: those of both factors."""
        if same_nodes and not self.shares_nodes:
            return change(self.edges())
        first, second = (part.with_edges(change, same_nodes) for part in (self.first, self.second))
        return replace(self, first=first, second=second)

    def transposed(self) -> Basis:
        """The transpose, which is nothing put off."""
        return self.transpose()

    def shape_class(self) -> Hashable:
        """See :meth:`Basis.shape_class`."""
        return type(self), self.first.shape_class(), self.second.shape_class()

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
        transposed = Composed(self.second.transpose(), self.first.transpose())
        if 1 in (self.first.num_bases, self.second.num_bases):
            return transposed
        return transposed.select(self.swapped())

    @property
    def shares_nodes(self) -> bool:
        """Whether matrices are square: nodes in the middle may be named as those at the ends."""
        return self.first.size[0] == self.first.size[1]

    def factors(self) -> list[Basis]:
        """Those of both; see :meth:`.Kind.factors`."""
        return [*self.first.factors(), *self.second.factors()]

    def grids(self) -> tuple[Shape, Shape] | None:
        """From the inputs of the first to the outputs of the second."""
        first, second = self.first.grids(), self.second.grids()
        return None if first is None or second is None else (first[0], second[1])

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Composed:
        """See :meth:`.Kind.restricted`: rows of the first, columns of the second."""
        first, second = self.first, self.second
        return Composed(
            first if sources is None else first.restricted(sources, None),
            second if targets is None else second.restricted(None, targets),
        )

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """See :meth:`.Kind.reached`.

        One way through both for all labels of the first that come with the same of the second.
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
        """See :meth:`.Kind.propagate`: along one factor, then along the other."""
        h = self.second.propagate(self.first.propagate(x))  # (N, K₂, K₁, *batch, P)
        return h.transpose(1, 2).flatten(1, 2)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """See :meth:`.Kind.products`: those of both factors."""
        between = (self.first.size[1], self.first.num_bases, *shape[1:])
        then = self.second.products(between, learns or self.first.learns)
        return [*self.first.products(shape, learns), *then]

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Itself: orders know products."""
        return [(self, theta)]

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Composed:
        """See :meth:`Basis.map`."""
        return Composed(self.first.map(index_map, value_map), self.second.map(index_map, value_map))


LONG = 10  # levels, from which on a chain of products is held as a balanced tree


@makes("compose")
def composed(first: Basis, second: Basis) -> Composed:
    """``first``, then ``second``; products are associative, and so are their labels.

    Raises:
        TypeError, ValueError: see :class:`Composed`.
    """
    made = isinstance(first, Basis) and isinstance(second, Basis)
    if not made or max(first.nesting, second.nesting) < LONG:
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
