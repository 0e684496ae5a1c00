"""Lower shifts of a full grid to torch's convolutions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...basis.conv_geometry import (
    ConvGeometry,
    as_images,
    as_nodes,
    crop,
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

_FORWARD: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED: tuple[Callable[..., Tensor], ...] = (
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)

# oneDNN computes 16 channels of a group at once; a single channel costs as much as about 4.
CHANNEL_BLOCK = 16
LONE_CHANNEL = 4
# Its time over that of a tall dense product with equal flops: its operands stay in caches.
SHARE = 0.75


class Convolution(Order):
    """Σ_k A_kᵀ X Θ_k as ``F.convNd``: Θ_k is the weight at one position of the kernel.

    Offsets o = −d must fill a box of evenly spaced positions: a zero at a position without a label
    would carry NaN to outputs that do not see it. Nodes become images, and images nodes, by views.
    """

    name = "convolution"
    solves = (GridShift,)
    reductions = frozenset(REDUCTIONS)  # all are equal where a label has one input
    adds_bias = True

    def lacks(self, problem: Problem) -> list[str]:
        """Requires features, and a full grid of 1 to 3 axes with a padding that torch has."""
        reasons, basis = needs_features(problem), problem.of(GridShift)
        if problem.reduce != "sum" and not sees_one(basis):
            reasons.append(f"sums inputs, and several share a label under {problem.reduce}")
        if not problem.in_channels or not problem.out_channels:
            reasons.append("needs at least one channel")
        why = why_not_torch(basis)
        if not why and not geometry_of(basis).is_full:
            why.append("needs a label at every position of a box, because zero times NaN is NaN")
        return reasons + why

    def cost(self, problem: Problem) -> Cost:
        """2·N·P·Q/G flops for each position of the kernel, and the padded input."""
        basis = problem.of(GridShift)
        places = prod(geometry_of(basis).kernel)
        cells = prod([axis.num_outputs for axis in basis.axes]) * problem.num_columns
        narrow = (problem.parameter.shape[2], problem.parameter.shape[3])
        lanes = LONE_CHANNEL if narrow == (1, 1) else -(-narrow[1] // CHANNEL_BLOCK) * CHANNEL_BLOCK
        # oneDNN has no float64: torch copies the inputs of each output, image by image.
        copies = problem.device.type == "cpu" and problem.dtype == torch.float64
        lanes = narrow[1] if copies else lanes
        product = Work(
            dense_flops=2.0 * SHARE * cells * places * narrow[0] * lanes * problem.num_blocks
        )
        if copies and places > 1:
            columns = float(cells * places * problem.in_channels * problem.itemsize)
            product += Work(moves=((columns, columns / max(problem.num_columns, 1)),))
        weight = float(places * problem.in_channels * narrow[1] * problem.itemsize)
        columns = problem.num_columns * problem.in_channels
        padded = padded_bytes(basis, columns, problem.itemsize)
        of_x, of_theta, _ = problem.gradients
        work = product + Work(calls=1)
        before = moving(weight, padded)
        return Cost(
            work + before,
            work * (of_x + of_theta) + moving(weight) * of_theta + moving(padded) * of_x,
            weight + padded,
        )

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        basis = problem.of(GridShift)
        geometry, images = geometry_of(basis), as_images(problem.features, basis.input_shape)
        run = _transposed if basis.is_transposed else _forward
        out = run(
            images, kernel_of(problem.theta, geometry, basis.is_transposed), geometry, problem
        )
        return as_nodes(out, problem.batch)


def kernel_of(theta: Tensor, geometry: ConvGeometry, is_transposed: bool) -> Tensor:
    """Θ (K, G, P/G, Q/G) as a weight (Q, P/G, *kernel), or, transposed, (P, Q/G, *kernel)."""
    num_labels, groups, rows, columns = theta.shape
    order = (1, 2, 3, 0) if is_transposed else (1, 3, 2, 0)
    ends = (groups * rows, columns) if is_transposed else (groups * columns, rows)
    weight = theta.permute(order).reshape(*ends, num_labels)
    if not geometry.is_in_order:
        place = torch.tensor(geometry.places, device=theta.device)
        weight = weight.new_zeros(*ends, prod(geometry.kernel)).index_add(-1, place, weight)
    # Contiguous, as torch's gradient in float64 needs it: with few channels the strides may look
    # like those of a channels-last tensor.
    return weight.flatten().view(*ends, *geometry.kernel)


def _forward(x: Tensor, weight: Tensor, geometry: ConvGeometry, problem: Problem) -> Tensor:
    alike = all(window.is_padded_alike for window in geometry.axes)
    return _FORWARD[len(geometry.axes) - 1](
        x if alike else pad(x, geometry),
        weight,
        problem.bias,
        stride=[window.axis.stride for window in geometry.axes],
        padding=[window.before if alike else 0 for window in geometry.axes],
        dilation=[window.spacing for window in geometry.axes],
        groups=problem.num_blocks,
    )


def _transposed(x: Tensor, weight: Tensor, geometry: ConvGeometry, problem: Problem) -> Tensor:
    """The transpose of :func:`_forward`: cells that it pads are cropped here."""
    padding, spare = [], []
    grown: list[int] = []  # from the last axis to the first, as F.pad takes them
    ends = []
    for window in geometry.axes:
        before, behind = window.before, window.behind
        largest = max(window.axis.stride, window.spacing)
        fits = before >= 0 and 0 <= before - behind < largest
        both = before if fits else max(min(before, behind), 0)
        padding.append(both)
        spare.append(before - behind if fits else 0)
        rest = (0, 0) if fits else (before - both, behind - both)
        grown = [max(-end, 0) for end in rest] + grown
        ends.append(rest)
    out = _TRANSPOSED[len(geometry.axes) - 1](
        x,
        weight,
        None if any(grown) else problem.bias,
        stride=[window.axis.stride for window in geometry.axes],
        padding=padding,
        output_padding=spare,
        dilation=[window.spacing for window in geometry.axes],
        groups=problem.num_blocks,
    )
    if any(grown):
        out = F.pad(out, grown)
        if problem.bias is not None:
            out = out + problem.bias.view(-1, *(1,) * len(geometry.axes))
    return crop(out, ends)
