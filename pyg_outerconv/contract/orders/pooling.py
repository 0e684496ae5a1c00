"""Lowering to torch's poolings, where Θ is the identity and the shifts fill a window."""

from __future__ import annotations

from math import isclose, prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...basis.conv_geometry import (
    AxisGeometry,
    ConvGeometry,
    as_images,
    as_nodes,
    geometry_of,
    pad,
    padded_bytes,
    sees_one,
    why_not_torch,
)
from ...basis.grid_shift import GridShift
from ...kernels import REDUCTIONS
from ..cost import Cost, Work, moving
from ..order import Order, needs_features
from ..problem import Problem

_LARGEST = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Pooling(Order):
    """c Σ_k A_kᵀ X by ``F.avg_poolNd``, and the largest or smallest by ``F.max_poolNd``.

    Turned, the sum over windows that lie side by side repeats each cell: unpooling. Of equal cells
    that of the lowest label takes the gradient. torch gives it to the first of a window: where
    labels count from the end, it gets the grid turned round.
    """

    name = "pooling"
    solves = (GridShift,)
    reductions = frozenset(REDUCTIONS)  # of one input a label all are the same
    label_reductions = frozenset({"sum", "max", "min"})

    def lacks(self, problem: Problem) -> list[str]:
        """It needs Θ_k = c I, a full grid of 1 to 3 axes, and a label at each place of a window."""
        reasons = needs_features(problem)
        basis, mixture = problem.of(GridShift), problem.mixture
        if mixture is None or not mixture.is_unit or mixture.constant is None:
            reasons.append("needs Θ_k = c I with one number c for all labels")
        elif problem.label_reduce != "sum" and mixture.constant != 1.0:
            reasons.append(f"finds the {problem.label_reduce} where Θ_k = I alone")
        if problem.reduce != "sum" and not sees_one(basis):
            reasons.append(f"adds up, and several inputs share a label under {problem.reduce}")
        if not problem.in_channels:
            reasons.append("needs channels, and there are none")
        why = why_not_torch(basis)
        return reasons + (why or _lacks(problem, geometry_of(basis), basis.is_transposed))

    def cost(self, problem: Problem) -> Cost:
        """Each window is read from a cache, again for the gradient; and what is padded."""
        basis = problem.of(GridShift)
        lines = problem.num_columns * problem.in_channels * problem.itemsize
        read = float(prod([axis.num_outputs for axis in basis.axes]) * lines * len(basis.taps))
        padded = padded_bytes(basis, problem.num_columns * problem.in_channels, problem.itemsize)
        work = Work(picks=((read, 1.0),), calls=1) + moving(padded)
        return Cost(work, work * problem.gradients[0], padded)

    def run(self, problem: Problem) -> Tensor:
        """See :class:`Order`."""
        basis = problem.of(GridShift)
        assert problem.mixture is not None
        assert problem.mixture.constant is not None
        geometry, images = geometry_of(basis), as_images(problem.features, basis.input_shape)
        if basis.is_transposed:
            out = _repeat(images, geometry.kernel, problem.mixture.constant)
        elif problem.label_reduce == "sum":
            out = _add(images, geometry, problem.mixture.constant)
        else:
            least = problem.label_reduce == "min"
            out = _largest(-images if least else images, geometry)
            out = -out if least else out
        return as_nodes(out, problem.batch)


def _lacks(problem: Problem, geometry: ConvGeometry, is_transposed: bool) -> list[str]:
    reasons = []
    if not geometry.is_box:
        reasons.append("needs one label at every place of a window")
    elif problem.label_reduce != "sum" and not (geometry.is_in_order or geometry.is_backwards):
        reasons.append(
            "of equal cells the lowest label takes the gradient, and labels are in no such order"
        )
    axes = geometry.axes
    if problem.label_reduce == "sum" and any(window.spacing > 1 for window in axes):
        reasons.append("torch adds up windows without dilation alone")
    short = isinstance(problem.x, Tensor) and problem.x.dtype in (torch.float16, torch.bfloat16)
    if short and len(axes) == 3 and problem.label_reduce == "sum" and problem.device.type == "cpu":
        reasons.append("torch adds up windows of 3 axes in float32 and float64 alone on a CPU")
    if is_transposed:
        if problem.label_reduce != "sum":
            reasons.append(f"turned windows are added up, not reduced with {problem.label_reduce}")
        if not all(map(_lie_side_by_side, axes)):
            reasons.append("turned windows must lie side by side and fill the output")
    elif problem.label_reduce != "sum" and any(map(_has_empty, axes)):
        reasons.append("a window without cells gives 0, and torch knows no such")
    return reasons


def _lie_side_by_side(window: AxisGeometry) -> bool:
    """Whether every input of the axis is in one window of its outputs."""
    axis = window.axis
    return window.first == 0 == window.behind and axis.stride == window.extent


def _has_empty(window: AxisGeometry) -> bool:
    """Whether some output of the axis sees nothing."""
    axis = window.axis
    if axis.padding_mode != "zeros":
        return False
    places = range(window.first, window.first + window.spacing * window.extent, window.spacing)
    if window.first >= 0 and window.behind <= 0:
        return False
    return not all(
        any(0 <= axis.stride * output + place < axis.num_inputs for place in places)
        for output in range(axis.num_outputs)
    )


def _fits(geometry: ConvGeometry) -> bool:
    """Whether torch pads by itself: alike at both ends, and by half a window's cells at most.

    Along 3 axes its averages want cells for a whole window, padding not counted.
    """
    return all(
        window.is_padded_alike
        and 2 * window.before <= window.extent
        and (
            len(geometry.axes) < 3 or window.spacing * (window.extent - 1) < window.axis.num_inputs
        )
        for window in geometry.axes
    )


def _add(x: Tensor, geometry: ConvGeometry, factor: float) -> Tensor:
    """``factor`` times the sum over each window. torch's averages divide by a whole number."""
    fits = _fits(geometry)
    x = x if fits else pad(x, geometry)
    lone = len(geometry.axes) == 1  # of one axis torch divides by nothing but the window's size
    axes = geometry.axes
    sizes = [window.extent for window in axes]
    strides = [window.axis.stride for window in axes]
    padding = [window.before if fits else 0 for window in axes]
    if lone:
        x, sizes, strides, padding = x.unsqueeze(-2), [1, *sizes], [1, *strides], [0, *padding]
    average = F.avg_pool3d if len(sizes) == 3 else F.avg_pool2d
    mean = isclose(factor * prod(sizes), 1.0)
    out = average(x, sizes, strides, padding, divisor_override=None if mean else 1)
    out = out.squeeze(-2) if lone else out
    return out if mean or factor == 1.0 else out * factor


def _largest(x: Tensor, geometry: ConvGeometry) -> Tensor:
    axes = geometry.axes
    everywhere = tuple(range(-len(axes), 0))
    turns = not geometry.is_in_order and torch.is_grad_enabled()  # values are the same both ways
    fits = _fits(geometry) and not turns
    x = x if fits else pad(x, geometry, value=float("-inf"))
    out = _LARGEST[len(axes)](
        x.flip(everywhere) if turns else x,
        [window.extent for window in axes],
        [window.axis.stride for window in axes],
        [window.before if fits else 0 for window in axes],
        [window.spacing for window in axes],
    )
    return out.flip(everywhere) if turns else out


def _repeat(x: Tensor, sizes: tuple[int, ...], factor: float) -> Tensor:
    """Each cell ``factor`` times over a box of these sizes."""
    x = x if factor == 1.0 else x * factor
    wide, grown = list(x.shape[:2]), list(x.shape[:2])
    for number, size in enumerate(sizes):
        count = x.size(2 + 2 * number)
        wide += [count, size]
        grown.append(count * size)
        x = x.unsqueeze(3 + 2 * number)
    return x.expand(wide).reshape(grown)
