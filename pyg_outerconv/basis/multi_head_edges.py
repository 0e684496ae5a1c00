"""Multi-head bases: several matrices on the same edges, with a value for each edge and head."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..kernels import CSR, spmm
from ..kernels.attend_entries import kept_product
from ..kernels.edge_sums import Listed, are_few, is_small
from ..kernels.lasting import lasting
from ..memo import cached_property
from .base import Basis
from .edges import EdgeBasis, PatternBasis, check_values
from .pattern import Pattern
from .registry import ByKind, with_contents


@dataclass(frozen=True, eq=False, repr=False, init=False)
class MultiHeadEdges(PatternBasis):
    """The matrices A_h of H heads on one pattern: ``A[h, m, n]`` sums ``value[e, h]`` over m → n.

    Each of the L labels of the pattern has H/L heads: head h has the label h // (H/L), so that
    with L = 1 all heads share one support, and with L = H each has its own. Values may differ
    between the items of a batch of X, ``value[e, b, h]``; :meth:`item` returns the basis of one
    item.

    Attributes:
        pattern: the E edges, of L labels.
        value: (E, *batch, H/L) floating point in the pattern's order; may require gradients.

    Raises:
        ValueError: ``value`` does not have one row for each edge, or is on another device.
        TypeError: ``value`` is not floating point.
    """

    has_heads: ClassVar[bool] = True

    pattern: Pattern
    value: Tensor = field()  # type: ignore[misc]

    def __init__(self, pattern: Pattern, value: Tensor) -> None:
        check_values(value, pattern, heads=True)
        if value.dim() < 2 or value.size(0) != pattern.num_edges:
            expected = f"shape ({pattern.num_edges}, *batch, heads of a label)"
            raise RefusedValue("heads need values for each edge", expected, tuple(value.shape))
        vars(self)["pattern"], vars(self)["in_order"] = pattern, value

    @staticmethod
    def of_list(pattern: Pattern, value: Tensor) -> MultiHeadEdges:
        """The basis whose ``value`` is in the input order of the edges of a small pattern.

        The pattern has one label; sorting is deferred until the sorted order is needed.
        """
        basis = object.__new__(MultiHeadEdges)
        vars(basis)["pattern"], vars(basis)["listed"] = pattern, value
        return basis

    @property
    def num_bases(self) -> int:
        return self.num_labels * self._any.size(-1)

    @property
    def _any(self) -> Tensor:
        """The values, in sorted or in input order."""
        value = self._in_some_order
        assert value is not None  # heads always have values
        return value

    @property
    def num_labels(self) -> int:
        """Number of labels of the pattern, L."""
        return self.pattern.num_labels

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch dimensions of the values."""
        return tuple(self._any.shape[1:-1])

    @property
    def csr(self) -> CSR:
        """The (N·L) × (M·L) matrix with a row for each target and label."""
        return self.pattern.by_both

    @cached_property
    def _all_heads(self) -> Pattern:
        """The pattern with a copy of every edge for each of its heads."""
        pattern, heads = self.pattern, self.value.size(-1)
        with lasting(pattern.source):
            label = pattern.label.long().unsqueeze(1) * heads
            label = label + torch.arange(heads, device=self.device)
            origin = pattern.origin
            return Pattern.build(
                pattern.index.long().repeat_interleave(heads, dim=1),
                label.view(-1),
                size=self.size,
                num_labels=self.num_bases,
                origin=None if origin is None else origin.repeat_interleave(heads),
            )

    def heads(self) -> MultiHeadEdges:
        return self

    def edges(self) -> EdgeBasis:
        """One edge for each edge of the pattern and each of its heads, labelled by the head.

        Raises:
            ValueError: the values have batch dimensions.
        """
        if self.batch:
            raise RefusedValue(
                "values that differ between items of a batch have no common edges",
                "basis.item(...)",
                f"a batch of {self.batch}",
            )
        pattern = self._all_heads
        return pattern.with_values(pattern.sort_values(self.value.reshape(-1)))

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """A_hᵀ X_h for each head: (M, *batch, H, C) to (N, *batch, H, C).

        Where a bias (E, B·H/L), in the pattern's order, is given and -inf, there is no edge,
        whatever X holds.
        """
        batch, listed = tuple(x.shape[1:-2]), self._listed
        if listed is not None and bias is None and is_small(listed.size(0), x, holds_messages=True):
            if batch and not self.batch:
                listed = listed.view(listed.size(0), *(1,) * len(batch), -1)
            if listed.dtype != x.dtype:
                listed, x = same_dtype(listed, x)
            return listed_edges(self.pattern).sums(listed, x)
        value = self.value
        if self.batch == () and batch:
            value = value.view(value.size(0), *(1,) * len(batch), -1)
            value = value.expand(value.size(0), *batch, -1)
        value, x = same_dtype(value, x)
        shared = x.stride(-2) == 0 and not batch and self.num_labels == 1
        operand = x[:, :1] if shared else by_label(x, self.num_labels)  # no copy of a shared x
        value = value.flatten(1)
        if bias is None:
            out = spmm(self.csr, value, operand)
        else:
            out = kept_product(self.csr, value, operand, bias)
        return by_head(out, self.num_labels, self.num_bases, batch)

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X: a sparse product for each head."""
        return self.times(for_heads(x, self.num_bases, self.batch)).movedim(-2, 1)

    def __repr__(self) -> str:
        batch = f", batch={self.batch}" if self.batch else ""
        return (
            f"MultiHeadEdges({self._head()}, edges={self.num_edges}{batch}, "
            f"values={str(self.value.dtype).removeprefix('torch.')}, device={str(self.device)!r})"
        )


@ByKind
def item(basis: Basis, *index: int) -> Basis:
    """The basis of one item of the batch; parts without a batch are the same for all items."""
    of_item(basis, index)

    def of(part: Any) -> Any:
        return item(part, *index) if isinstance(part, Basis) and part.batch else part

    return with_contents(basis, of) if index else basis


@item.register
def _(basis: MultiHeadEdges, *index: int) -> MultiHeadEdges:
    return replace(basis, value=basis.value[of_item(basis, index)])


def of_item(basis: Basis, index: tuple[int, ...]) -> tuple[slice | int, ...]:
    """Where the values of an item of a batch are, in a tensor (n, *batch, ...)."""
    if len(index) != len(basis.batch):
        raise RefusedValue("an item of a batch has an index for each axis", basis.batch, index)
    return slice(None), *index


def is_listed(pattern: Pattern, x: Tensor) -> bool:
    """Whether :func:`listed_edges` can be used: the pattern allows it, and messages are few."""
    return pattern.can_list and are_few(pattern.num_edges, x)


def listed_edges(pattern: Pattern) -> Listed:
    """The N × M matrix of the edges in input order."""
    assert pattern.listed is not None
    return Listed(pattern.listed[1], pattern.listed[0], pattern.size[::-1])


def by_label(x: Tensor, num_labels: int) -> Tensor:
    """Reshape (nodes, *batch, H, C) to (nodes·L, B·H/L, C), as kernels take it; a view if L = 1.

    Items of a batch are more heads on the same edges, not copies of the graph.
    """
    if num_labels > 1:
        x = x.unflatten(-2, (num_labels, -1)).movedim(-3, 1).flatten(0, 1)
    return x.flatten(1, -2)


def by_head(x: Tensor, num_labels: int, heads: int, batch: tuple[int, ...]) -> Tensor:
    """Reshape (nodes·L, B·H/L, C) to (nodes, *batch, H, C): the inverse of :func:`by_label`."""
    x = x.unflatten(1, (*batch, heads // num_labels)) if batch else x
    if num_labels > 1:
        x = x.unflatten(0, (-1, num_labels)).movedim(1, -3).flatten(-3, -2)
    return x


def for_heads(x: Tensor, heads: int, own: tuple[int, ...]) -> Tensor:
    """Expand X (M, *batch, P) to (M, *batch, H, P), a view, for a basis of H heads."""
    batch = tuple(x.shape[1:-1])
    if own not in ((), batch):
        raise RefusedValue("features and basis have the same batch", own, batch)
    return x.unsqueeze(-2).expand(*x.shape[:-1], heads, -1)


def same_dtype(*tensors: Tensor) -> list[Tensor]:
    """The tensors in the widest of their dtypes (autocast makes products narrower than scores)."""
    wide = tensors[0].dtype
    for tensor in tensors[1:]:
        wide = torch.promote_types(wide, tensor.dtype)
    return [tensor.to(wide) for tensor in tensors]
