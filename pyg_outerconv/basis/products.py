"""Products of two bases, stored as the two factors; disjoint copies; some rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType
from ..kernels.lasting import lasting
from ..memo import cached_property
from ..signatures import typed
from .algebra import Compound, Derived, Stacked, averaged_parts
from .base import Basis, picked
from .edge_products import check_product, compose_edges, kronecker_edges
from .edge_sets import averaged, reached
from .edges import EdgeBasis
from .eye import Eye
from .pattern import Pattern
from .registry import ByKind, makes

LONG = 10  # number of levels from which a chain of products is stored as a balanced tree


@dataclass(frozen=True, eq=False, repr=False)
class BinaryProduct(Compound):
    """A basis of two factors A and B, whose labels are pairs: (i, j) is label i·K₂ + j."""

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
        dtype = self.dtype or dtype
        a, b = self.first.to_dense(dtype), self.second.to_dense(dtype)
        return torch.einsum("iml,jln->ijmn", a, b).flatten(0, 1)

    def transpose(self) -> Basis:
        """(A_i B_j)ᵀ = B_jᵀ A_iᵀ: the transposes composed, with their labels exchanged."""
        transposed = Composed(self.second.transpose(), self.first.transpose())
        count, other = self.first.num_bases, self.second.num_bases
        if 1 in (count, other):
            return transposed
        return transposed.select([j * count + i for i in range(count) for j in range(other)])

    def groups(self, labels: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Labels of both factors whose products are the given labels, in their order."""
        pairs = [divmod(label, self.second.num_bases) for label in labels]
        runs = [(i, [j for _, j in run]) for i, run in groupby(pairs, lambda pair: pair[0])]
        for seconds, same in groupby(runs, lambda run: run[1]):
            yield [i for i, _ in same], seconds

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Composed:
        """A_k[sources, targets]: rows of the first, columns of the second."""
        first, second = self.first, self.second
        return Composed(
            first if sources is None else first.restricted(sources, None),
            second if targets is None else second.restricted(None, targets),
        )

    def propagate(self, x: Tensor) -> Tensor:
        h = self.second.propagate(self.first.propagate(x))  # (N, K₂, K₁, *batch, P)
        return h.transpose(1, 2).flatten(1, 2)


@picked.register
def _(basis: Composed, labels: Sequence[int]) -> Basis:
    """Products of selected labels of both factors, in the order of ``labels``."""
    products = [
        Composed(basis.first.select(firsts), basis.second.select(seconds))
        for firsts, seconds in basis.groups(labels)
    ]
    return products[0] if len(products) == 1 else Stacked(tuple(products))


@reached.register
def _(basis: Composed, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    out = seen.new_zeros(basis.size[transposed])
    for firsts, seconds in basis.groups(sorted(set(labels))):
        steps = [(basis.first, firsts), (basis.second, seconds)]
        there = seen
        for factor, own in steps if transposed else reversed(steps):
            there = reached(factor, there, own, transposed)
        out = out | there
    return out


def factors(basis: Basis) -> list[Basis]:
    """The factors of a (nested) product, first to last; the basis alone if it is no product."""
    if not isinstance(basis, Composed):
        return [basis]
    return [*factors(basis.first), *factors(basis.second)]


@makes("compose")
def composed(first: Basis, second: Basis) -> Composed:
    """Compose two bases; a long chain becomes a balanced tree, which has the same labels."""
    are_bases = isinstance(first, Basis) and isinstance(second, Basis)
    if not are_bases or max(first.nesting, second.nesting) < LONG:
        return Composed(first, second)
    check_product(first.size, second.size)
    return _balanced([*factors(first), *factors(second)])


def _balanced(factors: list[Basis]) -> Composed:
    half = len(factors) // 2
    sides = factors[:half], factors[half:]
    return Composed(*[side[0] if len(side) == 1 else _balanced(side) for side in sides])


@makes("kron")
@dataclass(frozen=True, eq=False, repr=False)
class Kronecker(BinaryProduct):
    r"""The Kronecker products A_i ⊠ B_j, such as those of the two axes of a grid.

    .. math:: C_{i K_2 + j} = A_i \boxtimes B_j, \qquad \text{size } (M_1 M_2, N_1 N_2)

    Node (a, b) has the number a·M₂ + b: the second factor runs fastest.

    Attributes:
        first: A, of size (M₁, N₁).
        second: B, of size (M₂, N₂).

    Raises:
        TypeError: they are not bases of one type.
    """

    levels: ClassVar[int] = 2  # as many as its composition has

    @property
    def size(self) -> tuple[int, int]:
        a, b = self.first.size, self.second.size
        return a[0] * b[0], a[1] * b[1]

    def simpler(self) -> Composed:
        """The composition (A ⊠ I)(I ⊠ B): along one axis, then along the other."""
        return Composed(
            Repeated(self.first, after=self.second.size[0]),
            Repeated(self.second, before=self.first.size[1]),
        )

    def edges(self) -> EdgeBasis:
        return kronecker_edges(self.first.edges(), self.second.edges())

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        dtype = self.dtype or dtype
        a, b = self.first.to_dense(dtype), self.second.to_dense(dtype)
        product = torch.einsum("imn,jab->ijmanb", a, b)
        return product.reshape(self.num_bases, *self.size)


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Repeated(Derived):
    """I ⊠ A_k ⊠ I: ``before``·``after`` disjoint copies of a basis.

    Node m of copy (b, a) has the number (b·M + m)·``after`` + a.
    """

    is_leaf: ClassVar[bool] = True

    before: int = 1
    after: int = 1

    @property
    def size(self) -> tuple[int, int]:
        copies = self.before * self.after
        return self.base.size[0] * copies, self.base.size[1] * copies

    def edges(self) -> EdgeBasis:
        nodes = (torch.arange(n, device=self.device) for n in (self.before, self.after))
        before, after = (_selection_matrix(n, n.numel()) for n in nodes)
        return kronecker_edges(kronecker_edges(before, self.base.edges()), after)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        dense = self.base.to_dense(self.dtype or dtype)
        left, right = (torch.eye(n).to(dense) for n in (self.before, self.after))
        product = torch.einsum("ab,kmn,cd->kamcbnd", left, dense, right)
        return product.reshape(self.num_bases, *self.size)

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X: copies are items of a batch."""
        copies = x.unflatten(0, (self.before, self.base.size[0], self.after)).movedim(1, 0)
        h = self.base.propagate(copies)  # (N, K, before, after, *batch, P)
        return h.permute(2, 0, 3, 1, *range(4, h.dim())).flatten(0, 2)


@picked.register
def _(basis: Repeated, labels: Sequence[int]) -> Repeated:
    return replace(basis, base=basis.base.select(labels))


averaged.register(averaged_parts, Kronecker)
averaged.register(averaged_parts, Repeated)


@reached.register
def _(basis: Repeated, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    here, there = basis.base.size[not transposed], basis.base.size[transposed]
    copies = seen.view(basis.before, here, basis.after).transpose(1, 2).flatten(0, 1)
    out = seen.new_zeros(copies.size(0), there)
    for copy in copies.any(1).nonzero().view(-1).tolist():
        out[copy] = reached(basis.base, copies[copy], labels, transposed)
    return out.view(basis.before, basis.after, there).transpose(1, 2).flatten()


# Rows and columns ---------------------------------------------------------------------------------


@typed
@makes("restrict")
@dataclass(frozen=True, eq=False, repr=False)
class Restricted(Derived):
    """A_k[sources, targets] for a rule that cannot itself be restricted.

    Attributes:
        base: the basis of size (M, N).
        sources: (M',) distinct indices, or None for all.
        targets: (N',) distinct indices, or None for all.
    """

    levels: ClassVar[int] = 2  # as many as its product has

    sources: Tensor | None
    targets: Tensor | None

    @property
    def shares_nodes(self) -> bool:
        """False: even if the base has no more nodes, they have other numbers."""
        return False

    @property
    def size(self) -> tuple[int, int]:
        rows, columns = self.base.size
        return (
            rows if self.sources is None else self.sources.numel(),
            columns if self.targets is None else self.targets.numel(),
        )

    @cached_property
    def product(self) -> Basis:
        """The composition S A_k T, with selection matrices S (M', M) and T (N, N')."""
        out, (rows, columns) = self.base, self.base.size
        if self.sources is not None:
            out = Composed(_selection_matrix(self.sources, rows).transposed_edges(), out)
        if self.targets is None:
            return out
        return Composed(out, _selection_matrix(self.targets, columns))

    def simpler(self) -> Basis:
        return self.product

    def edges(self) -> EdgeBasis:
        return self.base.edges().restricted(self.sources, self.targets)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        dense = self.base.to_dense(dtype)
        dense = dense if self.sources is None else dense.index_select(1, self.sources)
        return dense if self.targets is None else dense.index_select(2, self.targets)

    def transpose(self) -> Basis:
        return Restricted(self.base.transpose(), self.targets, self.sources)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Restricted:
        """A_k[sources, targets]: fewer rows and columns of the same base."""
        ends = _within(self.sources, sources), _within(self.targets, targets)
        return Restricted(self.base, *ends)


@ByKind
def diagonal_block(basis: Basis, nodes: Tensor) -> Basis:
    """A_k[nodes, nodes] for distinct nodes that no edge joins to others, as whole components.

    That there is no such edge is not checked. Powers and products then are those of the blocks,
    so a rule remains a rule.
    """
    return basis.restricted(nodes, nodes)


@diagonal_block.register
def _(basis: Compound, nodes: Tensor) -> Basis:
    if not basis.shares_nodes:
        return basis.restricted(nodes, nodes)
    return basis.with_parts(lambda part: diagonal_block(part, nodes))


@diagonal_block.register
def _(basis: Eye, nodes: Tensor) -> Basis:
    if basis.shape[0] != basis.shape[1]:
        return basis.restricted(nodes, nodes)
    return Eye((nodes.numel(), nodes.numel()), basis.on)


def _within(outer: Tensor | None, inner: Tensor | None) -> Tensor | None:
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer.index_select(0, inner)


def _selection_matrix(nodes: Tensor, count: int) -> EdgeBasis:
    """The (count, n) matrix with a one at ``[nodes[i], i]`` for each i."""
    places = torch.arange(nodes.numel(), device=nodes.device)
    with lasting(nodes):
        return EdgeBasis(Pattern.build(torch.stack([nodes, places]), size=(count, nodes.numel())))
