"""What orders of heads are: a way to apply the matrices of heads, before or after Θ."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from .cost import Cost, Work
from .head_products import (
    collect_features,
    collect_values,
    features,
    making_values,
    needs_no_bias,
    value_width,
    values,
    why_no_batch,
)
from .order import Order, needs_features
from .problem import Problem
from .work import dense_product


class HeadOrder(Order):
    """An order that applies A_h of every head to something of its own.

    A new way to do so states :meth:`needs`, :meth:`propagating` and :meth:`propagate`; what comes
    before and after is :class:`TransformHeadsFirst` or :class:`PropagateHeadsFirst`.
    """

    def needs(self, problem: Problem) -> list[str]:
        """Reasons why a basis of its kind does not fit."""
        return []

    @abstractmethod
    def propagating(self, problem: Problem, width: int) -> tuple[Work, Work, float]:
        """Forward and backward of :meth:`propagate` at this width, and the bytes that it holds."""

    @abstractmethod
    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head: (M, *batch, H, C) to (N, *batch, H, C)."""


class TransformHeadsFirst(HeadOrder):
    """X Θ_h first, or the values of each head."""

    def lacks(self, problem: Problem) -> list[str]:
        """It needs what the way of propagating does."""
        return why_no_batch(problem) + self.needs(problem)

    def cost(self, problem: Problem) -> Cost:
        """Making values, and propagating them."""
        made, back_made = making_values(problem)
        sent, back_sent, held = self.propagating(problem, value_width(problem))
        return Cost(made + sent, back_made + back_sent, held)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        return collect_values(problem, self.propagate(problem, values(problem)))


class PropagateHeadsFirst(HeadOrder):
    """A_hᵀ X first, at width P for each head, then Θ_h."""

    def lacks(self, problem: Problem) -> list[str]:
        """It needs what the way of propagating does, features, and values without a bias."""
        reasons = needs_features(problem) + why_no_batch(problem)
        return reasons or self.needs(problem) + needs_no_bias(problem)

    def cost(self, problem: Problem) -> Cost:
        """Propagating X, and N·H·P·Q dense."""
        sent, back_sent, held = self.propagating(problem, problem.in_channels)
        rows = float(problem.basis.size[1] * problem.num_labels * problem.num_columns)
        after, back_after = dense_product(problem, rows, True)
        held += rows * problem.in_channels * problem.itemsize
        return Cost(sent + after, back_sent + back_after, held)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        return collect_features(problem, self.received(problem))

    def received(self, problem: Problem) -> Tensor:
        """The features that each head receives, (N, *batch, H, P)."""
        return self.propagate(problem, features(problem))
