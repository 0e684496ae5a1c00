"""Rules whose edges are counted without making them, and made once where an order wants them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch

from .base import Basis
from .edges import EdgeBasis
from .pattern import lasting


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OnDemand(Basis):
    """A rule with about as many edges as it has work: grids, and unit matrices.

    An order may ask for the edges, and then they are kept. Unlike powers and products they are
    worth making; and unlike them they can be counted beforehand, so that the cost of orders with
    edges is known before there are any.

    Attributes:
        plans: contraction orders that were chosen for this basis, kept by what they depend on.
    """

    plans: dict[Any, str] = field(default_factory=dict)
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

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the rule alone."""
        return {**vars(self), "plans": {}, "kept": {}}
