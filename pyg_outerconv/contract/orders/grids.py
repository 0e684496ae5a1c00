"""Orders for shifts of a full grid: torch's convolutions, and its poolings for Θ_k = c I."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose, prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...basis.grid_shift import AxisGeometry, ConvGeometry, GridShift
from ...kernels import REDUCTIONS
from ...memo import constant
from ..cost import Operations, Steps, moving
from ..order import Order, needs_features, needs_identity
from ..problem import Problem

MOST_AXES = 3  # of torch's convolutions and poolings


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


def as_images(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Nodes (M, *batch, C) as images (B, C, *shape): a view if batch dimensions can be merged."""
    wide = x.movedim(0, -1)
    wide = wide.unsqueeze(0) if x.dim() == 2 else wide.flatten(0, -3)
    return wide.unflatten(-1, shape)


def as_nodes(images: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Images (B, C, *shape) as nodes (N, *batch, C): a view."""
    rows = images.flatten(2).movedim(-1, 0)
    return rows.unflatten(1, batch) if batch else rows.squeeze(1)


def _needs_one_input(problem: Problem) -> list[str]:
    if problem.aggr == "sum" or sees_one(problem.of(GridShift)):
        return []
    return [f"sums inputs, and several share a label under {problem.aggr}"]


def _needs_channels(problem: Problem) -> list[str]:
    full = problem.in_channels and problem.out_channels
    return [] if full else ["needs at least one channel"]


# Not torch.convolution, which autocast leaves in float32.
_CONVOLUTIONS: dict[bool, tuple[Callable[..., Tensor], ...]] = {
    False: (F.conv1d, F.conv2d, F.conv3d),
    True: (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
}
# oneDNN computes 16 channels of a group at once; a single channel costs as much as about 4.
CHANNEL_BLOCK = 16
LONE_CHANNEL = 4
# Its time over that of a tall dense product with equal flops: its operands stay in caches.
SHARE = 0.75


def _needs_box(problem: Problem) -> list[str]:
    basis = problem.of(GridShift)
    why = why_not_torch(basis)
    if not why and not basis.geometry.is_full:
        return ["needs a label at every position of a box, because zero times NaN is NaN"]
    return why


class Convolution(Order):
    """Σ_k A_kᵀ X Θ_k as ``F.convNd``: Θ_k is the weight at one position of the kernel.

    Shifts d must fill a box of evenly spaced positions: a zero at a position without a label
    would carry NaN to outputs that do not see it. Nodes become images, and images nodes, by views.
    """

    name = "convolution"
    solves = (GridShift,)
    needs = (needs_features, _needs_one_input, _needs_channels, _needs_box)
    reductions = frozenset(REDUCTIONS)  # all are equal where a label has one input
    adds_bias = True  # which saves a pass over the result

    def steps(self, problem: Problem) -> Steps:
        """2·N·P·Q/G flops for each position of the kernel, and the padded input."""
        basis, (of_x, of_theta, _) = problem.of(GridShift), problem.gradients
        places = prod(basis.geometry.kernel)
        cells = prod([axis.num_outputs for axis in basis.axes]) * problem.num_columns
        rows, columns = problem.parameter.shape[2:]
        # oneDNN has no float64: torch copies the inputs of each output, image by image.
        copies = problem.device.type == "cpu" and problem.dtype == torch.float64
        lanes = columns if copies else -(-columns // CHANNEL_BLOCK) * CHANNEL_BLOCK
        if rows == columns == 1 and not copies:
            lanes = LONE_CHANNEL
        flops = 2.0 * SHARE * cells * places * rows * lanes * problem.num_blocks
        work = Operations(flops, calls=1)
        if copies and places > 1:
            copied = float(cells * places * problem.in_channels * problem.itemsize)
            work += Operations(moves=((copied, copied / max(problem.num_columns, 1)),))
        weight = float(places * problem.in_channels * columns * problem.itemsize)
        padded = padded_bytes(basis, problem.num_columns * problem.in_channels, problem.itemsize)
        steps = Steps(problem).work("X padded", moving(padded), of_x, padded)
        steps.work("Θ as a kernel", moving(weight), of_theta, weight)
        return steps.work("torch's convolution", work, of_x + of_theta)

    def run(self, problem: Problem) -> Tensor:
        basis = problem.of(GridShift)
        geometry, images = basis.geometry, as_images(problem.features, basis.input_shape)
        weight = _kernel_of(problem.theta, geometry, basis.is_transposed)
        return as_nodes(_convolved(images, weight, problem, geometry), problem.batch)


def _kernel_of(theta: Tensor, geometry: ConvGeometry, is_transposed: bool) -> Tensor:
    """Θ (K, G, P/G, Q/G) as a weight (Q, P/G, *kernel), or, transposed, (P, Q/G, *kernel)."""
    num_labels, groups, rows, columns = theta.shape
    order = (1, 2, 3, 0) if is_transposed else (1, 3, 2, 0)
    ends = (groups * rows, columns) if is_transposed else (groups * columns, rows)
    weight = theta.permute(order).reshape(*ends, num_labels)
    if not geometry.is_in_order:
        place = constant(tuple(geometry.places), torch.long, theta.device)
        weight = weight.new_zeros(*ends, prod(geometry.kernel)).index_add(-1, place, weight)
    # Contiguous, as torch's gradient in float64 needs it: with few channels the strides may look
    # like those of a channels-last tensor.
    return weight.flatten().view(*ends, *geometry.kernel)


def _convolved(x: Tensor, weight: Tensor, problem: Problem, geometry: ConvGeometry) -> Tensor:
    """The convolution of images x; its transpose crops what the convolution pads."""
    axes, bias = geometry.axes, problem.bias
    transposed = problem.of(GridShift).is_transposed
    padding, spare, ends = [0] * len(axes), [0] * len(axes), [(0, 0)] * len(axes)
    if transposed:
        for axis, window in enumerate(axes):
            padding[axis], spare[axis], ends[axis] = _cropping(window)
    elif all(window.is_padded_alike for window in axes):
        padding = [window.before for window in axes]
    else:
        x = pad(x, geometry)
    grown = [max(-end, 0) for rest in reversed(ends) for end in rest]  # as F.pad takes them
    strides, spacings = [w.axis.stride for w in axes], [w.spacing for w in axes]
    run, groups = _CONVOLUTIONS[transposed][len(axes) - 1], problem.num_blocks
    options = (spare, groups, spacings) if transposed else (spacings, groups)
    if not any(grown):
        return crop(run(x, weight, bias, strides, padding, *options), ends)
    out = F.pad(run(x, weight, None, strides, padding, *options), grown)
    return crop(out if bias is None else out + bias.view(-1, *(1,) * len(axes)), ends)


def _cropping(window: AxisGeometry) -> tuple[int, int, tuple[int, int]]:
    """torch's padding and output padding of a transposed convolution, and cells to crop beside."""
    before, behind = window.before, window.behind
    if before >= 0 and 0 <= before - behind < max(window.axis.stride, window.spacing):
        return before, before - behind, (0, 0)
    both = max(min(before, behind), 0)
    return both, 0, (before - both, behind - both)


# Pooling -----------------------------------------------------------------------------------------

_LARGEST = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def _needs_windows(problem: Problem) -> list[str]:
    """Reasons why torch's poolings do not compute these windows."""
    basis, aggr = problem.of(GridShift), problem.label_aggr
    if why := why_not_torch(basis):
        return why
    geometry, compares, turned = basis.geometry, aggr != "sum", basis.is_transposed
    axes, places, cells = geometry.axes, [*geometry.places], [*range(prod(geometry.kernel))]
    is_box, follows = sorted(places) == cells, places in (cells, cells[::-1])
    short = isinstance(problem.x, Tensor) and problem.x.dtype in (torch.float16, torch.bfloat16)
    short_sum = short and len(axes) == 3 and not compares and problem.device.type == "cpu"
    dilated = any(window.spacing > 1 for window in axes)
    adjacent = all(map(_are_adjacent, axes))
    reasons = {
        "needs one label at every cell of a window": not is_box,
        "the lowest label takes the gradient of equal cells, so labels must follow the cells": (
            is_box and compares and not follows
        ),
        "torch sums windows without dilation only": dilated and not compares,
        "torch sums windows of 3 axes on a CPU in float32 and float64 only": short_sum,
        f"sums transposed windows, no {aggr} over labels": turned and compares,
        "transposed windows must be adjacent and fill the output": turned and not adjacent,
        "a window without cells gives 0, which torch's poolings do not": (
            compares and not turned and any(map(_has_empty, axes))
        ),
    }
    return [reason for reason, applies in reasons.items() if applies]


class Pooling(Order):
    """c Σ_k A_kᵀ X by ``F.avg_poolNd``, max and min over labels by ``F.max_poolNd``.

    The transpose of adjacent windows repeats each cell (unpooling). Of equal cells the one with the
    lowest label takes the gradient. torch gives it to the first cell of a window, so the grid is
    flipped if labels run backwards.
    """

    name = "pooling"
    solves = (GridShift,)
    needs = (needs_features, needs_identity, _needs_one_input, _needs_channels, _needs_windows)
    reductions = frozenset(REDUCTIONS)  # all are equal where a label has one input
    label_reductions = frozenset({"sum", "max", "min"})

    def steps(self, problem: Problem) -> Steps:
        """Each window is read from a cache, again for the gradient, and the input is padded."""
        basis, columns = problem.of(GridShift), problem.num_columns * problem.in_channels
        cells = prod([axis.num_outputs for axis in basis.axes]) * len(basis.taps)
        padded = padded_bytes(basis, columns, problem.itemsize)
        read = float(cells * columns * problem.itemsize)
        work = Operations(picks=((read, 1.0),), calls=1) + moving(padded)
        return Steps(problem).work("torch's pooling", work, problem.gradients[0], padded)

    def run(self, problem: Problem) -> Tensor:
        basis, factor = problem.of(GridShift), problem.factor
        assert factor is not None  # it needs Θ_k = c I
        geometry, images = basis.geometry, as_images(problem.features, basis.input_shape)
        if basis.is_transposed:
            out = _repeat(images, geometry.kernel, factor)
        elif problem.label_aggr == "sum":
            out = _add(images, geometry, factor)
        else:
            least = problem.label_aggr == "min"
            out = _largest(-images if least else images, geometry)
            out = -out if least else out
        return as_nodes(out, problem.batch)


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
    sizes, strides = [w.extent for w in geometry.axes], [w.axis.stride for w in geometry.axes]
    padding = [window.before if fits else 0 for window in geometry.axes]
    if len(sizes) == 1:  # F.avg_pool1d has no divisor_override, F.avg_pool2d has
        x, sizes, strides, padding = x.unsqueeze(-2), [1, *sizes], [1, *strides], [0, *padding]
    average = F.avg_pool3d if len(sizes) == 3 else F.avg_pool2d
    mean = isclose(factor * prod(sizes), 1.0)
    out = average(x, sizes, strides, padding, divisor_override=None if mean else 1)
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
