"""Families of windows: shapes become shifts, listed cells become edges; a window along an axis."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.grid_shift import Axis, GridShift
from ..basis.pattern import Pattern
from ..errors import RefusedValue
from ..graph.cells import Cells
from .family import Family
from .options import count_axes


@dataclass(frozen=True)
class Window:
    """The kernel along one axis, for any number of cells.

    Attributes:
        shifts: d of every tap; see :class:`Axis`.
        stride: s.
        front, behind: number of cells added before the first and after the last.
        reach: distance from the first tap to the last.
        padding_mode: content of the added cells; see :class:`Axis`.
        ceil_mode: whether a window may go beyond the last cell and its padding.
        output_padding: cells added behind the outputs of a transposed window.
        has_kernel: whether a window must fit into an axis; offsets need not.
    """

    shifts: tuple[int, ...]
    stride: int = 1
    front: int = 0
    behind: int = 0
    reach: int = 0
    padding_mode: str = "zeros"
    ceil_mode: bool = False
    output_padding: int = 0
    has_kernel: bool = True

    def num_outputs(self, num_inputs: int) -> int:
        """N of an axis with M inputs: ⌊(M + padding − reach − 1)/s⌋ + 1, as torch counts.

        An axis without cells has no outputs if its padding is smaller than a window.
        """
        room = num_inputs + self.front + self.behind - self.reach - 1
        count = (room + (self.stride - 1 if self.ceil_mode else 0)) // self.stride + 1
        if count < 1 and num_inputs and self.has_kernel:
            raise RefusedValue(
                "a kernel must fit into the padded grid",
                f"at most {num_inputs + self.front + self.behind} cells",
                self.reach + 1,
            )
        if self.ceil_mode and (count - 1) * self.stride >= num_inputs + self.front:
            count -= 1  # the last window begins in the axis or in the padding before it
        return max(0, count)

    def num_inputs(self, num_outputs: int) -> int:
        """M of the axis that a transposed window makes of N cells, with ``output_padding``."""
        if num_outputs == 0:
            return 0
        least = (num_outputs - 1) * self.stride + 1 + self.reach - self.front - self.behind
        count = least + self.output_padding
        if count < 1:
            raise RefusedValue("a transposed kernel must leave a grid", ">= 1 cell", count)
        return count

    def axis(self, num_cells: int, is_transposed: bool = False) -> Axis:
        """The shifts of an axis with ``num_cells`` inputs, or outputs if transposed."""
        inputs = self.num_inputs(num_cells) if is_transposed else num_cells
        outputs = num_cells if is_transposed else self.num_outputs(num_cells)
        return Axis(inputs, outputs, self.shifts, self.stride, self.padding_mode)

    def framed(self, lowest: int, highest: int, is_transposed: bool = False) -> tuple[Axis, int]:
        """The axis of a box around cells of an unbounded axis and all cells that they reach.

        Returns:
            The axis, and the output b that is output 0 in the box; input s·b is input 0 there.
        """
        s, d_low, d_high = self.stride, min(self.shifts), max(self.shifts)
        if is_transposed:
            base = min(lowest, (s * lowest - d_high) // s)
            outputs = highest - base + 1
            inputs = s * (highest - base) - d_low + 1
        else:
            base = min(lowest, lowest + d_low) // s
            inputs = highest - s * base + 1
            outputs = (inputs - 1 + d_high) // s + 1
        return Axis(inputs, outputs, self.shifts, s), base


Taps = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class CellEdges:
    """Edges (2, E) with labels (E,), label by label, and the cells of their targets."""

    index: Tensor
    label: Tensor
    outputs: Cells


def among_cells(cells: Cells, windows: Sequence[Window], taps: Taps) -> CellEdges:
    """The edges where outputs are the cells themselves, with stride 1.

    Under the label of shift d, the output at n sees the cell at n − d, if it is listed. Beyond the
    ends of an axis, the padding mode maps n − d to a cell.
    """
    box = _Box.around(cells, windows)
    sizes = tuple(axis.num_inputs for axis in box.axes)
    keys, order = cells.keys(box.at, sizes).sort()
    edges_by_label = []
    for tap in taps:
        seen = [axis.sources(box.at[:, d], t) for d, axis, t in _each(box.axes, tap)]
        place = torch.stack(seen, dim=1)
        wanted = cells.keys(place, sizes)
        nearest = torch.searchsorted(keys, wanted).clamp_(max=max(0, len(keys) - 1))
        (target,) = ((place >= 0).all(1) & (keys[nearest] == wanted)).nonzero(as_tuple=True)
        edges_by_label.append(torch.stack([order[nearest[target]], target]))
    return CellEdges(
        torch.cat(edges_by_label, 1), _labels([edges[0] for edges in edges_by_label]), cells
    )


def growing(
    cells: Cells, windows: Sequence[Window], taps: Taps, is_transposed: bool = False
) -> CellEdges:
    """The edges to every output that a cell reaches; outputs sorted by grid, then place.

    ``is_transposed``: whether the cells are outputs of the axes, and the cells they reach inputs.
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
    return CellEdges(torch.stack([torch.cat(sources), target]), _labels(sources), outputs)


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
        corner, reached = (outputs, inputs) if is_transposed else (inputs, outputs)
        return _Box(axes, index - corner, reached)


def _each(axes: Sequence[Axis], tap: tuple[int, ...]) -> list[tuple[int, Axis, int]]:
    return [(d, axis, t) for d, (axis, t) in enumerate(zip(axes, tap, strict=True))]


def _index(cells: Cells) -> Tensor:
    index = cells.listed().index
    assert index is not None
    return index


def _labels(edges_by_label: Sequence[Tensor]) -> Tensor:
    """The label (E,) of each edge, from the edges of each label."""
    counts = torch.tensor([len(edges) for edges in edges_by_label], device=edges_by_label[0].device)
    return torch.arange(len(edges_by_label), device=counts.device).repeat_interleave(counts)


def _places(keys: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The grid (n,) and the coordinates (n, D) of keys (n,)."""
    columns = []
    for count in sizes[::-1]:
        columns.append(keys % max(1, count))
        keys = keys // max(1, count)
    return keys, torch.stack(columns[::-1], dim=1)


class Windows(Family):
    """A family whose matrices are the taps of a kernel that slides over the cells of a grid.

    All cells of a shape make a :class:`GridShift`, a rule; listed cells make edges. Labels are a
    list of taps, so that offsets need not fill a box; a transposed kernel is the transposed rule.

    Attributes:
        per_axis: the options with a value for each axis.
        is_transposed: whether every matrix is transposed.
        is_growing: whether outputs on listed cells are all cells that these reach.
    """

    reads = Cells
    per_axis: ClassVar[tuple[str, ...]]
    is_transposed: bool = False
    is_growing: bool = True
    symmetries = ("translation-equivariant",)

    @property
    @abstractmethod
    def windows(self) -> tuple[Window, ...]:
        """The kernel along each axis."""

    @property
    @abstractmethod
    def taps(self) -> tuple[tuple[int, ...], ...]:
        """For each label, the tap on each axis."""

    @property
    def num_axes(self) -> int:
        """D, the number of axes."""
        return count_axes(self, self.per_axis)

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether outputs are the listed cells."""
        return not self.is_growing

    @property
    def num_bases(self) -> int:
        return len(self.taps)

    @property
    def shifts(self) -> tuple[tuple[int, ...], ...]:
        """The shift d of each label, before transposition, with a number for each axis."""
        return tuple(
            tuple(window.shifts[t] for window, t in zip(self.windows, tap, strict=True))
            for tap in self.taps
        )

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the outputs for a grid of some shape.

        Raises:
            ValueError: the shape has other axes than the kernel, or is too small for it.
        """
        return self.rule(Cells.of_shape(tuple(shape))).output_shape

    def outputs(self, cells: Any) -> Cells:
        """The cells of the targets, for a shape, a mask or cells.

        Raises:
            TypeError, ValueError: see :meth:`basis`.
        """
        sources = self.read(cells)
        assert isinstance(sources, Cells)
        if sources.is_full:
            return Cells.of_shape(self.rule(sources).output_shape, sources.device)
        return self._find(sources).outputs if self.is_growing else sources

    def rule(self, cells: Cells) -> GridShift:
        """The shifts of all cells of a shape."""
        self._check_axes(cells)
        shape = cells.shape or ()
        axes = [w.axis(n, self.is_transposed) for w, n in zip(self.windows, shape, strict=True)]
        return GridShift(tuple(axes), self.taps, on=cells.device, is_transposed=self.is_transposed)

    def basis_on(self, structure: Cells, dtype: torch.dtype | None = None) -> Basis:
        """The shifts of all cells of a shape, or edges between listed cells."""
        if structure.is_full:
            return self.rule(structure)
        edges = self._find(structure)
        size = (structure.num_cells, edges.outputs.num_cells)
        pattern = Pattern.build(edges.index, edges.label, size=size, num_labels=self.num_bases)
        return EdgeBasis(pattern)

    def _find(self, cells: Cells) -> CellEdges:
        """The edges between listed cells."""
        self._check_axes(cells)
        modes = {window.padding_mode for window in self.windows} - {"zeros"}
        if modes and cells.shape is None:
            raise RefusedValue(
                f"padding_mode={modes.pop()!r} needs the ends of the axes",
                "cells with a shape",
                cells,
            )
        if self.is_growing:
            return growing(cells, self.windows, self.taps, self.is_transposed)
        strides = tuple(window.stride for window in self.windows)
        if set(strides) != {1}:
            raise RefusedValue(
                "with growth='submanifold' outputs are the listed cells",
                "stride 1, or growth='full'; padding centres the kernel",
                strides,
            )
        edges = among_cells(cells, self.windows, self.taps)
        return replace(edges, index=edges.index.flip(0)) if self.is_transposed else edges

    def _check_axes(self, cells: Cells) -> None:
        if cells.num_axes != len(self.windows):
            raise RefusedValue(
                f"{type(self).__name__} needs a grid of as many axes", len(self.windows), cells
            )
