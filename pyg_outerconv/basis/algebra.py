"""The algebra of bases: stacks, transposes, and scaled, selected or mixed labels.

Each operation is a basis made of others, its parts. It stores these alone, and says how features
are propagated through them, what their edges are, and what becomes of Θ. Products are in
``products.py``. Their names are participles (``Stacked``), those of families nouns (``Stack``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import chain
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from ..errors import RefusedIndex, RefusedType, RefusedValue
from ..graph.checks import Labels, chosen
from ..kernels.lasting import lasting
from ..memo import cached_property, constant
from ..signatures import typed
from ..theta import Theta
from .base import Basis, Leaf
from .edge_sets import averaged, hidden_part, reached, with_edges
from .edges import EdgeBasis, no_edges
from .eye import Eye
from .pattern import Pattern
from .registry import makes, with_contents

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

    def plan_key(self) -> tuple[Hashable, ...]:
        return type(self), self.num_bases, *[part.plan_key() for part in self.parts]

    def transpose(self) -> Basis:
        return self.with_parts(lambda part: part.transpose())

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        if not self.shares_nodes:
            return super().restricted(sources, targets)
        return self.with_parts(lambda part: part.restricted(sources, targets))

    def picked(self, labels: Sequence[int]) -> Basis | None:
        return self.simpler().select(labels)


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
        sizes: set[Any] = {part.size for part in self.parts}
        dtypes: set[Any] = {part.dtype for part in self.parts} - {None}
        for name, found in (("size", sizes), ("dtype", dtypes)):
            if len(found) > 1:
                expected = getattr(self.parts[0], name)
                got = sorted(found) if name == "size" else sorted(map(str, found))
                raise RefusedValue(f"bases in a stack must have one {name}", expected, got)
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
            known = [origin for origin in origins if origin is not None]
            return Pattern.build(
                torch.cat([part.index.long() for part in parts], dim=1),
                torch.cat(labels),
                size=self.size,
                num_labels=self.num_bases,
                origin=torch.cat(known) if len(known) == len(origins) else None,
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

    def picked(self, labels: Sequence[int]) -> Basis:
        """A stack of the selected labels of the parts, in the order of ``labels``."""
        runs: list[tuple[int, Basis, list[int]]] = []  # a loop, because compilers trace no groupby
        place = [(start, part) for part, start, end in self.ranges() for _ in range(start, end)]
        for label in labels:
            start, part = place[label]
            if not runs or runs[-1][0] != start:
                runs.append((start, part, []))
            runs[-1][2].append(label - start)
        return Stacked(tuple([Selected.kept(part, own) for _, part, own in runs]))

    def __repr__(self) -> str:
        return f"Stacked({self._head()}, parts=[{', '.join(map(repr, self.parts))}])"


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

    def plan_key(self) -> tuple[Hashable, ...]:
        return self.size, self.dtype, self.learns, *super().plan_key()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"


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


@singledispatch
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


# Maps of labels -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class LabelMap(Derived):
    """B_j = Σ_k C[j, k] A_k for some matrix C (J, K), which Θ is multiplied with instead."""

    @abstractmethod
    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        """Σ_k C[j, k] h_k for a tensor with K entries along a dimension."""

    @abstractmethod
    def base_labels(self, labels: Sequence[int]) -> Sequence[int]:
        """The labels of the base that these labels are made of."""

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        return self.of_labels(self.base.to_dense(self.dtype or dtype), 0)

    def propagate(self, x: Tensor) -> Tensor:
        return self.of_labels(self.base.propagate(x), 1)


@reached.register
def _(basis: LabelMap, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    return reached(basis.base, seen, basis.base_labels(labels), transposed)


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Scaled(LabelMap):
    """c_k·A_k, with ``factor`` (K,) of the c_k, which may require gradients.

    ``number`` is the value of all c_k if the scale was a Python number: nested scales by numbers
    are multiplied into one, whereas tensors, which may require gradients, are kept apart.
    """

    factor: Tensor
    number: float | None = None

    @staticmethod
    @makes("scale")
    def of(base: Basis, factor: float | Tensor) -> Scaled:
        """Scale ``base`` by one number, or by one for each label; see :meth:`Basis.scale`."""
        if not isinstance(factor, Tensor | Real) or isinstance(factor, bool):
            raise RefusedType("a scale is a number", "a float or a tensor", repr(factor))
        number = None
        if not isinstance(factor, Tensor):
            number = float(factor)
            if isinstance(base, Scaled) and base.number is not None:
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
        return Scaled(base, factor.expand(base.num_bases), number)

    @property
    def dtype(self) -> torch.dtype | None:
        return self.base.dtype or self.factor.dtype  # of a factor of integers, too

    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        return h * self.factor.to(h.dtype).view(-1, *(1,) * (h.dim() - dim - 1))

    def base_labels(self, labels: Sequence[int]) -> Sequence[int]:
        return labels

    def edges(self) -> EdgeBasis:
        edges = self.base.edges()
        factor = self.factor.to(self.dtype).index_select(0, edges.label)
        return edges.with_values(edges.values(factor.dtype) * factor)

    def picked(self, labels: Sequence[int]) -> Basis:
        return replace(self, base=self.base.select(labels), factor=self.factor[list(labels)])

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """Scale Θ_k by c_k, which is cheaper than scaling edges; for 'max' and 'min' scale values.

        A negative c_k exchanges maxima and minima. Identities have one input each, and bases that
        hide their edges are refused later.
        """
        base = self.base
        if aggr not in ("max", "min") or is_identity(base) or hidden_part(base) is not None:
            return base.absorb(theta.scaled(self.factor), aggr)
        if isinstance(base, Stacked):
            factors = self.factor.split([part.num_bases for part in base.parts])
            parts = zip(base.parts, factors, strict=True)
            return Stacked(tuple(part.scale(own) for part, own in parts)).absorb(theta, aggr)
        return [(self.edges(), theta)]


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Selected(LabelMap):
    """A_k for the given labels k, in the given order; labels may be repeated."""

    labels: tuple[int, ...]

    @staticmethod
    @makes("select")
    def of(base: Basis, labels: Labels) -> Selected:
        """Select labels of ``base``, see :meth:`Basis.select`; nested selections are merged."""
        count = base.num_bases
        if isinstance(labels, slice):
            labels = range(count)[labels]
        elif isinstance(labels, Integral) and not isinstance(labels, bool):
            labels = (int(labels),)
        selected = chosen("selected labels", labels, count).tolist()
        for label in selected:
            if not -count <= label < count:
                raise RefusedIndex("a selected label must exist", f"[0, {count})", label)
        return Selected.kept(base, [label % count for label in selected])

    @staticmethod
    def kept(base: Basis, labels: Sequence[int]) -> Selected:
        """The selection of labels that are in range, which a compiler can trace."""
        if isinstance(base, Selected):
            return Selected(base.base, tuple([base.labels[label] for label in labels]))
        return Selected(base, tuple(labels))

    @property
    def num_bases(self) -> int:
        return len(self.labels)

    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        return h.index_select(dim, constant(self.labels, torch.long, h.device))

    def base_labels(self, labels: Sequence[int]) -> Sequence[int]:
        return [self.labels[label] for label in labels]

    @cached_property
    def _selected_edges(self) -> tuple[Tensor, Pattern]:
        """The positions of the selected edges in the base, in the order of their new pattern."""
        with torch.inference_mode(False):  # cached tensors must serve training too
            edges = self.base.edges()
            groups = [(edges.label == label).nonzero().view(-1) for label in self.labels]
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

    def edges(self) -> EdgeBasis:
        value = self.base.edges().value
        keep, pattern = self._selected_edges
        return EdgeBasis(pattern, None if value is None else value.index_select(0, keep))

    @cached_property
    def _picked(self) -> Basis | None:
        return self.base.picked(self.labels)

    def picked(self, labels: Sequence[int]) -> None:
        """None: selections of selections are one."""

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The leaves of the selected labels alone, for NaN passes through a Θ_k of zeros.

        Of other bases, such as heads, Θ_k is added at the k-th selected label.
        """
        base, labels = self.base, self.labels
        if not labels:
            return [(no_edges(self.size, self.device), theta)]
        if isinstance(base, EdgeBasis):
            return [(self.edges(), theta)]
        # What labels are multiplied with may learn, and must not be kept.
        picked = base.picked(labels) if isinstance(base, LabelMap) else self._picked
        if picked is not None:
            return picked.absorb(theta, aggr)
        place = constant(tuple(labels), torch.long, theta.device)
        return base.absorb(theta.gathered(place, base.num_bases), aggr)

    def __repr__(self) -> str:
        return f"Selected(labels={list(self.labels)}, {self.base!r})"


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Mixed(LabelMap):
    """B_j = Σ_k C[j, k] A_k, with ``matrix`` C (J, K), which may require gradients."""

    matrix: Tensor

    @staticmethod
    @makes("mix")
    def of(base: Basis, matrix: Tensor) -> Mixed:
        """Mix the labels of ``base``; see :meth:`Basis.mix`."""
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
            raise RefusedType(
                "a mixing matrix has the dtype of the values", base.dtype, matrix.dtype
            )
        return Mixed(base, matrix)

    @property
    def num_bases(self) -> int:
        return self.matrix.size(0)

    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        return torch.tensordot(self.matrix.to(h.dtype), h, dims=([1], [dim])).movedim(0, dim)

    def base_labels(self, labels: Sequence[int]) -> Sequence[int]:
        return range(self.base.num_bases if labels else 0)

    @cached_property
    def _places(self) -> tuple[int, Tensor, Pattern]:
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

    def edges(self) -> EdgeBasis:
        """One edge for each label and (source, target) pair that any label of the base joins."""
        edges, (count, place, pattern) = self.base.edges(), self._places
        share = self.matrix.t().index_select(0, edges.label)  # (E, J)
        value = edges.values(self.matrix.dtype).unsqueeze(1) * share
        sums = value.new_zeros(count, self.num_bases).index_add(0, place, value)
        return EdgeBasis(pattern, pattern.sort_values(sums.flatten()))

    def picked(self, labels: Sequence[int]) -> Basis:
        return replace(self, matrix=self.matrix[list(labels)])

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """Mix Θ instead: Θ'_k = Σ_j C[j, k] Θ_j. For reductions other than sums, return the edges.

        These join all pairs that any label of the base joins. Identities have one input each, and
        bases that hide their edges are refused later.
        """
        base = self.base
        if not self.num_bases:
            return [(no_edges(self.size, self.device), theta)]
        if aggr != "sum" and not is_identity(base) and hidden_part(base) is None:
            return [(self.edges(), theta)]
        return base.absorb(theta.mixed(self.matrix), aggr)

    def __repr__(self) -> str:
        return f"Mixed({self.num_bases} of {self.base!r})"


averaged.register(Stacked, averaged_parts)
averaged.register(Scaled, averaged_parts)
averaged.register(Selected, averaged_parts)
