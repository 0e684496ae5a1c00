"""The identity and all unit matrices, as rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedValue
from ..memo import cached_property
from ..signatures import typed
from .base import Basis
from .edge_sets import averaged, with_edges
from .edges import EdgeBasis
from .implicit_edges import ImplicitEdges
from .pattern import Pattern


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Eye(Basis):
    """The M × N identity, one matrix with ones where m = n < min(M, N).

    Attributes:
        shape: (M, N).
        on: its device.
    """

    is_leaf: ClassVar[bool] = True

    shape: tuple[int, int] = field(repr=False)
    on: torch.device = field(repr=False)

    @property
    def num_bases(self) -> int:
        return 1

    @property
    def size(self) -> tuple[int, int]:
        return self.shape

    def plan_key(self) -> tuple[Hashable, ...]:
        return self.shape, self.on

    @cached_property
    def _pattern(self) -> Pattern:
        with torch.inference_mode(False):  # the cached pattern must serve training too
            nodes = torch.arange(min(self.shape), device=self.on)
            added = torch.full_like(nodes, -1)
            return Pattern.build(nodes.expand(2, -1), size=self.shape, origin=added)

    def edges(self) -> EdgeBasis:
        """The edges n → n for n < min(M, N), cached."""
        return EdgeBasis(self._pattern)

    def transpose(self) -> Eye:
        return Eye(self.shape[::-1], self.on)

    def propagate(self, x: Tensor) -> Tensor:
        """H_0 = X, with zeros for targets n >= M."""
        kept = x[: self.size[1]].unsqueeze(1)
        missing = self.size[1] - kept.size(0)
        return F.pad(kept, (0, 0) * (kept.dim() - 1) + (0, missing)) if missing else kept


@with_edges.register
def _(basis: Eye, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False) -> Eye:
    return basis  # it contains no edge sets


@averaged.register
def _(basis: Eye, dtype: torch.dtype | None = None) -> Eye:
    return basis  # every target has at most one edge


@typed
@dataclass(frozen=True, eq=False, repr=False)
class UnitMatrices(ImplicitEdges):
    """The K = M·N matrices with a single one: label k = m·N + n has only the edge m → n.

    Every matrix is a linear combination of these, so that a convolution over them is a fully
    connected layer.

    Attributes:
        shape: (M, N) before transposition; if transposed, label m·N + n has the edge n → m.

    Raises:
        ValueError: a number of nodes is negative.
    """

    shape: tuple[int, int] = field(repr=False)

    def __post_init__(self) -> None:
        if min(self.shape) < 0:
            raise RefusedValue("a matrix has a size", "M, N >= 0", self.shape)

    @property
    def num_bases(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        return self.shape[::-1] if self.is_transposed else self.shape

    @property
    def counts(self) -> tuple[int, int, int]:
        return (self.num_bases,) * 3  # one edge for each label

    def make_edges(self) -> EdgeBasis:
        label = torch.arange(self.num_bases, device=self.on)
        columns = max(self.shape[1], 1)
        index = torch.stack([label // columns, label % columns])
        pattern = Pattern.build(
            index.flip(0) if self.is_transposed else index,
            label,
            size=self.size,
            num_labels=self.num_bases,
            origin=torch.full_like(label, -1),
        )
        return EdgeBasis(pattern)


@averaged.register
def _(basis: UnitMatrices, dtype: torch.dtype | None = None) -> UnitMatrices:
    return basis  # no target has two edges of one label
