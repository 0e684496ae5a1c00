"""Rules whose pairs fill blocks, so that attention over them needs no sparse matrix."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from .implicit_edges import ImplicitEdges

ADDS_NO_BIAS = "adds a bias to the scores of all pairs alone, not to those of a rule"


class Pairs(NamedTuple):
    """Pairs of a target and a source that attention looks at.

    Attributes:
        seen: how many, those that it leaves out afterwards counted.
        held: of how many the shares are held.
        windows: how many windows each head goes through one by one; 0 where it goes at once.
    """

    seen: float
    held: float
    windows: int = 0


class Beside(NamedTuple):
    """What attention over a rule has beside queries, keys and values.

    Attributes:
        bias: whether numbers are added to scores.
        present: whether some sources are left out.
        learns: whether the bias wants a gradient.
        drops: whether shares are dropped.
    """

    bias: bool = False
    present: bool = False
    learns: bool = False
    drops: bool = False


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DenseRule(ImplicitEdges):
    """A rule of one label that torch's attention, or products of blocks, can follow.

    A new one states what it cannot have beside (:meth:`lacks`), the pairs that it looks at, and how
    it attends.
    """

    @property
    def is_sorted(self) -> bool:
        """Whether what attention needs of the rule is made."""
        return True

    @abstractmethod
    def lacks(self, beside: Beside) -> list[str]:
        """Reasons why it cannot attend with this beside."""

    @abstractmethod
    def pairs(self, beside: Beside) -> Pairs:
        """What :meth:`attend` looks at."""

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
        """Shares of a softmax times values, in blocks: (N, H, C).

        Args:
            query: (N, H, D).
            key: (M, H, D).
            value: (M, H, C).
            bias: (E, H) added to scores of edges, or None.
            present: (M, H) booleans, the sources that there are, or None for all.
            scale: of the scores.
            dropped: the share of shares that is dropped.
        """
