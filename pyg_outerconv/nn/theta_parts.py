"""Θ of a family with heads of attention: their values, and the form of all other labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor
from torch.nn import ModuleList
from torch.nn.init import uniform_

from ..errors import RefusedValue
from ..families import Family
from ..theta import Theta, ThetaParts, ThetaValue, as_theta
from .theta import ColumnsTheta, FullTheta, ThetaModule, make_theta


def glorot_of_heads(weight: Tensor, maps: int = 1) -> None:
    """Glorot-uniform weights (H, P, D), of one linear map P → H·D or of a part of ``maps``."""
    heads, fan_in, channels = weight.shape
    bound = math.sqrt(6.0 / max(fan_in + heads * channels * maps, 1))
    uniform_(weight, -bound, bound)


class ConcatenatedHeads(ColumnsTheta):
    """``'columns'`` with the initial values of one linear map, as in GAT."""

    def draw(self, parameter: Tensor, bound: float) -> None:
        glorot_of_heads(parameter)


class AveragedHeads(FullTheta):
    """Θ_h = V_h / H, so that the sum over heads is their mean; drawn as one linear map."""

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Values of heads that are added up, and divided by their number."""
        self.require_shape()
        return Theta(self.weight.unsqueeze(1), heads="sum", factor=1.0 / self.num_labels)

    def forward(self) -> Tensor:
        """Θ (H, 1, P, Q)."""
        self.require_shape()
        return self.weight.unsqueeze(1) / self.num_labels

    def draw(self, parameter: Tensor, bound: float) -> None:
        glorot_of_heads(parameter)


HEADS: dict[str, type[ThetaModule]] = {"concat": ConcatenatedHeads, "mean": AveragedHeads}


class PartsTheta(ThetaModule, by_name=False):
    """Θ in parts, one form for each run of labels.

    Args:
        parts: forms of equal P and Q.
    """

    name = "parts"

    def __init__(self, parts: Sequence[ThetaModule]) -> None:
        first = parts[0]
        count = sum(part.num_labels for part in parts)
        super().__init__(count, -1, first.out_channels)
        self.parts = ModuleList(parts)
        self.in_channels = first.in_channels

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """None of its own."""
        return {}

    def materialize(self, in_channels: int) -> None:
        """Allocate and initialise the parameters of all parts for P channels."""
        for part in self._parts():
            part.materialize(in_channels)
        self.in_channels = in_channels

    def reset_parameters(self) -> None:
        for part in self._parts():
            part.reset_parameters()

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """The parts, each in its form."""
        self.require_shape()
        return ThetaParts(tuple(as_theta(part.parameter(like)) for part in self._parts()))

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *args: object) -> None:
        super()._load_from_state_dict(state, prefix, *args)
        if self.in_channels < 0:
            own = {
                key.removeprefix(f"{prefix}parts.0."): value
                for key, value in state.items()
                if key.startswith(f"{prefix}parts.0.")
            }
            first = self._parts()[0]
            first._load_from_state_dict(own, "", {}, True, [], [], [])  # errors: as its own
            self.in_channels = first.in_channels

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

    Args:
        family: the family, whose :meth:`~.Family.combinations` say how heads are put together.
        form: the form of Θ of all other labels.
        in_channels, out_channels, max_parameters: of the layer.

    Raises:
        ValueError: see :func:`.theta.make_theta`; or there are no other labels, and a form
            for them is given.
    """
    runs = family.combinations()
    if all(combine == "sum" for combine, _ in runs):
        return make_theta(form, family.num_bases, in_channels, out_channels, max_parameters)
    if form != "full" and all(combine != "sum" for combine, _ in runs):
        rule = "heads that are put together have values of their own, and no other theta"
        raise RefusedValue(rule, "theta='full', or heads with combine='sum'", form)
    parts: list[ThetaModule] = []
    for combine, count in runs:
        if combine == "sum":
            parts.append(make_theta(form, count, in_channels, out_channels, max_parameters))
        else:
            parts.append(HEADS[combine](count, in_channels, out_channels))
    return parts[0] if len(parts) == 1 else PartsTheta(parts)


def check_reduction(family: Family, label_aggr: str) -> None:
    """Raise ValueError if labels are not added up, and heads are put together."""
    combined = any(combine != "sum" for combine, _ in family.combinations())
    if combined and label_aggr != "sum":
        rule = "heads that are put together are added to other labels"
        raise RefusedValue(rule, "label_aggr='sum', or heads with combine='sum'", label_aggr)
