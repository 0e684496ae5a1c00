"""Θ of a family with heads of attention: their values, and the form of all other labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module, ModuleList
from torch.nn.init import uniform_

from ..errors import RefusedValue
from ..families import Family
from ..theta import Theta, ThetaOfChannels, ThetaParts, ThetaValue, as_theta
from .theta import ChannelwiseTheta, ColumnsTheta, FullTheta, ThetaModule, make_theta, view_of


def glorot_of_heads(weight: Tensor, maps: int = 1) -> None:
    """Glorot-uniform weights (H, P, D), of one linear map P → H·D or of a part of ``maps``."""
    heads, fan_in, channels = weight.shape
    bound = math.sqrt(6.0 / max(fan_in + heads * channels * maps, 1))
    uniform_(weight, -bound, bound)


def linear_bias(bias: Tensor | None, fan_in: int) -> None:
    """The bias of a linear map from ``fan_in`` channels, uniform in ±1/√fan_in."""
    if bias is not None:
        bound = 1.0 / math.sqrt(max(fan_in, 1))
        uniform_(bias, -bound, bound)


def draw_heads(module: Any, maps: int = 1, biased: bool = False) -> None:
    """A weight drawn as one linear map to all heads, as in GAT, or as one of ``maps`` maps.

    ``biased``: whether the bias is drawn as that of a linear map, as in GATv2; else it stays.
    """
    glorot_of_heads(module.weight, maps)
    if biased:
        linear_bias(module.bias, module.weight.size(1))


class AveragedHeads(FullTheta):
    """Θ_h = V_h / H, so that the sum over heads is their mean."""

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Values of heads that are added up, and divided by their number."""
        self.require_shape()
        return Theta(self.weight, heads="sum", factor=1.0 / self.num_labels)

    forward = ThetaModule.forward


HEADS: dict[str, type[ThetaModule]] = {"concat": ColumnsTheta, "mean": AveragedHeads}


class FilterTheta(ChannelwiseTheta, by_name=False):
    """W, and a number for each term and output channel, whose label makes that channel alone.

    It has K·Q labels, of K terms of Q channels.
    """

    name = "filters"
    layout = "weight P Q; comp K/Q Q"

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """One matrix and filters of its channels."""
        self.require_shape()
        return ThetaOfChannels(self.weight, view_of(self.comp))


class PartsTheta(ThetaModule, by_name=False):
    """Θ in parts, one form for each run of labels, of equal P and Q."""

    name = "parts"
    option = 1

    def __init__(self, parts: Sequence[ThetaModule]) -> None:
        Module.__init__(self)  # a form without parameters of its own
        self.parts = ModuleList(parts)
        self.num_labels = sum(part.num_labels for part in parts)
        self.out_channels = parts[0].out_channels

    @property
    def in_channels(self) -> int:  # type: ignore[override]
        """P, or -1."""
        return self._parts[0].in_channels

    def materialize(self, in_channels: int) -> None:
        """Allocate and initialise the parameters of all parts for P channels."""
        for part in self._parts:
            part.materialize(in_channels)

    def reset_parameters(self) -> None:
        """Draw the parameters of all parts anew."""
        for part in self._parts:
            part.reset_parameters()

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """The parts, each in its form."""
        return ThetaParts(tuple(as_theta(part.parameter(like)) for part in self._parts))

    @property
    def _parts(self) -> list[ThetaModule]:
        """The forms, typed."""
        return list(self.parts)  # type: ignore[arg-type]


def theta_of(
    family: Family,
    form: str,
    in_channels: int,
    out_channels: int,
    max_parameters: int | None = None,
) -> ThetaModule:
    """Θ of a layer over a family: in one form, or in parts where heads are put together.

    :meth:`~.Family.combinations` says how; ``form`` is that of all other labels.
    """
    runs = family.combinations()
    start = family.initial_coefficients
    if all(combine == "sum" for combine, _ in runs):
        theta = make_theta(form, family.num_bases, in_channels, out_channels, max_parameters)
        if start is not None:
            theta.start_with(start)
        return theta
    others = ("full", "channelwise") if runs == [("channels", family.num_bases)] else ("full",)
    if form not in others and all(combine != "sum" for combine, _ in runs):
        rule = "heads that are put together have values of their own, and no other theta"
        raise RefusedValue(rule, "theta='full', or heads with combine='sum'", form)
    parts: list[ThetaModule] = []
    first = 0
    for combine, count in runs:
        if combine == "sum":
            parts.append(make_theta(form, count, in_channels, out_channels, max_parameters))
        elif combine == "channels":
            parts.append(FilterTheta(count * out_channels, in_channels, out_channels))
        else:  # drawn as one linear map
            parts.append(HEADS[combine](count, -1, out_channels))
            parts[-1].initial = draw_heads
            if in_channels >= 0:
                parts[-1].materialize(in_channels)
        if start is not None:
            parts[-1].start_with(start[first : first + count])
        first += count
    return parts[0] if len(parts) == 1 else PartsTheta(parts)


def check_reduction(family: Family, label_aggr: str) -> None:
    """Raise ValueError if labels are not added up, and heads are put together."""
    combined = any(combine != "sum" for combine, _ in family.combinations())
    if combined and label_aggr != "sum":
        rule = "heads that are put together are added to other labels"
        raise RefusedValue(rule, "label_aggr='sum', or heads with combine='sum'", label_aggr)
