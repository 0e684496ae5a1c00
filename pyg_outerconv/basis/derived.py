"""What bases made of one other have in common."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .base import Basis, nest


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
