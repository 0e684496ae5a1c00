"""The algebra of bases: stacks, transposes, and scaled, selected or mixed labels.

Each operation is a basis made of others, its parts. It stores these alone, and says how features
are propagated through them, what their edges are, and what becomes of Θ. Products are in
``products.py``. Their names are participles (``Stacked``), those of families nouns (``Stack``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from ..errors import RefusedType, RefusedValue
from ..graph.checks import Labels, chosen_labels
from ..kernels.lasting import lasting
from ..memo import cached_property, constant
from ..signatures import typed
from ..theta import Theta
from .base import Basis, Leaf, picked
from .edge_sets import averaged, hidden_part, reached, with_edges
from .edges import EdgeBasis, no_edges
from .eye import Eye
from .pattern import Pattern
from .registry import ByKind, makes, with_contents

DEEPEST = 50
"""Bound on the nesting of bases. Each level is a nested call, and Python's stack holds about 1000
calls."""

MOST_PIECES = 2**14
"""Bound on the number of parts of a basis, which doubles if a basis is combined with itself."""


@dataclass(frozen=True, eq=False, repr=False)
class Compound(Basis):
    """A basis made of others, its parts; methods are applied to these unless it overrides them."""

    levels: ClassVar[int] = 1  # of nesting that it adds to that of its parts

    def __post_init__(self) -> None:
        nesting = self.levels + max(part.nesting for part in self.parts)
        if nesting > DEEPEST:
            raise RefusedValue(
                "the nesting of bases is limited (basis.edges() has none)",
                f"at most {DEEPEST} levels",
                nesting,
            )
        pieces = sum(part.pieces for part in self.parts)
        if pieces > MOST_PIECES:
            raise RefusedValue(
                "the number of parts of a basis is limited, repetitions counted",
                f"at most {MOST_PIECES} (basis.edges() is one)",
                pieces,
            )
        vars(self)["nesting"], vars(self)["pieces"] = nesting, pieces

    if TYPE_CHECKING:  # a field or a property

        @property
        def parts(self) -> tuple[Basis, ...]:
            """The bases that it is made of."""

    @property
    def shares_nodes(self) -> bool:
        """Whether sources and targets of all parts are the nodes of the basis."""
        return all(part.size == self.size for part in self.parts)

    def with_parts(self, change: Callable[[Basis], Basis]) -> Self:
        """The same combination of other parts."""
        return with_contents(self, lambda part: change(part) if isinstance(part, Basis) else part)

    @property
    def size(self) -> tuple[int, int]:
        return self.parts[0].size

    def transpose(self) -> Basis:
        return self.with_parts(lambda part: part.transpose())

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        if not self.shares_nodes:
            return super().restricted(sources, targets)
        return self.with_parts(lambda part: part.restricted(sources, targets))


@picked.register
def _(basis: Compound, labels: Sequence[int]) -> Basis | None:
    return basis.simpler().select(labels)


@with_edges.register
def _(basis: Compound, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False) -> Basis:
    if same_nodes and not basis.shares_nodes:
        return change(basis.edges())
    return basis.with_parts(lambda part: with_edges(part, change, same_nodes))


def averaged_parts(basis: Compound, dtype: torch.dtype | None = None) -> Basis:
    """The same combination of the means of its parts, where each edge is one of a part."""
    dtype = basis.dtype or dtype
    return basis.with_parts(lambda part: part.mean(dtype))


def is_identity(basis: Basis) -> bool:
    """Whether all matrices are multiples of identities, with at most one entry per row."""
    if isinstance(basis, Compound):
        return all(map(is_identity, basis.parts))
    return isinstance(basis, Eye)


@makes("stack")
@dataclass(frozen=True, eq=False, repr=False)
class Stacked(Compound):
    """The concatenation of the matrices of several bases: K = K₁ + K₂ + …

    Nested stacks are flattened.

    Raises:
        ValueError: there is no part, or the parts differ in size or dtype.
        TypeError: a part is not a basis.
    """

    parts: tuple[Basis, ...]

    def __post_init__(self) -> None:
        if self.parts == ():
            raise RefusedValue("a stack needs a basis", "at least one", "none")
        for part in self.parts if isinstance(self.parts, tuple) else (self.parts,):
            if not isinstance(part, Basis):
                raise RefusedType(
                    "a stack takes bases", "a Basis; families go to Stack", repr(part)
                )
        # A tracer's sizes have no hash.
        sizes: list[Any] = [part.size for part in self.parts]
        dtypes: list[Any] = [part.dtype for part in self.parts if part.dtype is not None]
        for name, attributes in (("size", sizes), ("dtype", dtypes)):
            if any(one != attributes[0] for one in attributes):
                got = sorted({one if name == "size" else str(one) for one in attributes})
                raise RefusedValue(f"bases in a stack must have one {name}", attributes[0], got)
        parts = [part.parts if isinstance(part, Stacked) else (part,) for part in self.parts]
        vars(self)["parts"] = tuple(chain.from_iterable(parts))
        super().__post_init__()

    @property
    def num_bases(self) -> int:
        return sum(part.num_bases for part in self.parts)

    def ranges(self) -> Iterator[tuple[Basis, int, int]]:
        """Each part with the first of its labels, and the one past its last."""
        start = 0
        for part in self.parts:
            yield part, start, start + part.num_bases
            start += part.num_bases

    @cached_property
    def _pattern(self) -> Pattern:
        """The pattern of all edges, with the labels of each part after those of earlier parts."""
        parts = [part.edges() for part in self.parts]
        with lasting(parts[0].pattern.source):
            labels = [
                part.label.long() + start
                for part, (_, start, _) in zip(parts, self.ranges(), strict=True)
            ]
            origins = [part.pattern.origin for part in parts]
            origin_tensors = [origin for origin in origins if origin is not None]
            return Pattern.build(
                torch.cat([part.index.long() for part in parts], dim=1),
                torch.cat(labels),
                size=self.size,
                num_labels=self.num_bases,
                origin=torch.cat(origin_tensors) if len(origin_tensors) == len(origins) else None,
            )

    def edges(self) -> EdgeBasis:
        parts = [part.edges() for part in self.parts]
        # Powers of edges without values have values: the number of walks between two nodes.
        dtype = self.dtype or next((part.dtype for part in parts if part.dtype is not None), None)
        if dtype is None:
            return EdgeBasis(self._pattern)
        value = torch.cat([part.values(dtype) for part in parts])
        return EdgeBasis(self._pattern, self._pattern.sort_values(value))

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        return torch.cat([part.to_dense(self.dtype or dtype) for part in self.parts])

    def propagate(self, x: Tensor) -> Tensor:
        return torch.cat([part.propagate(x) for part in self.parts], dim=1)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The leaves of all parts, with Θ split by label."""
        return [
            leaf
            for part, start, end in self.ranges()
            for leaf in part.absorb(theta.labels(start, end), aggr)
        ]


@picked.register
def _(basis: Stacked, labels: Sequence[int]) -> Basis:
    """A stack of the selected labels of the parts, in the order of ``labels``."""
    runs: list[tuple[int, Basis, list[int]]] = []  # a loop, because compilers trace no groupby
    place = [(start, part) for part, start, end in basis.ranges() for _ in range(start, end)]
    for label in labels:
        start, part = place[label]
        if not runs or runs[-1][0] != start:
            runs.append((start, part, []))
        runs[-1][2].append(label - start)
    return Stacked(tuple([selection(part, own) for _, part, own in runs]))


@reached.register
def _(basis: Stacked, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    out = seen.new_zeros(basis.size[transposed])
    for part, start, end in basis.ranges():
        mine = [k - start for k in labels if start <= k < end]
        out = out | reached(part, seen, mine, transposed)
    return out


@dataclass(frozen=True, eq=False, repr=False)
class Derived(Compound):
    """A basis derived from ``base``, whose properties it has unless it overrides them."""

    base: Basis

    @property
    def parts(self) -> tuple[Basis, ...]:
        """The base alone."""
        return (self.base,)

    @property
    def num_bases(self) -> int:
        return self.base.num_bases


@typed
@makes("transpose")
@dataclass(frozen=True, eq=False, repr=False)
class Transposed(Derived):
    """A_kᵀ for every k, of size (N, M), of a basis without parts."""

    levels: ClassVar[int] = 0  # transposes cancel in pairs, so they cannot nest

    @property
    def size(self) -> tuple[int, int]:
        return self.base.size[::-1]

    def simpler(self) -> Basis:
        return transposed(self.base)

    def edges(self) -> EdgeBasis:
        return self.base.edges().transposed_edges()

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        return self.base.to_dense(dtype).transpose(1, 2)

    def transpose(self) -> Basis:
        return self.base

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        return self.base.restricted(targets, sources).transpose()


@ByKind
def transposed(basis: Basis) -> Basis:
    """The transpose computed now; :meth:`.Basis.transpose` may return a lazy one."""
    turned = basis.transpose()
    is_lazy = isinstance(turned, Transposed) and turned.base is basis
    return basis.edges().transposed_edges() if is_lazy else turned


@averaged.register
def _(basis: Transposed, dtype: torch.dtype | None = None) -> Basis:
    return basis.edges().mean(dtype)  # a target is a source of the base


@reached.register
def _(basis: Transposed, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    return reached(basis.base, seen, labels, not transposed)


# Mixed labels -------------------------------------------------------------------------------------


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Mixed(Derived):
    """B_j = Σ_k C[j, k] A_k for a matrix C (J, K), with which Θ is multiplied instead.

    Attributes:
        base: the A_k.
        matrix: C, as short as it can be said: J labels k, whose A_k the B_j are; numbers (K,) on
            its diagonal, which scale labels; or numbers (J, K). Numbers may require gradients.
        number: what all numbers on the diagonal are, if labels are scaled by a Python number:
            nested scales by these are multiplied into one, whereas tensors, which may require
            gradients, are kept apart.
    """

    matrix: Tensor | tuple[int, ...]
    number: float | None = None

    @property
    def num_bases(self) -> int:
        return self.matrix.size(0) if isinstance(self.matrix, Tensor) else len(self.matrix)

    @property
    def dtype(self) -> torch.dtype | None:
        return self.base.dtype or getattr(self.matrix, "dtype", None)  # of integers, too

    @property
    def is_full(self) -> bool:
        """Whether C is (J, K) numbers."""
        return isinstance(self.matrix, Tensor) and self.matrix.dim() == 2

    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        """Σ_k C[j, k] h_k for a tensor with K entries along a dimension."""
        matrix = self.matrix
        if isinstance(matrix, tuple):
            return h.index_select(dim, constant(matrix, torch.long, h.device))
        matrix = matrix.to(h.dtype)
        if matrix.dim() == 1:
            return h * matrix.view(-1, *(1,) * (h.dim() - dim - 1))
        return torch.tensordot(matrix, h, dims=([1], [dim])).movedim(0, dim)

    def of_theta(self, theta: Theta) -> Theta:
        """Σ_j C[j, k] Θ_j for each of the K labels."""
        matrix = self.matrix
        if isinstance(matrix, tuple):
            return theta.gathered(constant(matrix, torch.long, theta.device), self.base.num_bases)
        return theta.scaled(matrix) if matrix.dim() == 1 else theta.mixed(matrix)

    def base_labels(self, labels: Sequence[int]) -> Sequence[int]:
        """The labels k of the base with a C[j, k] for any of these j."""
        if isinstance(self.matrix, tuple):
            return [self.matrix[label] for label in labels]
        return range(self.base.num_bases if labels else 0) if self.is_full else labels

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        return self.of_labels(self.base.to_dense(self.dtype or dtype), 0)

    def propagate(self, x: Tensor) -> Tensor:
        return self.of_labels(self.base.propagate(x), 1)

    def edges(self) -> EdgeBasis:
        """The edges of the base; of a full C one for each label and (source, target) pair."""
        edges, matrix = self.base.edges(), self.matrix
        if isinstance(matrix, tuple):
            value, (place, pattern) = edges.value, self._selected
            return EdgeBasis(pattern, None if value is None else value.index_select(0, place))
        if matrix.dim() == 1:
            factor = matrix.to(self.dtype).index_select(0, edges.label)
            return edges.with_values(edges.values(factor.dtype) * factor)
        count, place, pattern = self._joined
        share = matrix.t().index_select(0, edges.label)  # (E, J)
        value = edges.values(matrix.dtype).unsqueeze(1) * share
        sums = value.new_zeros(count, self.num_bases).index_add(0, place, value)
        return EdgeBasis(pattern, pattern.sort_values(sums.flatten()))

    @cached_property
    def _selected(self) -> tuple[Tensor, Pattern]:
        """The positions of the selected edges in the base, in the order of their new pattern."""
        with torch.inference_mode(False):  # cached tensors must serve training too
            edges = self.base.edges()
            groups = [(edges.label == label).nonzero().view(-1) for label in self.matrix]
            keep = torch.cat(groups) if groups else edges.label.new_zeros(0).long()
            label = torch.cat([torch.full_like(g, k) for k, g in enumerate(groups)] or [keep])
            pattern = Pattern.build(
                edges.index[:, keep],
                label,
                size=self.size,
                num_labels=self.num_bases,
                origin=None if edges.pattern.origin is None else edges.pattern.origin[keep],
            )
            return keep.index_select(0, pattern.order), pattern

    @cached_property
    def _joined(self) -> tuple[int, Tensor, Pattern]:
        """The number of (source, target) pairs, the pair of each edge (E,), the mixed pattern."""
        edges, rows = self.base.edges(), max(self.size[0], 1)
        with lasting(edges.pattern.source):
            key = edges.pattern.target.long() * rows + edges.pattern.source.long()
            pairs, place = key.unique(return_inverse=True)
            ends = torch.stack([pairs % rows, pairs // rows])
            label = torch.arange(self.num_bases, device=key.device)
            pattern = Pattern.build(
                ends.repeat_interleave(self.num_bases, dim=1),
                label.repeat(pairs.numel()),
                size=self.size,
                num_labels=self.num_bases,
            )
            return pairs.numel(), place, pattern

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The leaves of the base, with Cᵀ Θ, which is cheaper than to mix edges.

        Of a selection only those of the selected labels, for NaN passes through a Θ_k of zeros;
        other bases, such as heads, get them all. Inputs are compared by edges of mixed values: a
        negative number exchanges maxima and minima, and sums join pairs that any label joins. But
        identities have one input each, and bases that hide their edges are refused later.
        """
        base, matrix = self.base, self.matrix
        if isinstance(matrix, tuple):
            if not matrix:
                return [(no_edges(self.size, self.device), theta)]
            if isinstance(base, EdgeBasis):
                return [(self.edges(), theta)]
            # What labels are multiplied with may learn, and must not be kept.
            few = picked(base, matrix) if isinstance(base, Mixed) else self._picked
            base, theta = (base, self.of_theta(theta)) if few is None else (few, theta)
            return base.absorb(theta, aggr)
        is_full = matrix.dim() == 2
        if is_full and not matrix.size(0):
            return [(no_edges(self.size, self.device), theta)]
        compares = aggr != "sum" if is_full else aggr in ("max", "min")
        if not compares or is_identity(base) or hidden_part(base) is not None:
            return base.absorb(self.of_theta(theta), aggr)
        if is_full or not isinstance(base, Stacked):
            return [(self.edges(), theta)]
        factors = matrix.split([part.num_bases for part in base.parts])
        parts = zip(base.parts, factors, strict=True)
        return Stacked(tuple(part.scale(own) for part, own in parts)).absorb(theta, aggr)

    @cached_property
    def _picked(self) -> Basis | None:
        assert isinstance(self.matrix, tuple)
        return picked(self.base, self.matrix)


@makes("scale")
def scaled(base: Basis, factor: float | Tensor) -> Mixed:
    """What :meth:`.Basis.scale` returns."""
    if not isinstance(factor, Tensor | Real) or isinstance(factor, bool):
        raise RefusedType("a scale is a number", "a float or a tensor", repr(factor))
    number = None
    if not isinstance(factor, Tensor):
        number = float(factor)
        if isinstance(base, Mixed) and base.number is not None:
            base, number = base.base, base.number * number
        factor = constant(number, base.dtype, base.device)
    if factor.shape not in ((), (base.num_bases,)):
        raise RefusedValue(
            "a scale needs one factor, or one for each label",
            f"shape () or ({base.num_bases},)",
            tuple(factor.shape),
        )
    if not factor.is_floating_point() and base.dtype is not None:
        factor = factor.to(base.dtype)
    return Mixed(base, factor.expand(base.num_bases), number)


@makes("select")
def selected(base: Basis, labels: Labels) -> Mixed:
    """What :meth:`.Basis.select` returns."""
    return selection(base, chosen_labels(labels, base.num_bases))


def selection(base: Basis, labels: Sequence[int]) -> Mixed:
    """Selected labels that are in range, which a compiler can trace; nested selections are one."""
    if isinstance(base, Mixed) and isinstance(base.matrix, tuple):
        return Mixed(base.base, tuple([base.matrix[label] for label in labels]))
    return Mixed(base, tuple(labels))


@makes("mix")
def mixed(base: Basis, matrix: Tensor) -> Mixed:
    """What :meth:`.Basis.mix` returns."""
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
        got = getattr(matrix, "dtype", type(matrix).__name__)
        raise RefusedType("labels are mixed by numbers", "a floating point tensor (J, K)", got)
    if matrix.dim() != 2 or matrix.size(1) != base.num_bases:
        raise RefusedValue(
            "a mixing matrix has a column for each label",
            f"(J, {base.num_bases})",
            tuple(matrix.shape),
        )
    if base.dtype not in (None, matrix.dtype):
        raise RefusedType("a mixing matrix has the dtype of the values", base.dtype, matrix.dtype)
    return Mixed(base, matrix)


@picked.register
def _(basis: Mixed, labels: Sequence[int]) -> Mixed | None:
    """The rows of C; None for selections, for those of selections are one."""
    if isinstance(basis.matrix, tuple):
        return None
    base = basis.base if basis.is_full else basis.base.select(labels)
    return replace(basis, base=base, matrix=basis.matrix[list(labels)])


@reached.register
def _(basis: Mixed, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    return reached(basis.base, seen, basis.base_labels(labels), transposed)


@averaged.register
def _(basis: Mixed, dtype: torch.dtype | None = None) -> Basis:
    if basis.is_full:  # edges of several labels become one
        return averaged.of_others(basis, dtype)
    return averaged_parts(basis, dtype)


averaged.register(averaged_parts, Stacked)
