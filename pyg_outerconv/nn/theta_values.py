"""Forms of Θ with values for each label, which are concatenated or projected."""

from __future__ import annotations

import math

from torch import Tensor

from ..errors import RefusedValue, refusal
from ..theta import ThetaValue, ValueOutput
from .theta import ThetaModule, view_of


class ColumnsTheta(ThetaModule):
    """Θ_k is zero outside its block of Q/K columns: K·P·(Q/K) = P·Q numbers.

    The output is the concatenation of the results of all labels, Q/K channels each.
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
        """Values of heads that are concatenated."""
        self.require_shape()
        return ValueOutput(view_of(self.weight))

    def build(self) -> Tensor:
        """The weight of each label in its block of columns, zeros elsewhere."""
        return ValueOutput(self.weight).full()


class ValueOutputTheta(ThetaModule):
    """Θ_k = V_k O_k: values of V = ``channels`` numbers, and an output projection.

    K·V·(P + Q) numbers, as in ``low-rank``, but the products V_k O_k are not computed: label k is
    propagated at width V. These are the value and output projections of *Attention Is All You Need*
    (section 3.2.2). Initial weights are those of one linear map P → K·V and one K·V → Q.
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
        """Glorot-uniform, with fan-in or fan-out of all labels together."""
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
