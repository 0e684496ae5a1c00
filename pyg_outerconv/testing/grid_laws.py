"""The law of grids: translation equivariance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..basis.axis import Axis
from ..basis.grid_shift import GridShift
from ..nn import OuterConv
from .closeness import TOLERANCE, assert_near


def assert_translation_equivariant(
    conv: OuterConv, x: Tensor, shape: Any, by: Sequence[int]
) -> None:
    """Translating the input of a layer on a grid translates its output.

    With stride s, an input translated by s·b cells gives the output translated by b; transposed, an
    input translated by b gives the output translated by s·b. Along axes with circular padding and
    a length that s divides, all outputs are compared; along other axes those whose inputs are
    inside the grid before and after.

    Args:
        conv: a layer over a family of grids.
        x: (M, P) features of the cells of a full grid.
        shape: the shape of the grid, with M cells, as the layer takes it.
        by: b for each axis.

    Raises:
        AssertionError: a compared output differs, or no output can be compared.
    """
    basis = conv.basis(x, shape)
    assert isinstance(basis, GridShift), f"{conv.family} makes no shifts of a whole grid"
    ahead = [1 if basis.is_transposed else axis.stride for axis in basis.axes]
    behind = [axis.stride if basis.is_transposed else 1 for axis in basis.axes]
    dims = tuple(range(len(basis.axes)))
    cells = x.unflatten(0, basis.input_shape)
    moves = [b * step for b, step in zip(by, ahead, strict=True)]
    before = conv(x, shape).unflatten(0, basis.output_shape)
    after = conv(cells.roll(moves, dims).flatten(0, len(dims) - 1), shape)
    after = after.unflatten(0, basis.output_shape)
    places = []
    for axis, b, step in zip(basis.axes, by, behind, strict=True):
        seen = _comparable(axis, basis.is_transposed)
        count = seen.numel()
        if _wraps(axis):
            places.append((torch.arange(count), (torch.arange(count) + b * step) % max(count, 1)))
            continue
        start = torch.arange(max(0, -b * step), min(count, count - b * step))
        here = start[seen[start] & seen[start + b * step]]
        places.append((here, here + b * step))
    expected, actual = before, after
    for dim, (old, new) in enumerate(places):
        expected = expected.index_select(dim, old.to(x.device))
        actual = actual.index_select(dim, new.to(x.device))
    assert expected.numel(), f"no output of {basis!r} moved by {tuple(by)} can be compared"
    assert_near(actual, expected, 100 * TOLERANCE[x.dtype])


def _wraps(axis: Axis) -> bool:
    """Whether the axis is circular and its length is a multiple of the stride."""
    return axis.padding_mode == "circular" and axis.num_inputs == axis.stride * axis.num_outputs


def _comparable(axis: Axis, is_transposed: bool) -> Tensor:
    """Booleans for each output along the axis: whether all its inputs are inside the grid."""
    shifts = torch.tensor(axis.shifts)
    if not is_transposed:
        seen = axis.stride * torch.arange(axis.num_outputs).unsqueeze(1) - shifts
        return ((seen >= 0) & (seen < axis.num_inputs)).all(1)
    # Input m is seen by the outputs n with s·n − d = m.
    sums = torch.arange(axis.num_inputs).unsqueeze(1) + shifts
    whole = sums % axis.stride == 0
    seen = sums.div(axis.stride, rounding_mode="floor")
    inside = ((seen >= 0) & (seen < axis.num_outputs)) | ~whole
    if axis.padding_mode == "zeros":
        return inside.all(1)
    # Reflected or replicated padding: cells near an end also receive from beyond it.
    table = axis.table()
    beyond = axis.stride * torch.arange(axis.num_outputs).unsqueeze(1) - shifts != table
    collects = torch.zeros(axis.num_inputs, dtype=torch.bool)
    collects[table[beyond & (table >= 0)]] = True
    return inside.all(1) & ~collects
