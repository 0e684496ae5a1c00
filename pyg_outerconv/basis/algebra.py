"""Lazy bases made of other bases: stacked, transposed, scaled, selected.

A family called ``Stack`` makes a :class:`Stacked` basis out of structure; here are the bases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..errors import RefusedIndex, RefusedValue, refusal
from .base import Basis, TensorMap
from .edges import EdgeBasis
from .pattern import Pattern


@dataclass(frozen=True, eq=False, repr=False)
class Stacked(Basis):
    """The matrices of several bases, one after another: K = K₁ + K₂ + …

    Raises:
        ValueError: no part is given, or the parts differ in size or type.
    """

    parts: tuple[Basis, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise RefusedValue(refusal("a stack needs a basis", "at least one", "none"))
        sizes = {part.size for part in self.parts}
        if len(sizes) > 1:
            raise RefusedValue(
                refusal("bases in a stack must have one size", self.parts[0].size, sorted(sizes))
            )
        dtypes = {part.dtype for part in self.parts} - {None}
        if len(dtypes) > 1:
            raise RefusedValue(
                refusal(
                    "bases in a stack must have one type",
                    self.parts[0].dtype,
                    sorted(map(str, dtypes)),
                )
            )

    @property
    def num_bases(self) -> int:
        """K₁ + K₂ + …"""
        return sum(part.num_bases for part in self.parts)

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.parts[0].size

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.parts[0].device

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the values, None if all parts hold ones."""
        return next((part.dtype for part in self.parts if part.dtype is not None), None)

    def edges(self) -> EdgeBasis:
        """All edges, the labels of each part shifted past those of the parts before it."""
        parts, labels, shift = [part.edges() for part in self.parts], [], 0
        for part in parts:
            labels.append(part.label.long() + shift)
            shift += part.num_bases
        value = None
        if self.dtype is not None:
            value = torch.cat([part.values(self.dtype) for part in parts])
        origins = [part.pattern.origin for part in parts]
        known = [origin for origin in origins if origin is not None]
        pattern = Pattern.build(
            torch.cat([part.index.long() for part in parts], dim=1),
            torch.cat(labels),
            size=self.size,
            num_labels=self.num_bases,
            origin=torch.cat(known) if len(known) == len(origins) else None,
        )
        return EdgeBasis(pattern, None if value is None else pattern.sort_values(value))

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N), part by part."""
        return torch.cat([part.to_dense(self.dtype or dtype) for part in self.parts])

    def mean(self, dtype: torch.dtype | None = None) -> Stacked:
        """The mean within each label, part by part."""
        dtype = self.dtype or dtype
        return Stacked(tuple(part.mean(dtype) for part in self.parts))

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Stacked:
        """See :meth:`Basis.map`."""
        return Stacked(tuple(part.map(index_map, value_map) for part in self.parts))

    def __repr__(self) -> str:
        return f"Stacked({self._head()}, parts=[{', '.join(map(repr, self.parts))}])"


@dataclass(frozen=True, eq=False, repr=False)
class Derived(Basis):
    """A basis made of one other, which it resembles in all that it does not say itself."""

    base: Basis

    @property
    def num_bases(self) -> int:
        """K."""
        return self.base.num_bases

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.base.size

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.base.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the values."""
        return self.base.dtype


@dataclass(frozen=True, eq=False, repr=False)
class Transposed(Derived):
    """A_kᵀ for every k: the edges turned round, size (N, M)."""

    @property
    def size(self) -> tuple[int, int]:
        """(N, M) of the base."""
        return self.base.size[::-1]

    def edges(self) -> EdgeBasis:
        """The turned edges; the base's order by source serves, nothing is sorted."""
        return self.base.edges().transposed_edges()

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, N, M) of the base, turned."""
        return self.base.to_dense(dtype).transpose(1, 2)

    def transpose(self) -> Basis:
        """The base: turning twice changes nothing."""
        return self.base

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Transposed:
        """See :meth:`Basis.map`."""
        return Transposed(self.base.map(index_map, value_map))

    def __repr__(self) -> str:
        return f"Transposed({self.base!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Derived):
    """c_k·A_k, ``factor`` (K,) the c_k, which may carry gradients."""

    factor: Tensor

    @staticmethod
    def of(base: Basis, factor: float | Tensor) -> Scaled:
        """Scale ``base`` by one number, or by one for each label.

        Raises:
            ValueError: a factor of another shape than () or (K,).
        """
        if not isinstance(factor, Tensor):
            factor = torch.tensor(float(factor), dtype=base.dtype, device=base.device)
        if factor.shape not in ((), (base.num_bases,)):
            raise RefusedValue(
                refusal(
                    "a scale needs one factor, or one for each label",
                    f"shape () or ({base.num_bases},)",
                    tuple(factor.shape),
                )
            )
        return Scaled(base, factor.expand(base.num_bases))

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the values, which scaled ones take from the factor."""
        return self.base.dtype or self.factor.dtype

    def edges(self) -> EdgeBasis:
        """The edges with their values multiplied."""
        edges = self.base.edges()
        factor = self.factor.to(self.dtype).index_select(0, edges.label)
        return edges.with_values(edges.values(factor.dtype) * factor)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) of the base, each matrix multiplied."""
        factor = self.factor.to(self.dtype)
        return self.base.to_dense(factor.dtype) * factor.view(-1, 1, 1)

    def mean(self, dtype: torch.dtype | None = None) -> Scaled:
        """The mean within each label, scaled."""
        return Scaled(self.base.mean(self.dtype), self.factor)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Scaled:
        """See :meth:`Basis.map`."""
        return Scaled(self.base.map(index_map, value_map), value_map(self.factor))

    def __repr__(self) -> str:
        return f"Scaled({self.base!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Selected(Derived):
    """A_k for the given labels k, in the given order; a label may come twice."""

    labels: tuple[int, ...]

    @staticmethod
    def of(base: Basis, labels: int | slice | Sequence[int]) -> Selected:
        """Select from ``base``; negative labels count from the end.

        Raises:
            IndexError: a label is out of range.
        """
        if isinstance(labels, slice):
            labels = range(base.num_bases)[labels]
        chosen = (labels,) if isinstance(labels, int) else tuple(labels)
        for label in chosen:
            if not -base.num_bases <= label < base.num_bases:
                raise RefusedIndex(
                    refusal("a selected label must exist", f"[0, {base.num_bases})", label)
                )
        return Selected(base, tuple(label % base.num_bases for label in chosen))

    @property
    def num_bases(self) -> int:
        """How many labels were chosen."""
        return len(self.labels)

    @cached_property
    def _chosen(self) -> tuple[Tensor, Pattern]:
        """The positions of the chosen edges in the base, sorted as their pattern is."""
        with torch.inference_mode(False):  # What is kept must serve training too.
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
        """The edges of the chosen labels, relabelled by their place in the choice; sorted once."""
        value = self.base.edges().value
        keep, pattern = self._chosen
        return EdgeBasis(pattern, None if value is None else value.index_select(0, keep))

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N): the chosen matrices of the base."""
        return self.base.to_dense(dtype)[list(self.labels)]

    def mean(self, dtype: torch.dtype | None = None) -> Selected:
        """The mean within each chosen label."""
        return Selected(self.base.mean(dtype), self.labels)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Selected:
        """See :meth:`Basis.map`."""
        return Selected(self.base.map(index_map, value_map), self.labels)

    def __repr__(self) -> str:
        return f"Selected(labels={list(self.labels)}, {self.base!r})"
