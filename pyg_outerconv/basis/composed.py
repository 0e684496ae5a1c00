"""Composition: the products of the matrices of two bases, stored as the two factors."""

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

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
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
