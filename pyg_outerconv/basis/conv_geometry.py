"""Kernel sizes, dilations and paddings by which torch's convolutions compute shifts of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from .grid_shift import Axis, GridShift

MOST_AXES = 3  # of torch's convolutions and poolings


@dataclass(frozen=True)
class AxisGeometry:
    """The window of an axis: output n sees inputs s·n + o, for offsets o = −d of the taps in use.

    Attributes:
        axis: the shifts along the axis.
        first: the smallest offset.
        spacing: the greatest common divisor of the differences of offsets (torch's dilation).
        extent: the number of places from the smallest to the largest offset (torch's kernel size).
    """

    axis: Axis
    first: int
    spacing: int
    extent: int

    @staticmethod
    def of(axis: Axis, taps: set[int]) -> AxisGeometry:
        """The window of the given taps of an axis."""
        offsets = [-axis.shifts[tap] for tap in taps]
        first = min(offsets)
        step = 0
        for offset in offsets:
            step = gcd(step, offset - first)
        spacing = max(step, 1)
        return AxisGeometry(axis, first, spacing, (max(offsets) - first) // spacing + 1)

    @property
    def before(self) -> int:
        """Padding before the first input that the first output sees; negative: inputs it skips."""
        return -self.first

    @property
    def behind(self) -> int:
        """Padding behind the last input that the last output sees; negative: inputs it skips."""
        axis = self.axis
        last = self.first + self.spacing * (self.extent - 1)
        return axis.stride * (axis.num_outputs - 1) + last - (axis.num_inputs - 1)

    @property
    def is_padded_alike(self) -> bool:
        """Whether zero padding by ``before`` cells at both ends gives the same outputs."""
        spare = self.before - self.behind
        zeros = self.axis.padding_mode == "zeros" or max(self.before, self.behind) <= 0
        return zeros and self.before >= 0 and 0 <= spare < self.axis.stride

    def place(self, tap: int) -> int:
        """The place of a tap in the window, from 0."""
        return (-self.axis.shifts[tap] - self.first) // self.spacing


@dataclass(frozen=True)
class ConvGeometry:
    """The windows of all axes of a grid shift, and the place of each label in their product.

    Attributes:
        axes: one window for each axis.
        places: for each label its place in the box of all windows, the last axis running fastest.
    """

    axes: tuple[AxisGeometry, ...]
    places: tuple[int, ...]

    @staticmethod
    def of(shift: GridShift) -> ConvGeometry:
        """The windows of a grid shift."""
        axes = tuple(
            AxisGeometry.of(axis, {tap[number] for tap in shift.taps})
            for number, axis in enumerate(shift.axes)
        )
        places = []
        for tap in shift.taps:
            place = 0
            for window, t in zip(axes, tap, strict=True):
                place = place * window.extent + window.place(t)
            places.append(place)
        return ConvGeometry(axes, tuple(places))

    @property
    def kernel(self) -> tuple[int, ...]:
        """The shape of the box (torch's kernel size)."""
        return tuple(window.extent for window in self.axes)

    @property
    def is_in_order(self) -> bool:
        """Whether label k is at place k and every place has a label, as in torch's kernels."""
        return self.places == tuple(range(prod(self.kernel)))

    @property
    def is_backwards(self) -> bool:
        """Whether label k is at place k counted from the last place."""
        return self.places == tuple(reversed(range(prod(self.kernel))))

    @property
    def is_full(self) -> bool:
        """Whether every place has at least one label."""
        return len(set(self.places)) == prod(self.kernel)

    @property
    def is_box(self) -> bool:
        """Whether every place has exactly one label."""
        return self.is_full and len(self.places) == prod(self.kernel)


def why_not_torch(basis: GridShift) -> list[str]:
    """Reasons why torch's convolutions and poolings cannot compute these shifts."""
    reasons = []
    if len(basis.axes) > MOST_AXES:
        reasons.append(f"torch has no more than {MOST_AXES} axes, not {len(basis.axes)}")
    if 0 in basis.input_shape or 0 in basis.output_shape:
        return [*reasons, "needs cells, and there are none"]
    for window in basis.geometry.axes:
        axis, most = window.axis, max(window.before, window.behind)
        if axis.padding_mode == "zeros" or most <= 0:
            continue
        if basis.is_transposed:
            reasons.append(
                f"torch has no transposed shifts with padding_mode={axis.padding_mode!r}"
            )
        limit = {"circular": axis.num_inputs, "reflect": axis.num_inputs - 1}
        if most > limit.get(axis.padding_mode, most):
            reasons.append(
                f"torch pads {axis.num_inputs} cells {axis.padding_mode} by "
                f"{limit[axis.padding_mode]} at most, not by {most}"
            )
    return list(dict.fromkeys(reasons))


def sees_one(basis: GridShift) -> bool:
    """Whether every output sees at most one input under each label."""
    return not basis.is_transposed or all(axis.padding_mode == "zeros" for axis in basis.axes)


def pad(x: Tensor, geometry: ConvGeometry, value: float = 0.0) -> Tensor:
    """Pad and crop ``x`` (..., *shape) to exactly the inputs that outputs see.

    Zero padding has the value ``value``.
    """
    modes = dict.fromkeys(window.axis.padding_mode for window in geometry.axes)
    for mode in modes:
        sizes: list[int] = []
        for window in reversed(geometry.axes):  # F.pad counts from the last axis
            mine = window.axis.padding_mode == mode
            sizes += [max(end, 0) * mine for end in (window.before, window.behind)]
        if any(sizes):
            x = F.pad(x, sizes, value=value) if mode == "zeros" else F.pad(x, sizes, mode)
    return crop(x, [(-window.before, -window.behind) for window in geometry.axes])


def crop(x: Tensor, ends: list[tuple[int, int]]) -> Tensor:
    """Remove cells at both ends of each axis of ``x`` (..., *shape); none if negative."""
    for number, (front, back) in enumerate(ends, start=-len(ends)):
        front, back = max(front, 0), max(back, 0)
        if front or back:
            x = x.narrow(number, front, x.size(number) - front - back)
    return x


def padded_bytes(basis: GridShift, columns: int, itemsize: int) -> float:
    """Bytes of the result of :func:`pad` for (columns, *shape); 0 if nothing is padded."""
    geometry = basis.geometry.axes
    if all(window.is_padded_alike for window in geometry):
        return 0.0
    sizes = [w.axis.num_inputs + max(w.before, 0) + max(w.behind, 0) for w in geometry]
    return float(prod(sizes) * columns * itemsize)


# Images ---------------------------------------------------------------------------------------


def as_images(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Nodes (M, *batch, C) as images (B, C, *shape): a view if batch dimensions can be merged."""
    wide = x.movedim(0, -1)
    wide = wide.unsqueeze(0) if x.dim() == 2 else wide.flatten(0, -3)
    return wide.unflatten(-1, shape)


def as_nodes(images: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Images (B, C, *shape) as nodes (N, *batch, C): a view."""
    rows = images.flatten(2).movedim(-1, 0)
    return rows.unflatten(1, batch) if batch else rows.squeeze(1)
