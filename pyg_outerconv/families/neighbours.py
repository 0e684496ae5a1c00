"""Edges between listed cells of a grid, found by sorted keys, label by label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..basis.grid_shift import Axis
from ..graph.cells import Cells
from .window import Window

Taps = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Found:
    """Edges (2, E) with labels (E,), label by label, and the cells of their targets."""

    index: Tensor
    label: Tensor
    outputs: Cells


def among_cells(cells: Cells, windows: Sequence[Window], taps: Taps) -> Found:
    """The edges where outputs are the cells themselves, with stride 1.

    Under the label of shift d, the output at n sees the cell at n − d, if it is listed. Beyond the
    ends of an axis, the padding mode maps n − d to a cell.
    """
    box = _Box.around(cells, windows)
    sizes = tuple(axis.num_inputs for axis in box.axes)
    keys, order = cells.keys(box.at, sizes).sort()
    found = []
    for tap in taps:
        seen = [axis.sources(box.at[:, d], t) for d, axis, t in _each(box.axes, tap)]
        place = torch.stack(seen, dim=1)
        wanted = cells.keys(place, sizes)
        nearest = torch.searchsorted(keys, wanted).clamp_(max=max(0, len(keys) - 1))
        (target,) = ((place >= 0).all(1) & (keys[nearest] == wanted)).nonzero(as_tuple=True)
        found.append(torch.stack([order[nearest[target]], target]))
    return Found(torch.cat(found, 1), _labels([edges[0] for edges in found]), cells)


def growing(
    cells: Cells, windows: Sequence[Window], taps: Taps, is_transposed: bool = False
) -> Found:
    """The edges to every output that a cell reaches; outputs sorted by grid, then place.

    Args:
        cells: the inputs.
        windows: the kernel along each axis.
        taps: for each label, the tap on each axis.
        is_transposed: whether the cells are outputs of the axes, and the cells they reach inputs.
    """
    box = _Box.that_grows(cells, windows, is_transposed)
    sizes = tuple(axis.num_inputs if is_transposed else axis.num_outputs for axis in box.axes)
    cells.check_numbers(sizes)
    sources, keys = [], []
    for tap in taps:
        row, key = torch.arange(cells.num_cells, device=cells.device), cells.grids()
        for d, axis, t in _each(box.axes, tap):
            reach = axis.inputs_of if is_transposed else axis.outputs_of
            kept, reached = reach(box.at[row, d], t)
            row, key = row[kept], key[kept] * sizes[d] + reached
        sources.append(row)
        keys.append(key)
    reached, target = torch.unique(torch.cat(keys), return_inverse=True)
    grid, place = _places(reached, sizes)
    shape = None if cells.shape is None else sizes
    outputs = Cells(place + box.origin, shape, None if cells.batch is None else grid)
    return Found(torch.stack([torch.cat(sources), target]), _labels(sources), outputs)


@dataclass(frozen=True)
class _Box:
    """Cells on axes with bounds: those of their shape, or of a box around the cells.

    Attributes:
        axes: the shifts on each axis.
        at: (n, D) the cells, counted from the corner of the box.
        origin: (D,) the corner of the box from which outputs are counted.
    """

    axes: tuple[Axis, ...]
    at: Tensor
    origin: Tensor

    @staticmethod
    def around(cells: Cells, windows: Sequence[Window]) -> _Box:
        """The box for outputs that are the cells themselves."""
        at = _index(cells)
        if cells.shape is None:
            return _Box._unbounded(at, windows, False)
        axes = [
            Axis(count, count, window.shifts, 1, window.padding_mode)
            for window, count in zip(windows, cells.shape, strict=True)
        ]
        return _Box(tuple(axes), at, at.new_zeros(len(axes)))

    @staticmethod
    def that_grows(cells: Cells, windows: Sequence[Window], is_transposed: bool) -> _Box:
        """The box for outputs that are all cells reached."""
        at = _index(cells)
        if cells.shape is None:
            return _Box._unbounded(at, windows, is_transposed)
        axes = [w.axis(count, is_transposed) for w, count in zip(windows, cells.shape, strict=True)]
        return _Box(tuple(axes), at, at.new_zeros(len(axes)))

    @staticmethod
    def _unbounded(index: Tensor, windows: Sequence[Window], is_transposed: bool) -> _Box:
        ends = [(0, 0)] * len(windows)
        if len(index):
            ends = list(zip(index.amin(0).tolist(), index.amax(0).tolist(), strict=True))
        framed = [w.framed(*both, is_transposed) for w, both in zip(windows, ends, strict=True)]
        axes = tuple(axis for axis, _ in framed)
        outputs = index.new_tensor([base for _, base in framed])
        inputs = outputs * index.new_tensor([axis.stride for axis in axes])
        given, reached = (outputs, inputs) if is_transposed else (inputs, outputs)
        return _Box(axes, index - given, reached)


def _each(axes: Sequence[Axis], tap: tuple[int, ...]) -> list[tuple[int, Axis, int]]:
    return [(d, axis, t) for d, (axis, t) in enumerate(zip(axes, tap, strict=True))]


def _index(cells: Cells) -> Tensor:
    index = cells.listed().index
    assert index is not None
    return index


def _labels(found: Sequence[Tensor]) -> Tensor:
    """The label (E,) of each edge, from the edges of each label."""
    counts = torch.tensor([len(edges) for edges in found], device=found[0].device)
    return torch.arange(len(found), device=counts.device).repeat_interleave(counts)


def _places(keys: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The grid (n,) and the coordinates (n, D) of keys (n,)."""
    columns = []
    for count in sizes[::-1]:
        columns.append(keys % max(1, count))
        keys = keys // max(1, count)
    return keys, torch.stack(columns[::-1], dim=1)
