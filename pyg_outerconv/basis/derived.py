"""What bases made of one other have in common."""

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
    """A basis made of one other, which it resembles in all that it does not say itself."""

    base: Basis

    def __post_init__(self) -> None:
        nest(self, self.base)

    @property
    def num_bases(self) -> int:
        """K."""
        return self.base.num_bases

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.base.size

    def shape_class(self) -> Hashable:
        """See :meth:`Basis.shape_class`."""
        return type(self), self.num_bases, self.size, self.base.shape_class()

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.base.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the values."""
        return self.base.dtype

    @property
    def learns(self) -> bool:
        """Whether any of its values requires a gradient."""
        return self.base.learns

    @property
    def is_identity(self) -> bool:
        """Whether the base is made of identities alone."""
        return self.base.is_identity

    def hidden(self) -> Basis | None:
        """The part of the base that hides its edges."""
        return super().hidden() or self.base.hidden()

    def grids(self) -> tuple[Shape, Shape] | None:
        """Those of the base, where nodes are the same."""
        return self.base.grids() if self.size == self.base.size else None

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """See :meth:`.Kind.with_edges`: those of the base."""
        return replace(self, base=self.base.with_edges(change, same_nodes))
