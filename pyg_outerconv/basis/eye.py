"""The identity as a rule: one label, no edges held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cache import cached_property
from .base import Basis
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .pattern import Pattern

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf, Sender


@dataclass(frozen=True, eq=False, repr=False)
class Eye(Basis):
    """One M × N matrix with ones where m = n. Where M ≠ N, only min(M, N) nodes see themselves."""

    shape: tuple[int, int]
    on: torch.device

    @property
    def num_bases(self) -> int:
        """1."""
        return 1

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.shape

    def shape_class(self) -> tuple[int, int]:
        """See :meth:`Basis.shape_class`."""
        return self.shape

    @property
    def device(self) -> torch.device:
        """Where its edges will be."""
        return self.on

    @property
    def dtype(self) -> torch.dtype | None:
        """None: ones fit any type."""
        return None

    @cached_property
    def _pattern(self) -> Pattern:
        with torch.inference_mode(False):  # What is kept must serve training too.
            nodes = torch.arange(min(self.shape), device=self.on)
            added = torch.full_like(nodes, -1)
            return Pattern.build(nodes.expand(2, -1), size=self.shape, origin=added)

    def edges(self) -> EdgeBasis:
        """Edges n → n for n < min(M, N), made once."""
        return EdgeBasis(self._pattern)

    def mean(self, dtype: torch.dtype | None = None) -> Eye:
        """Itself: every target has one edge at most."""
        return self

    @property
    def is_identity(self) -> bool:
        """True."""
        return True

    def with_edges(self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False) -> Eye:
        """Itself: it is made of no edges."""
        return self

    def transposed(self) -> Eye:
        """The identity of the other size."""
        return Eye(self.shape[::-1], self.on)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """See :meth:`.Kind.reached`: what is seen itself."""
        out = seen.new_zeros(self.size[transposed])
        shared = min(self.size) if labels else 0
        out[:shared] = seen[:shared]
        return out

    def taken(self) -> range:
        """See :meth:`.Kind.taken`."""
        return range(self.size[1])

    def propagate(self, x: Tensor) -> Tensor:
        """See :meth:`.Kind.propagate`: X itself, zeros where a target has no source."""
        kept = x[: self.size[1]].unsqueeze(1)
        missing = self.size[1] - kept.size(0)
        return F.pad(kept, (0, 0) * (kept.dim() - 1) + (0, missing)) if missing else kept

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """None: nothing is multiplied."""
        return []

    def send(self, sender: Sender) -> Tensor:
        """See :meth:`.Kind.send`: nodes keep what they have."""
        return sender.to_itself(self)

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Itself: an order knows the identity."""
        return [(self, theta)]

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Eye:
        """See :meth:`Basis.map`."""
        moved = index_map(torch.empty(0, device=self.on))  # there is no tensor to ask but a new one
        return Eye(self.shape, moved.device)

    def __repr__(self) -> str:
        return f"Eye(size={self.shape})"
