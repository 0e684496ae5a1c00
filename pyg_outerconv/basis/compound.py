"""Bases made of other bases; stacks of bases, whose matrices follow one another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from ..errors import RefusedType, RefusedValue
from ..kernels.lasting import lasting
from ..memo import cached_property
from ..theta import Theta
from .base import Basis, Leaf, Shape
from .edges import EdgeBasis
from .pattern import Pattern
from .registry import make, makes

if TYPE_CHECKING:
    from .label_maps import Scaled

DEEPEST = 50
"""Bound on the nesting of bases. Each level is a nested call, and Python's stack holds about 1000
calls."""

MOST_PIECES = 2**14
"""Bound on the number of parts of a basis, which doubles if a basis is combined with itself."""


@dataclass(frozen=True, eq=False, repr=False)
class Compound(Basis):
    """A basis made of others, its parts; methods are applied to these unless it overrides them.

    Raises:
        ValueError: the nesting exceeds ``DEEPEST``, or the pieces exceed ``MOST_PIECES``.
    """

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
        vars(self).update(nesting=nesting, pieces=pieces)

    if TYPE_CHECKING:  # a field or a property

        @property
        def parts(self) -> tuple[Basis, ...]:
            """The bases that it is made of."""

    @property
    def shares_nodes(self) -> bool:
        """Whether sources and targets of all parts are the nodes of the basis."""
        return True

    def with_parts(self, change: Callable[[Basis], Basis]) -> Self:
        """The same combination of other parts."""
        return self.with_fields(lambda part: change(part) if isinstance(part, Basis) else part)

    @property
    def size(self) -> tuple[int, int]:
        return self.parts[0].size

    def shape_class(self) -> Hashable:
        return type(self), self.num_bases, *[part.shape_class() for part in self.parts]

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the values; None if the values of all parts are ones."""
        dtypes = (part.dtype for part in self.parts)
        return next((dtype for dtype in dtypes if dtype is not None), None)

    @property
    def batch(self) -> Shape:
        """The batch dimensions of the parts whose values differ between the items of a batch."""
        return next((part.batch for part in self.parts if part.batch), ())

    def item(self, *index: int) -> Basis:
        return self.with_parts(lambda part: part.item(*index) if part.batch else part)

    @property
    def learns(self) -> bool:
        """Whether values of any part require gradients."""
        return any(part.learns for part in self.parts)

    def hidden(self) -> Basis | None:
        """The basis itself, or the first part that hides its edges; None if none does."""
        return super().hidden() or next(filter(None, (part.hidden() for part in self.parts)), None)

    def grids(self) -> tuple[Shape, Shape] | None:
        """The grids of the first part, if the nodes are the same."""
        return self.parts[0].grids() if self.size == self.parts[0].size else None

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """The mean within each label, part by part."""
        dtype = self.dtype or dtype
        return self.with_parts(lambda part: part.mean(dtype))

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """``change`` applied to every edge set of every part."""
        if same_nodes and not self.shares_nodes:
            return change(self.edges())
        return self.with_parts(lambda part: part.with_edges(change, same_nodes))

    def transpose(self) -> Basis:
        """The same combination of transposed parts."""
        return self.with_parts(lambda part: part.transpose())

    def transposed(self) -> Basis:
        """The transpose; the parts are lazy ones."""
        return self.transpose()


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

    def shape_class(self) -> Hashable:
        return self.size, super().shape_class()

    def picked(self, labels: Sequence[int]) -> Basis | None:
        """The selected labels of the simpler basis."""
        return self.simpler().select(labels)

    @property
    def is_identity(self) -> bool:
        """Whether all matrices of the base are identities."""
        return self.base.is_identity

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"


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
        """Number of labels, K₁ + K₂ + …"""
        return sum(part.num_bases for part in self.parts)

    @cached_property
    def _pattern(self) -> Pattern:
        """The pattern of all edges, with the labels of each part after those of earlier parts."""
        parts = [part.edges() for part in self.parts]
        with lasting(parts[0].pattern.source):
            labels = [
                part.label.long() + start
                for part, (_, start, _) in zip(parts, self._ranges(), strict=True)
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
        """The edges of all parts; their pattern is cached."""
        parts = [part.edges() for part in self.parts]
        # Powers of edges without values have values: the number of walks between two nodes.
        dtype = self.dtype or next((part.dtype for part in parts if part.dtype is not None), None)
        if dtype is None:
            return EdgeBasis(self._pattern)
        value = torch.cat([part.values(dtype) for part in parts])
        return EdgeBasis(self._pattern, self._pattern.sort_values(value))

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N): the dense matrices of all parts."""
        return torch.cat([part.to_dense(self.dtype or dtype) for part in self.parts])

    @property
    def is_identity(self) -> bool:
        """Whether all matrices of all parts are identities."""
        return all(part.is_identity for part in self.parts)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Stacked:
        """A_k[sources, targets]: part by part."""
        return self.with_parts(lambda part: part.restricted(sources, targets))

    def diagonal_block(self, nodes: Tensor) -> Stacked:
        """A_k[nodes, nodes] of components: part by part."""
        return self.with_parts(lambda part: part.diagonal_block(nodes))

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: by any part."""
        out = seen.new_zeros(self.size[transposed])
        for part, start, end in self._ranges():
            mine = [k - start for k in labels if start <= k < end]
            out = out | part.reached(seen, mine, transposed)
        return out

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X: part by part."""
        return torch.cat([part.propagate(x) for part in self.parts], dim=1)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`: those of all parts."""
        return [one for part in self.parts for one in part.products(shape, learns)]

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The leaves of all parts, with Θ split by label."""
        return [
            leaf
            for part, start, end in self._ranges()
            for leaf in part.absorb(theta.labels(start, end), aggr)
        ]

    def picked(self, labels: Sequence[int]) -> Basis:
        """A stack of the selected labels of the parts, in the order of ``labels``."""
        runs: list[tuple[int, Basis, list[int]]] = []  # a loop, because compilers trace no groupby
        place = [(start, part) for part, start, end in self._ranges() for _ in range(start, end)]
        for label in labels:
            start, part = place[label]
            if not runs or runs[-1][0] != start:
                runs.append((start, part, []))
            runs[-1][2].append(label - start)
        return Stacked(tuple([make("keep", part, own) for _, part, own in runs]))

    def absorb_scaled(self, scaled: Scaled, theta: Theta, aggr: str) -> list[Leaf]:
        """The leaves of the parts, each scaled by its own factors."""
        factors = scaled.factor.split([part.num_bases for part in self.parts])
        parts = zip(self.parts, factors, strict=True)
        return Stacked(tuple(part.scale(factor) for part, factor in parts)).absorb(theta, aggr)

    def _ranges(self) -> Iterator[tuple[Basis, int, int]]:
        """Each part with the first of its labels, and the one past its last."""
        start = 0
        for part in self.parts:
            yield part, start, start + part.num_bases
            start += part.num_bases

    def __repr__(self) -> str:
        return f"Stacked({self._head()}, parts=[{', '.join(map(repr, self.parts))}])"
