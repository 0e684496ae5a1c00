"""Rules whose edges are counted without making them, and made once where an order wants them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..kernels.lasting import lasting
from .base import Basis
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .pattern import Pattern, index_type

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..theta import Theta
    from .kind import Leaf


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImplicitEdges(Basis):
    """A rule with about as many edges as it has work: grids, bands, blocks, unit matrices.

    An order may ask for the edges, and then they are kept. Unlike powers and products they are
    worth making; and unlike them they can be counted beforehand, so that the cost of orders with
    edges is known before there are any.

    They are made of ones, and are as easily turned as not.

    Attributes:
        on: where edges will be.
        is_transposed: whether every matrix is transposed.
    """

    on: torch.device
    is_transposed: bool = False
    kept: dict[str, EdgeBasis] = field(default_factory=dict)

    @property
    @abstractmethod
    def num_edges(self) -> int:
        """E, parallel edges counted each."""

    @property
    @abstractmethod
    def num_source_pairs(self) -> int:
        """U_in, the number of distinct (source, label)."""

    @property
    @abstractmethod
    def num_target_pairs(self) -> int:
        """U_out, the number of distinct (target, label)."""

    @abstractmethod
    def make_edges(self) -> EdgeBasis:
        """The edges, made anew."""

    @property
    def has_edges(self) -> bool:
        """Whether the edges were made."""
        return "edges" in self.kept

    def edges(self) -> EdgeBasis:
        """The edges, made at the first call."""
        if "edges" not in self.kept:
            with lasting(torch.empty(0)):
                self.kept["edges"] = self.make_edges()
        return self.kept["edges"]

    @property
    def device(self) -> torch.device:
        """Where its edges will be."""
        return self.on

    @property
    def dtype(self) -> torch.dtype | None:
        """None: ones fit any type."""
        return None

    def transpose(self) -> Self:
        """The transposed matrices, again a rule."""
        return replace(self, is_transposed=not self.is_transposed, kept={})

    def transposed(self) -> Self:
        """The transpose, which is nothing put off."""
        return self.transpose()

    def whole(self) -> Self:
        """Itself: it counts its edges."""
        return self

    def taken(self) -> range | Tensor | None:
        """See :meth:`.Kind.taken`: as its edges say."""
        return None if self.num_bases > 1 else self.edges().taken()

    def narrowed(self, place: range | Tensor) -> EdgeBasis | ImplicitEdges:
        """What reaches some targets (N',), in their new order; one may come twice."""
        return self.edges().narrowed(place)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """See :meth:`.Kind.products`: itself, whose edges are counted without making them."""
        return [(self, shape, learns)]

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Itself: orders ask for its edges, or know the rule."""
        return [(self, theta)]

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Self:
        """See :meth:`Basis.map`."""
        on = index_map(torch.empty(0, device=self.on)).device  # there is no other tensor to ask
        return self if on == self.on else replace(self, on=on, kept={})

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the rule alone."""
        return {**vars(self), "kept": {}}


def unlabelled_edges(source: Tensor, target: Tensor, size: tuple[int, int]) -> EdgeBasis:
    """Edges (E,) of ones that are listed by target, then source; no label tells them apart."""
    dtype = index_type(size, 1, source.numel())
    source, target = source.to(dtype), target.to(dtype)
    label = torch.zeros_like(source)
    return EdgeBasis(Pattern.of_sorted(source, target, label, size=size, num_labels=1))


def sorted_pairs(index: Tensor, size: tuple[int, int]) -> EdgeBasis:
    """The pairs (2, E) of a source and a target, in any order, as edges of ones, each once."""
    rows = max(size[0], 1)
    key = torch.unique(index[1].long() * rows + index[0])
    return unlabelled_edges(key % rows, key // rows, size)
