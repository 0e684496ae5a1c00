"""Rules whose edges can be counted without making them, and are made if an order needs them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple
from weakref import ref

import torch
from torch import Tensor
from typing_extensions import Self

from ..kernels.lasting import lasting
from ..memo import cached_property
from .base import Basis, picked
from .edges import EdgeBasis
from .pattern import Pattern, index_type


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImplicitEdges(Basis):
    """A rule that defines edges of value 1: grids, bands, blocks, unit matrices.

    The number of edges is known without making them, so that orders by edges can be priced. Edges
    are made at the first call of :meth:`edges`, and cached. Unlike those of powers and products,
    they are no more than the work that the rule itself takes.

    Attributes:
        on: the device of the edges.
        is_transposed: whether every matrix is transposed.
    """

    is_leaf: ClassVar[bool] = True

    on: torch.device = field(repr=False)
    is_transposed: bool = False

    @property
    @abstractmethod
    def counts(self) -> tuple[int, int, int]:
        """Numbers of edges E, of distinct pairs (source, label) U_in, and (target, label) U_out."""

    @abstractmethod
    def make_edges(self) -> EdgeBasis:
        """Make the edges; :meth:`edges` caches them."""

    @property
    def num_edges(self) -> int:
        """Number of edges E, parallel edges included."""
        return self.counts[0]

    @property
    def num_source_pairs(self) -> int:
        """Number of distinct pairs (source, label), U_in."""
        return self.counts[1]

    @property
    def num_target_pairs(self) -> int:
        """Number of distinct pairs (target, label), U_out."""
        return self.counts[2]

    @cached_property
    def _edges(self) -> EdgeBasis:
        tensors = (part for part in vars(self).values() if isinstance(part, Tensor))
        with lasting(next(tensors, None)):
            return self.make_edges()

    @property
    def has_edges(self) -> bool:
        """Whether the edges exist already, so that :meth:`edges` costs nothing."""
        return "_edges" in vars(self)

    def edges(self) -> EdgeBasis:
        return self._edges

    def propagate_rows(self, x: Tensor, aggr: str = "sum", few: int | None = None) -> Tensor:
        """As its edges, see :meth:`EdgeBasis.propagate_rows`; a rule may know a faster product."""
        return self.edges().propagate_rows(x, aggr, few)

    def gather(self, z: Tensor, few: int | None = None) -> Tensor:
        """As its edges, see :meth:`EdgeBasis.gather`; a rule may know a faster product."""
        return self.edges().gather(z, few)

    def plan_key(self) -> tuple[Hashable, ...]:
        return (ref(self),)  # costs count its edges

    def transpose(self) -> Self:
        return replace(self, is_transposed=not self.is_transposed)

    def narrowed(self, place: range | Tensor) -> Edges:
        """The columns of some targets (N',), in the given order; targets may be repeated."""
        return self.edges().narrowed(place)

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickling, without cached edges."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@picked.register
def _(basis: ImplicitEdges, labels: Sequence[int]) -> Basis | None:
    """The edges of the selected labels; None for a rule of one label."""
    return None if basis.num_bases == 1 else basis.edges().select(labels)


Edges = EdgeBasis | ImplicitEdges
"""Edges that can be counted: a list of them, or a rule."""


def counted(basis: Basis) -> Edges:
    """The edges of a basis, or the rule itself if it can count its edges."""
    return basis if isinstance(basis, ImplicitEdges) else basis.edges()


def unlabelled_edges(source: Tensor, target: Tensor, size: tuple[int, int]) -> EdgeBasis:
    """Edges (E,) of value 1 and label 0, which must be sorted by target, then source."""
    dtype = index_type(size, 1, source.numel())
    source, target = source.to(dtype), target.to(dtype)
    label = torch.zeros_like(source)
    return EdgeBasis(Pattern.of_sorted(source, target, label, size=size, num_labels=1))


def sorted_pairs(index: Tensor, size: tuple[int, int]) -> EdgeBasis:
    """Edges of value 1 from pairs (2, E) of a source and a target, sorted, without repetitions."""
    rows = max(size[0], 1)
    key = torch.unique(index[1].long() * rows + index[0])
    return unlabelled_edges(key % rows, key // rows, size)


ADDS_NO_BIAS = "adds a bias to the scores of all pairs alone, not to those of a rule"


class PairCounts(NamedTuple):
    """Numbers of (target, source) pairs that attention over a rule computes.

    Attributes:
        seen: the number of pairs whose scores are computed, masked ones included.
        stored: the number of pairs whose attention weights are stored.
        windows: the number of windows that are computed one by one; 0 if all are computed at once.
    """

    seen: float
    stored: float
    windows: int = 0


class ExtraOperands(NamedTuple):
    """Further operands of attention over a rule, beside queries, keys and values.

    Attributes:
        bias: whether a bias is added to scores.
        present: whether some sources are masked.
        learns: whether the bias requires gradients.
        drops: whether attention weights are dropped.
    """

    bias: bool = False
    present: bool = False
    learns: bool = False
    drops: bool = False


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DenseRule(ImplicitEdges):
    """A rule of one label over which torch's attention, or attention in blocks, can run.

    A subclass defines :meth:`lacks`, :meth:`pairs` and :meth:`attend`.
    """

    @property
    def num_bases(self) -> int:
        return 1

    @property
    def is_sorted(self) -> bool:
        """Whether the preparation for attention, if any, has been done."""
        return True

    @abstractmethod
    def lacks(self, beside: ExtraOperands) -> list[str]:
        """Reasons why attention over the rule cannot have these further operands."""

    @abstractmethod
    def pairs(self, beside: ExtraOperands) -> PairCounts:
        """The numbers of pairs that :meth:`attend` computes."""

    @abstractmethod
    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, **options: Any
    ) -> Tensor:
        """Softmax attention over the rule: (N, H, C)."""
