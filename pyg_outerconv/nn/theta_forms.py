"""The forms of Θ, full or with fewer parameters, and the parsing of their names."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..signatures import typed
from ..theta import Theta, ThetaValue
from .theta import FORMS, ThetaModule, view_of

DRAWN = 2**20
"""Numbers that are drawn at once, beside the parameter."""

DRAWN_APART = 1000
"""Up to so many labels are drawn one by one where a draw of all is another than those of each."""


class FullTheta(ThetaModule):
    """Θ_k without constraints: K·P·Q numbers."""

    name = "full"

    weight: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (K, P, Q)."""
        return {"weight": (self.num_labels, in_channels, self.out_channels)}

    def forward(self) -> Tensor:
        if self.in_channels < 0:
            self.require_shape()
        return self.weight.unsqueeze(1)

    def draw(self, parameter: Tensor, bound: float) -> None:
        """Draw label by label and transposed, in the layout of PyG's Linear.

        With equal seeds GCNConv, ChebConv and an equal OuterConv then have equal initial weights.
        A CPU draws number by number, so that many labels are drawn at once there; elsewhere the
        draws of more labels than any layer of PyG's draws apart are of their own.
        """
        at_once = parameter.is_cpu or parameter.size(0) > DRAWN_APART
        step = max(1, DRAWN // max(1, parameter[0].numel())) if at_once else 1
        for part in parameter.split(step):
            drawn = part.new_empty((len(part), *parameter.shape[:0:-1])).uniform_(-bound, bound)
            part.copy_(drawn.mT)


class SharedTheta(ThetaModule):
    """Θ_k = V for every label: P·Q numbers. The bases are summed first."""

    name = "shared"

    weight: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (P, Q)."""
        return {"weight": (in_channels, self.out_channels)}

    def channels_of(self, shape: tuple[int, ...]) -> int:
        """P, from the shape of the first parameter."""
        return shape[0] if shape else 0

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """One matrix, with coefficient 1 for every label."""
        self.require_shape()
        ones = self.weight.new_ones((self.num_labels, 1))
        return Theta(self.weight.unsqueeze(0).unsqueeze(0), ones)


class BasisDecomposedTheta(ThetaModule):
    """Θ_k = Σ_b c_kb V_b with ``num_bases`` matrices V_b: K·B + B·P·Q numbers.

    From the `"Modeling Relational Data with Graph Convolutional Networks"
    <https://arxiv.org/abs/1703.06103>`_ paper, equation 3.
    """

    name, argument = "basis-decomposed", "num_bases"

    weight: Tensor
    comp: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (B, P, Q), comp (K, B)."""
        return {
            "weight": (self.option, in_channels, self.out_channels),
            "comp": (self.num_labels, self.option),
        }

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """The mixture of the matrices V_b."""
        self.require_shape()
        return Theta(self.weight.unsqueeze(1), view_of(self.comp))


class LowRankTheta(ThetaModule):
    """Θ_k = U_k V_k of ``rank`` r at most: K·r·(P + Q) numbers."""

    name, argument = "low-rank", "rank"

    down: Tensor
    up: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """down (K, P, r), up (K, r, Q)."""
        return {
            "down": (self.num_labels, in_channels, self.option),
            "up": (self.num_labels, self.option, self.out_channels),
        }

    def build(self) -> Tensor:
        return (self.down @ self.up).unsqueeze(1)


class GroupedTheta(ThetaModule):
    """Θ_k block-diagonal with G = ``groups`` blocks of P/G × Q/G: K·P·Q/G numbers."""

    name, argument = "grouped", "groups"

    weight: Tensor

    def check(self) -> None:
        """G divides P and Q."""
        super().check()
        for what, count in (("in_channels", self.in_channels), ("out_channels", self.out_channels)):
            if count >= 0 and count % self.option:
                raise RefusedValue(
                    f"{self.argument} must divide {what}", f"a divisor of {count}", self.option
                )

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (K, G, P/G, Q/G)."""
        return {
            "weight": (
                self.num_labels,
                self.option,
                in_channels // self.option,
                self.out_channels // self.option,
            )
        }

    def channels_of(self, shape: tuple[int, ...]) -> int:
        """P, from the shape of the first parameter."""
        return math.prod(shape[1:3])

    def build(self) -> Tensor:
        return view_of(self.weight)


class BlockDiagonalTheta(GroupedTheta):
    """Θ_k block-diagonal with ``num_blocks`` blocks: R-GCN's name for groups (its equation 4)."""

    name, argument = "block-diagonal", "num_blocks"


class DepthwiseTheta(ThetaModule):
    """Each input channel is transformed separately: K·Q numbers; Q is a multiple of P."""

    name = "depthwise"

    weight: Tensor

    def check(self) -> None:
        """P divides Q."""
        super().check()
        if self.in_channels > 0 and self.out_channels % self.in_channels:
            raise RefusedValue(
                "depthwise needs out_channels that in_channels divides",
                f"a multiple of {self.in_channels}",
                self.out_channels,
            )

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (K, P, 1, Q/P)."""
        return {
            "weight": (self.num_labels, in_channels, 1, self.out_channels // max(in_channels, 1))
        }

    def build(self) -> Tensor:
        return view_of(self.weight)


class IdentityTheta(ThetaModule):
    """Θ_k = I for every label: no parameters, Q = P. For pooling and fixed propagation.

    ``out_channels=-1`` stands for P.
    """

    name = "identity"

    def check(self) -> None:
        """Q = P, or -1."""
        if self.in_channels >= 0 and self.out_channels not in (-1, self.in_channels):
            raise RefusedValue(
                "theta 'identity' has as many out_channels as in_channels",
                f"{self.in_channels}, or -1",
                self.out_channels,
            )

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        return {}

    def materialize(self, in_channels: int) -> None:
        """Set P, and Q = P."""
        super().materialize(in_channels)
        self.out_channels = in_channels

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """The identity as a mixture, which needs no product; without ``like`` in default dtype."""
        self.require_shape()
        like = torch.empty(0) if like is None else like
        return Theta.identity(self.num_labels, self.in_channels, like)


_SHORT = re.compile(r":(\d+)\s*$")


@typed
def make_theta(
    spec: str,
    num_labels: int,
    in_channels: int,
    out_channels: int,
    max_parameters: int | None = None,
) -> ThetaModule:
    """The form that a text names: ``'full'``, ``'shared'``, ``'depthwise'``, ``'identity'``,
    ``'columns'``, ``'basis-decomposed(num_bases=30)'``, ``'block-diagonal(num_blocks=4)'``,
    ``'low-rank(rank=8)'``, ``'grouped(groups=4)'``, or shorter ``'low-rank:8'``.

    Raises:
        ValueError: the form is unknown, its option is missing, superfluous, or does not fit; or it
            would have more than ``max_parameters``.
    """
    form = FORMS.kind_in(str(spec))
    name, option = form.name, form.argument
    wanted = name if option is None else f"{name}({option}=...)"
    rule = f"theta {name!r} is written with its option and no other"
    refused = RefusedValue(rule, repr(wanted), repr(spec))
    try:
        _, numbers, named = FORMS.read(_SHORT.sub(r"(\1)", str(spec)))
    except RefusedValue as error:
        raise refused from error
    numbers += named.values()
    if len(numbers) != (option is not None) or not all(0 <= number < 10**9 for number in numbers):
        raise refused
    number = numbers[0] if numbers else 1
    return form(num_labels, in_channels, out_channels, number, max_parameters)


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
                "columns are as many for each label",
                f"out_channels a multiple of {self.num_labels}",
                self.out_channels,
            )

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (K, P, Q/K)."""
        return {"weight": (self.num_labels, in_channels, self.out_channels // self.num_labels)}

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Values of heads that are concatenated."""
        self.require_shape()
        return Theta(self.weight.unsqueeze(1), heads="concat")


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
        return Theta(self.value.unsqueeze(1), outer=view_of(self.output))
