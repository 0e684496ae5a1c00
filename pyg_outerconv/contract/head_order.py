"""Base classes of the orders for heads: apply the matrix of each head before or after Θ."""

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
    """An order in which the matrix A_h of each head is applied to rows of that head.

    A subclass states :meth:`needs`, :meth:`propagating` and :meth:`propagate`. Deriving from
    :class:`TransformHeadsFirst` or :class:`PropagateHeadsFirst` then places Θ.
    """

    def needs(self, problem: Problem) -> list[str]:
        """Reasons why this basis, although of a kind in ``solves``, cannot be propagated by."""
        return []

    @abstractmethod
    def propagating(self, problem: Problem, width: int) -> tuple[Work, Work, float]:
        """Forward and backward work of :meth:`propagate` with C = width, and bytes allocated."""

    @abstractmethod
    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head: (M, *batch, H, C) to (N, *batch, H, C)."""


class TransformHeadsFirst(HeadOrder):
    """X Θ_h first, or the values of each head."""

    def lacks(self, problem: Problem) -> list[str]:
        """Requires a fitting batch, and what :meth:`needs` lists."""
        return why_no_batch(problem) + self.needs(problem)

    def cost(self, problem: Problem) -> Cost:
        """The products that make the values, and their propagation at width V."""
        made, back_made = making_values(problem)
        sent, back_sent, held = self.propagating(problem, value_width(problem))
        return Cost(made + sent, back_made + back_sent, held)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q) of the values that each target receives."""
        return collect_values(problem, self.propagate(problem, values(problem)))


class PropagateHeadsFirst(HeadOrder):
    """A_hᵀ X first, at width P for each head, then Θ_h."""

    def lacks(self, problem: Problem) -> list[str]:
        """Requires features, a fitting batch, values without a bias, and what `needs` lists."""
        reasons = needs_features(problem) + why_no_batch(problem)
        return reasons or self.needs(problem) + needs_no_bias(problem)

    def cost(self, problem: Problem) -> Cost:
        """The propagation of X at width P, and N·H·P·Q dense."""
        sent, back_sent, held = self.propagating(problem, problem.in_channels)
        rows = float(problem.basis.size[1] * problem.num_labels * problem.num_columns)
        after, back_after = dense_product(problem, rows, True)
        held += rows * problem.in_channels * problem.itemsize
        return Cost(sent + after, back_sent + back_after, held)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q) of the features that each target receives."""
        return collect_features(problem, self.received(problem))

    def received(self, problem: Problem) -> Tensor:
        """A_hᵀ X, the features that each head receives: (N, *batch, H, P)."""
        return self.propagate(problem, features(problem))
