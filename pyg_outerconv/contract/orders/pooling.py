"""Lower shifts that fill a window to torch's poolings, for Θ_k = c I."""

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
    """c Σ_k A_kᵀ X by ``F.avg_poolNd``, max and min over labels by ``F.max_poolNd``.

    The transpose of adjacent windows repeats each cell (unpooling). Of equal cells the one with the
    lowest label takes the gradient. torch gives it to the first cell of a window, so the grid is
    flipped if labels run backwards.
    """

    name = "pooling"
    solves = (GridShift,)
    reductions = frozenset(REDUCTIONS)  # all are equal where a label has one input
    label_reductions = frozenset({"sum", "max", "min"})

    def lacks(self, problem: Problem) -> list[str]:
        """Requires Θ_k = c I, a full grid of 1 to 3 axes, and a label at each cell of a window."""
        reasons = needs_features(problem)
        basis, mixture = problem.of(GridShift), problem.mixture
        if mixture is None or not mixture.is_unit or mixture.constant is None:
            reasons.append("needs Θ_k = c I with one number c for all labels")
        elif problem.label_reduce != "sum" and mixture.constant != 1.0:
            reasons.append(f"needs Θ_k = I for {problem.label_reduce} over labels")
        if problem.reduce != "sum" and not sees_one(basis):
            reasons.append(f"sums inputs, and several share a label under {problem.reduce}")
        if not problem.in_channels:
            reasons.append("needs at least one channel")
        why = why_not_torch(basis)
        return reasons + (why or _lacks(problem, geometry_of(basis), basis.is_transposed))

    def cost(self, problem: Problem) -> Cost:
        """Each window is read from a cache, again for the gradient, and the input is padded."""
        basis = problem.of(GridShift)
        lines = problem.num_columns * problem.in_channels * problem.itemsize
        read = float(prod([axis.num_outputs for axis in basis.axes]) * lines * len(basis.taps))
        padded = padded_bytes(basis, problem.num_columns * problem.in_channels, problem.itemsize)
        work = Work(picks=((read, 1.0),), calls=1) + moving(padded)
        return Cost(work, work * problem.gradients[0], padded)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
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
    """Reasons why torch's poolings do not compute these windows."""
    reasons = []
    if not geometry.is_box:
        reasons.append("needs one label at every cell of a window")
    elif problem.label_reduce != "sum" and not (geometry.is_in_order or geometry.is_backwards):
        reasons.append(
            "the lowest label takes the gradient of equal cells, so labels must follow the cells"
        )
    axes = geometry.axes
    if problem.label_reduce == "sum" and any(window.spacing > 1 for window in axes):
        reasons.append("torch sums windows without dilation only")
    short = isinstance(problem.x, Tensor) and problem.x.dtype in (torch.float16, torch.bfloat16)
    if short and len(axes) == 3 and problem.label_reduce == "sum" and problem.device.type == "cpu":
        reasons.append("torch sums windows of 3 axes on a CPU in float32 and float64 only")
    if is_transposed:
        if problem.label_reduce != "sum":
            reasons.append(f"sums transposed windows, no {problem.label_reduce} over labels")
        if not all(map(_are_adjacent, axes)):
            reasons.append("transposed windows must be adjacent and fill the output")
    elif problem.label_reduce != "sum" and any(map(_has_empty, axes)):
        reasons.append("a window without cells gives 0, which torch's poolings do not")
    return reasons


def _are_adjacent(window: AxisGeometry) -> bool:
    """Whether every input of the axis is in exactly one window."""
    axis = window.axis
    return window.first == 0 == window.behind and axis.stride == window.extent


def _has_empty(window: AxisGeometry) -> bool:
    """Whether the window of some output contains padding only."""
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
    """Whether torch can pad: equally at both ends, by at most half a window.

    Averages over 3 axes also need an axis as long as a whole window, without padding.
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
    """``factor`` times the sum over each window, by torch's averages with a whole divisor."""
    fits = _fits(geometry)
    x = x if fits else pad(x, geometry)
    lone = len(geometry.axes) == 1  # F.avg_pool1d has no divisor_override, F.avg_pool2d has
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
    flips = not geometry.is_in_order and torch.is_grad_enabled()  # only gradients depend on it
    fits = _fits(geometry) and not flips
    x = x if fits else pad(x, geometry, value=float("-inf"))
    out = _LARGEST[len(axes)](
        x.flip(everywhere) if flips else x,
        [window.extent for window in axes],
        [window.axis.stride for window in axes],
        [window.before if fits else 0 for window in axes],
        [window.spacing for window in axes],
    )
    return out.flip(everywhere) if flips else out


def _repeat(x: Tensor, sizes: tuple[int, ...], factor: float) -> Tensor:
    """``factor`` times each cell, repeated over a box of these sizes."""
    x = x if factor == 1.0 else x * factor
    wide, grown = list(x.shape[:2]), list(x.shape[:2])
    for number, size in enumerate(sizes):
        count = x.size(2 + 2 * number)
        wide += [count, size]
        grown.append(count * size)
        x = x.unsqueeze(3 + 2 * number)
    return x.expand(wide).reshape(grown)
