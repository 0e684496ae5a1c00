"""Base class of families of windows: shapes become shifts, listed cells become edges."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.grid_shift import GridShift
from ..basis.pattern import Pattern
from ..errors import RefusedValue
from ..graph.cells import Cells
from .axis_window import Found, Window, among_cells, growing
from .family import Family
from .options import count_axes


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
        given = self.read(cells)
        assert isinstance(given, Cells)
        if given.is_full:
            return Cells.of_shape(self.rule(given).output_shape, given.device)
        return self._find(given).outputs if self.is_growing else given

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
        found = self._find(structure)
        size = (structure.num_cells, found.outputs.num_cells)
        pattern = Pattern.build(found.index, found.label, size=size, num_labels=self.num_bases)
        return EdgeBasis(pattern)

    def _find(self, cells: Cells) -> Found:
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
        found = among_cells(cells, self.windows, self.taps)
        return replace(found, index=found.index.flip(0)) if self.is_transposed else found

    def _check_axes(self, cells: Cells) -> None:
        if cells.num_axes != len(self.windows):
            raise RefusedValue(
                f"{type(self).__name__} needs a grid of as many axes", len(self.windows), cells
            )
