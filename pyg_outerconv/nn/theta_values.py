"""Forms of Θ whose labels have values of their own, which are put side by side or projected."""

from __future__ import annotations

import math

from torch import Tensor

from ..errors import RefusedValue, refusal
from ..theta import ThetaValue, ValueOutput
from .theta import ThetaModule, view_of


class ColumnsTheta(ThetaModule):
    """Θ_k zero outside its own block of columns: K·P·(Q/K) = P·Q numbers.

    Label k makes the k-th of K equal parts of the output, which is their concatenation.
    """

    name = "columns"

    weight: Tensor

    def check(self) -> None:
        """K divides Q."""
        if self.out_channels % self.num_labels:
            raise RefusedValue(
                refusal(
                    "columns are as many for each label",
                    f"out_channels a multiple of {self.num_labels}",
                    self.out_channels,
                )
            )

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (K, P, Q/K)."""
        return {"weight": (self.num_labels, in_channels, self.out_channels // self.num_labels)}

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Values whose heads are put side by side."""
        self.require_shape()
        return ValueOutput(view_of(self.weight))

    def build(self) -> Tensor:
        """The weight, each label in its place."""
        return ValueOutput(self.weight).full()


class ValueOutputTheta(ThetaModule):
    """Θ_k = V_k O_k, values of ``channels`` numbers, and a projection of all of them to the output.

    K·V·(P + Q) numbers, as ``low-rank`` has, and the products are never made: label k is
    propagated at width V. The value and output projections of *Attention Is All You Need* (section
    3.2.2). Weights begin as those of one linear map from P to K·V, and one from K·V to Q.
    """

    name, argument = "value-output", "channels"

    value: Tensor
    output: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """value (K, P, V), output (K, V, Q)."""
        return {
            "value": (self.num_labels, in_channels, self.option),
            "output": (self.num_labels, self.option, self.out_channels),
        }

    def draw(self, parameter: Tensor, bound: float) -> None:
        """See :class:`ThetaModule`; fan-in or fan-out is that of all labels at once."""
        wide, narrow = self.num_labels * self.option, parameter.size(1) + parameter.size(2)
        bound = math.sqrt(6.0 / (narrow - self.option + wide))
        parameter.uniform_(-bound, bound)

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Values and outputs, not multiplied."""
        self.require_shape()
        return ValueOutput(view_of(self.value), view_of(self.output))

    def build(self) -> Tensor:
        """The products."""
        return ValueOutput(self.value, self.output).full()
