"""Shifts along one axis: the input that each output sees through each tap of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal, unknown

PADDING_MODES = ("zeros", "circular", "reflect", "replicate")


@dataclass(frozen=True)
class Axis:
    """1-D shifts of an axis with M inputs and N outputs: output n sees input s·n − d through tap d.

    As in the paper, a shift moves features by d: with stride 1, input m goes to output m + d.
    torch cross-correlates: weight j of its kernels is the shift d = padding − dilation·j.

    Attributes:
        num_inputs: M.
        num_outputs: N.
        shifts: the distinct integers d, one per tap.
        stride: s.
        padding_mode: what outputs see beyond the ends: nothing ('zeros'), the axis repeated
            ('circular'), mirrored at its end cells ('reflect'), or its end cell ('replicate').

    Raises:
        ValueError: an option is out of range or unknown.
    """

    num_inputs: int
    num_outputs: int
    shifts: tuple[int, ...]
    stride: int = 1
    padding_mode: str = "zeros"

    def __post_init__(self) -> None:
        if self.padding_mode not in PADDING_MODES:
            raise RefusedValue(unknown("padding_mode", self.padding_mode, PADDING_MODES))
        for name, value, least in (
            ("num_inputs", self.num_inputs, 0),
            ("num_outputs", self.num_outputs, 0),
            ("stride", self.stride, 1),
            ("number of taps", len(self.shifts), 1),
        ):
            if value < least:
                raise RefusedValue(refusal(f"an axis needs its {name}", f">= {least}", value))
        if len(set(self.shifts)) < len(self.shifts):
            raise RefusedValue(refusal("shifts of an axis must differ", "distinct", self.shifts))

    def sources(self, outputs: Tensor, tap: int) -> Tensor:
        """The input that each of ``outputs`` (integers) sees through a tap; −1 for none."""
        return self.bring_back(self.stride * outputs - self.shifts[tap])

    def inputs_of(self, outputs: Tensor, tap: int) -> tuple[Tensor, Tensor]:
        """Positions in ``outputs`` (n,) that see an input through a tap, and these inputs."""
        inputs = self.sources(outputs, tap)
        (seeing,) = (inputs >= 0).nonzero(as_tuple=True)
        return seeing, inputs[seeing]

    def outputs_of(self, inputs: Tensor, tap: int) -> tuple[Tensor, Tensor]:
        """Positions in ``inputs`` (n,) and the outputs that see these through a tap, as pairs."""
        if self.padding_mode == "zeros":
            ahead = inputs + self.shifts[tap]
            outputs = torch.div(ahead, self.stride, rounding_mode="floor")
            is_seen = (outputs * self.stride == ahead) & (outputs >= 0)
            (seen,) = (is_seen & (outputs < self.num_outputs)).nonzero(as_tuple=True)
            return seen, outputs[seen]
        of_output = self.sources(torch.arange(self.num_outputs, device=inputs.device), tap)
        order = of_output.argsort(stable=True)
        first = torch.searchsorted(of_output[order], inputs)
        count = torch.searchsorted(of_output[order], inputs, right=True) - first
        seen = torch.arange(len(inputs), device=inputs.device).repeat_interleave(count)
        within = torch.arange(len(seen), device=inputs.device) - (count.cumsum(0) - count)[seen]
        return seen, order[first[seen] + within]

    def bring_back(self, inputs: Tensor) -> Tensor:
        """Inputs in [0, M) at positions of the unbounded axis, by the padding mode; −1 for none."""
        count = self.num_inputs
        if count == 0:
            return torch.full_like(inputs, -1)
        if self.padding_mode == "circular":
            return inputs % count
        if self.padding_mode == "replicate":
            return inputs.clamp(0, count - 1)
        if self.padding_mode == "reflect":
            period = max(2 * count - 2, 1)
            folded = inputs % period
            return torch.where(folded < count, folded, period - folded)
        return torch.where((inputs >= 0) & (inputs < count), inputs, -1)

    def table(self, device: torch.device | None = None) -> Tensor:
        """(N, taps) the input that each output sees through each tap; −1 for none."""
        outputs = torch.arange(self.num_outputs, device=device)
        columns = [self.sources(outputs, tap) for tap in range(len(self.shifts))]
        return torch.stack(columns, dim=1)
