"""Stacks of bases: the matrices of one basis, then those of the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..cache import cached_property
from ..errors import RefusedType, RefusedValue, refusal
from ..kernels.lasting import lasting
from .base import Basis, nest
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .pattern import Pattern
from .registry import makes

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf
    from .label_maps import Scaled


@makes("stack")
@dataclass(frozen=True, eq=False, repr=False)
class Stacked(Basis):
    """The concatenation of the matrices of several bases: K = K₁ + K₂ + …

    Nested stacks are flattened.

    Raises:
        ValueError: there is no part, or the parts differ in size or dtype.
        TypeError: a part is not a basis.
    """

    parts: tuple[Basis, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise RefusedValue(refusal("a stack needs a basis", "at least one", "none"))
        for part in self.parts:
            if not isinstance(part, Basis):
                raise RefusedType(
                    refusal("a stack takes bases", "a Basis; families go to Stack", repr(part))
                )
        sizes = {part.size for part in self.parts}
        if len(sizes) > 1:
            raise RefusedValue(
                refusal("bases in a stack must have one size", self.parts[0].size, sorted(sizes))
            )
        dtypes = {part.dtype for part in self.parts} - {None}
        if len(dtypes) > 1:
            raise RefusedValue(
                refusal(
                    "bases in a stack must have one dtype",
                    self.parts[0].dtype,
                    sorted(map(str, dtypes)),
                )
            )
        parts = [part.parts if isinstance(part, Stacked) else (part,) for part in self.parts]
        object.__setattr__(self, "parts", tuple(chain.from_iterable(parts)))
        nest(self, *self.parts)

    @property
    def num_bases(self) -> int:
        """Number of labels, K₁ + K₂ + …"""
        return sum(part.num_bases for part in self.parts)

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets, (M, N)."""
        return self.parts[0].size

    def shape_class(self) -> Hashable:
        """Cache key for the choice of an order; see :meth:`.Kind.shape_class`."""
        return tuple(part.shape_class() for part in self.parts)

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self.parts[0].device

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the values; None if the values of all parts are ones."""
        dtypes = (part.dtype for part in self.parts)
        return next((dtype for dtype in dtypes if dtype is not None), None)

    @cached_property
    def _pattern(self) -> Pattern:
        """The pattern of all edges, with the labels of each part after those of earlier parts."""
        parts, labels, shift = [part.edges() for part in self.parts], [], 0
        with lasting(parts[0].pattern.source):
            for part in parts:
                labels.append(part.label.long() + shift)
                shift += part.num_bases
            origins = [part.pattern.origin for part in parts]
            known = [origin for origin in origins if origin is not None]
            return Pattern.build(
                torch.cat([part.index.long() for part in parts], dim=1),
                torch.cat(labels),
                size=self.size,
                num_labels=self.num_bases,
                origin=torch.cat(known) if len(known) == len(origins) else None,
            )

    @property
    def learns(self) -> bool:
        """Whether values of any part require gradients."""
        return any(part.learns for part in self.parts)

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

    def mean(self, dtype: torch.dtype | None = None) -> Stacked:
        """The mean within each label, part by part."""
        dtype = self.dtype or dtype
        return Stacked(tuple(part.mean(dtype) for part in self.parts))

    @property
    def is_identity(self) -> bool:
        """Whether all matrices of all parts are identities."""
        return all(part.is_identity for part in self.parts)

    def hidden(self) -> Basis | None:
        """The first part that hides its edges, or None."""
        return next((found for part in self.parts if (found := part.hidden()) is not None), None)

    def grids(self) -> tuple[Shape, Shape] | None:
        """The grids of the first part."""
        return self.parts[0].grids()

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Stacked:
        """``change`` applied to every edge set: part by part."""
        return Stacked(tuple(part.with_edges(change, same_nodes) for part in self.parts))

    def transposed(self) -> Stacked:
        """The transposes of the parts."""
        return Stacked(tuple(part.transpose() for part in self.parts))

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Stacked:
        """A_k[sources, targets]: part by part."""
        return Stacked(tuple(part.restricted(sources, targets) for part in self.parts))

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

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Stacked:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Stacked(tuple(part.map(index_map, value_map) for part in self.parts))

    def __repr__(self) -> str:
        return f"Stacked({self._head()}, parts=[{', '.join(map(repr, self.parts))}])"
