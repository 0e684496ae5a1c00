"""Heads: several matrices on the same edges, each edge with a value for each of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..cache import cached_property
from ..errors import RefusedValue, refusal
from ..kernels import Sparsity, spmm
from ..kernels.dispatch import recording
from ..kernels.edge_sums import is_small
from ..kernels.lasting import lasting
from ..kernels.listed import Listed
from .base import Basis
from .edges import EdgeBasis, check_values
from .kind import Shape, TensorMap
from .pattern import FEW, Pattern
from .some_order import InSomeOrder

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf


@dataclass(frozen=True, eq=False, repr=False)
class MultiHeadEdges(InSomeOrder, Basis):
    """The matrices A_h of H heads on one pattern: entry ``[h, m, n]`` sums ``value[e, h]``.

    With a pattern of L labels, each of them has H/L heads: head h is of label h // (H/L), so that
    L = 1 is one support for all heads, and L = H one for each. A batch of X has values of its own
    for each item, ``value[e, b, h]``; such a basis is contracted like any other, and :meth:`item`
    is the basis of one.

    Attributes:
        pattern: the E edges, of L labels.
        value: (E, *batch, H/L) floating point in the pattern's order; may carry gradients.

    Raises:
        ValueError: ``value`` does not have a row for each edge, or is on another device.
        TypeError: ``value`` is not floating point.
    """

    is_leaf: ClassVar[bool] = True
    has_heads: ClassVar[bool] = True

    pattern: Pattern
    value: Tensor

    def __post_init__(self) -> None:
        value = self.value
        if value.dim() < 2 or value.size(0) != self.pattern.num_edges:
            expected = f"shape ({self.pattern.num_edges}, *batch, heads of a label)"
            raise RefusedValue(
                refusal("heads need values for each edge", expected, tuple(value.shape))
            )
        check_values(value, self.pattern, heads=True)

    @staticmethod
    def of_list(pattern: Pattern, value: Tensor) -> MultiHeadEdges:
        """The basis whose ``value`` is in the order in which the few edges of a pattern were given.

        The pattern has one label, and nothing is sorted before it is asked for.
        """
        made = object.__new__(MultiHeadEdges)
        vars(made).update(pattern=pattern, given=value)
        return made

    @property
    def num_bases(self) -> int:
        """H."""
        return self.num_labels * self._any.size(-1)

    @property
    def is_listed(self) -> bool:
        """Whether values are those of few edges in the order in which these were given."""
        return self._listed is not None

    @property
    def _any(self) -> Tensor:
        """The values, in whatever order they are held."""
        found = self._in_some_order
        assert found is not None  # heads have values
        return found

    def shape_class(self) -> Hashable:
        """See :meth:`Basis.shape_class`."""
        return tuple(self._any.shape[1:]), self.pattern.shape_class

    @property
    def num_labels(self) -> int:
        """L, the labels of the pattern."""
        return self.pattern.num_labels

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.pattern.size

    @property
    def batch(self) -> tuple[int, ...]:
        """The sizes of the batch that values are of."""
        return tuple(self._any.shape[1:-1])

    @property
    def num_edges(self) -> int:
        """E, each counted once for the H/L heads that share it."""
        return self.pattern.num_edges

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.pattern.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the values."""
        return self._any.dtype

    @property
    def learns(self) -> bool:
        """Whether the values require a gradient."""
        return self._any.requires_grad

    @property
    def has_edges(self) -> bool:
        """True: those that heads share."""
        return True

    @property
    def sparsity(self) -> Sparsity:
        """The (N·L) × (M·L) matrix that has a row for each target and label."""
        return self.pattern.by_both

    def item(self, *index: int) -> MultiHeadEdges:
        """The basis of one item of the batch.

        Raises:
            ValueError: there are more or fewer batch dimensions.
        """
        if len(index) != len(self.batch):
            raise RefusedValue(
                refusal("an item of a batch has an index for each axis", self.batch, index)
            )
        where: tuple[slice | int, ...] = (slice(None), *index)
        return replace(self, value=self.value[where])

    @cached_property
    def _all_heads(self) -> Pattern:
        """Every edge once for each of its heads."""
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

    def shares(self) -> MultiHeadEdges:
        """Itself."""
        return self

    def edges(self) -> EdgeBasis:
        """Every edge once for each of its heads.

        Raises:
            ValueError: values are of a batch.
        """
        if self.batch:
            raise RefusedValue(
                refusal(
                    "a batch of X makes a basis for each of its items",
                    "basis.item(...)",
                    f"a batch of {self.batch}",
                )
            )
        made = self._all_heads
        return made.with_values(made.sort_values(self.value.reshape(-1)))

    def times(self, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head: (M, *batch, H, C) to (N, *batch, H, C)."""
        batch, listed = tuple(x.shape[1:-2]), self._listed
        if listed is not None and is_small(listed.size(0), x, held=True):
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
        operand = x[:, :1] if shared else by_label(x, self.num_labels)  # one x is not copied
        out = spmm(self.sparsity, value.flatten(1), operand)
        return by_head(out, self.num_labels, self.num_bases, batch)

    def propagate(self, x: Tensor) -> Tensor:
        """See :meth:`.Kind.propagate`: a sparse product for each head."""
        return self.times(for_heads(x, self.num_bases, self.batch)).movedim(-2, 1)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """See :meth:`.Kind.products`."""
        return [(self, shape, learns)]

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Itself where inputs are added up, its edges where they are counted or compared."""
        return [(self if reduce == "sum" else self.edges(), theta)]

    def map(self, index_map: TensorMap, value_map: TensorMap) -> MultiHeadEdges:
        """See :meth:`Basis.map`."""
        return MultiHeadEdges(self.pattern.map(index_map), value_map(self.value))

    def __repr__(self) -> str:
        batch = f", batch={self.batch}" if self.batch else ""
        return (
            f"MultiHeadEdges({self._head()}, edges={self.num_edges}{batch}, "
            f"values={str(self.value.dtype).removeprefix('torch.')}, device={str(self.device)!r})"
        )


def is_listed(pattern: Pattern, x: Tensor) -> bool:
    """Whether edges are so few, for features x (nodes, *), that :func:`listed_edges` has them."""
    return can_list(pattern) and are_few(pattern.num_edges, x)


def can_list(pattern: Pattern) -> bool:
    """Whether a pattern of one label holds its edges as they were given, and goes on doing so."""
    return pattern.given is not None and pattern.num_labels == 1 and pattern.num_edges <= FEW


def are_few(num_edges: int, x: Tensor) -> bool:
    """Whether so many messages of features x (nodes, *) are few, and nobody records kernels."""
    return is_small(num_edges, x, held=True) and not recording()


def listed_edges(pattern: Pattern) -> Listed:
    """The N × M matrix of edges in the order in which they were given."""
    given = pattern.given
    assert given is not None
    return Listed(given.target, given.source, pattern.size[::-1])


def by_label(x: Tensor, num_labels: int) -> Tensor:
    """(nodes, *batch, H, C) as kernels take it: (nodes·L, B·H/L, C); a view where L = 1."""
    if num_labels > 1:
        x = x.unflatten(-2, (num_labels, -1)).movedim(-3, 1).flatten(0, 1)
    return x.flatten(1, -2)


def by_head(x: Tensor, num_labels: int, heads: int, batch: tuple[int, ...]) -> Tensor:
    """(nodes·L, B·H/L, C) as (nodes, *batch, H, C), which :func:`by_label` undoes."""
    x = x.unflatten(1, (*batch, heads // num_labels)) if batch else x
    if num_labels > 1:
        x = x.unflatten(0, (-1, num_labels)).movedim(1, -3).flatten(-3, -2)
    return x


def for_heads(x: Tensor, heads: int, own: tuple[int, ...]) -> Tensor:
    """X (M, *batch, P) for every head of a basis: (M, *batch, H, P), a view.

    Raises:
        ValueError: the basis is of a batch of its ``own``, and another one than X.
    """
    batch = tuple(x.shape[1:-1])
    if own not in ((), batch):
        raise RefusedValue(refusal("features are propagated by a basis of their batch", own, batch))
    return x.unsqueeze(-2).expand(*x.shape[:-1], heads, -1)


def same_dtype(*tensors: Tensor) -> list[Tensor]:
    """The tensors in the widest of their types: autocast makes products shorter than scores."""
    wide = tensors[0].dtype
    for tensor in tensors[1:]:
        wide = torch.promote_types(wide, tensor.dtype)
    return [tensor.to(wide) for tensor in tensors]
