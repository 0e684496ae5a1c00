"""Rules whose edges fill dense blocks, over which attention needs no sparse matrix."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from .implicit_edges import ImplicitEdges

ADDS_NO_BIAS = "adds a bias to the scores of all pairs alone, not to those of a rule"


class PairCounts(NamedTuple):
    """Numbers of (target, source) pairs that attention over a rule computes.

    Attributes:
        seen: the number of pairs whose scores are computed, masked ones included.
        held: the number of pairs whose attention weights are stored.
        windows: the number of windows that are computed one by one; 0 if all are computed at once.
    """

    seen: float
    held: float
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
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        present: Tensor | None,
        scale: float,
        dropped: float,
    ) -> Tensor:
        """Softmax attention over the rule: (N, H, C).

        Args:
            query: (N, H, D).
            key: (M, H, D).
            value: (M, H, C).
            bias: (E, H) added to the scores of edges, or None.
            present: (M, H) booleans, the sources that may be attended to, or None for all.
            scale: the factor of the dot products.
            dropped: the probability with which an attention weight is dropped.
        """
