"""The base class of bases derived from one other basis."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from .base import Basis, nest
from .kind import Shape

if TYPE_CHECKING:
    from .edges import EdgeBasis


@dataclass(frozen=True, eq=False, repr=False)
class Derived(Basis):
    """A basis derived from ``base``, whose properties it has unless it overrides them."""

    base: Basis

    def __post_init__(self) -> None:
        nest(self, self.base)

    @property
    def num_bases(self) -> int:
        """Number of labels, K."""
        return self.base.num_bases

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets, (M, N)."""
        return self.base.size

    def shape_class(self) -> Hashable:
        """Cache key for the choice of an order; see :meth:`.Kind.shape_class`."""
        return type(self), self.num_bases, self.size, self.base.shape_class()

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self.base.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the values."""
        return self.base.dtype

    @property
    def learns(self) -> bool:
        """Whether any of its values requires gradients."""
        return self.base.learns

    @property
    def is_identity(self) -> bool:
        """Whether all matrices of the base are identities."""
        return self.base.is_identity

    def hidden(self) -> Basis | None:
        """The basis itself, or the part of its base that hides its edges; None if none does."""
        return super().hidden() or self.base.hidden()

    def grids(self) -> tuple[Shape, Shape] | None:
        """The grids of the base, if the nodes are the same."""
        return self.base.grids() if self.size == self.base.size else None

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """``change`` applied to every edge set: those of the base."""
        return replace(self, base=self.base.with_edges(change, same_nodes))
