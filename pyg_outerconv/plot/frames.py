"""The grids of sources and of targets of a basis, as boxes with the cell of each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..basis.algebra import Compound, Transposed
from ..basis.base import Basis
from ..basis.grid_shift import GridShift
from ..basis.products import BinaryProduct, Composed, Restricted
from ..errors import RefusedIndex, RefusedType, RefusedValue
from ..graph.cells import Cells
from ..memo import cached_property

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Frame:
    """A box around a grid, and the cell of each node in it.

    Attributes:
        shape: the number of cells on each axis of the box.
        index: (n, D) coordinates of the nodes in the box; None if all cells are nodes, in order.
    """

    shape: Shape
    index: NDArray[np.int64] | None = None

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """(n,) the number of each node's cell, the last axis running fastest."""
        if self.index is None:
            return np.arange(prod(self.shape))
        return np.ravel_multi_index(tuple(self.index.T), self.shape).astype(np.int64)

    @property
    def present(self) -> NDArray[np.bool_]:
        """(cells,) booleans: the cells that are nodes."""
        found = np.zeros(prod(self.shape), dtype=np.bool_)
        found[self.numbers] = True
        return found

    @property
    def middle(self) -> int:
        """The node closest to the middle of the box."""
        if self.index is None:
            return int(np.ravel_multi_index([count // 2 for count in self.shape], self.shape))
        centre = np.array(self.shape) // 2
        return int(np.abs(self.index - centre).sum(1).argmin())

    def coordinates(self, cell: int) -> tuple[int, ...]:
        """The coordinates of a cell from its number."""
        return tuple(int(at) for at in np.unravel_index(cell, self.shape))

    def node(self, cell: int | Sequence[int]) -> int:
        """The number of the node at a cell.

        Args:
            cell: one coordinate per axis, from the corner of the box; or the number of the node.

        Raises:
            TypeError: a coordinate is not an integer.
            ValueError: there is not one coordinate for each axis.
            IndexError: the cell is outside the grid, or is not a node.
        """
        at = (cell,) if isinstance(cell, int) else tuple(cell)
        shape = (len(self.numbers),) if isinstance(cell, int) else self.shape
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in at):
            raise RefusedType("a cell is given by integers", "one for each axis", repr(cell))
        if len(at) != len(shape):
            raise RefusedValue(
                "a cell has a coordinate for each axis", f"{len(shape)} of {shape}", at
            )
        if not all(0 <= number < count for number, count in zip(at, shape, strict=True)):
            raise RefusedIndex("a cell must be in its grid", f"below {shape}", at)
        if isinstance(cell, int):
            return cell
        found = np.flatnonzero(self.numbers == np.ravel_multi_index(at, shape))
        if not found.size:
            raise RefusedIndex("a cell must have a node", "one that is listed", at)
        return int(found[0])


def grids_of(basis: Basis) -> tuple[Shape, Shape] | None:
    """(input shape, output shape) if its nodes are the cells of full grids; else None."""
    if isinstance(basis, GridShift):
        return basis.input_shape, basis.output_shape
    if isinstance(basis, Transposed):
        found = grids_of(basis.base)
        return None if found is None else (found[1], found[0])
    if isinstance(basis, BinaryProduct):
        first, second = grids_of(basis.first), grids_of(basis.second)
        if first is None or second is None:
            return None
        if isinstance(basis, Composed):
            return first[0], second[1]
        return first[0] + second[0], first[1] + second[1]  # the axes of the first, then others
    # Restricted nodes are not all cells, or have other numbers.
    if isinstance(basis, Restricted) or not isinstance(basis, Compound):
        return None
    return grids_of(basis.parts[0]) if basis.size == basis.parts[0].size else None


def frames(basis: Basis, inputs: Any, outputs: Any) -> tuple[Frame, Frame] | None:
    """The grids of the sources and of the targets of a basis; None if it has no grids.

    Args:
        basis: a basis.
        inputs: the grid of the sources: a shape, a mask, or :class:`Cells`; None to ask the basis.
        outputs: the grid of the targets; None for that of ``inputs``.

    Raises:
        TypeError: an argument is no shape, mask or cells.
        ValueError: there are several grids, the number of cells is not that of the nodes, or
            ``outputs`` is given without ``inputs``.
    """
    if inputs is None:
        if outputs is not None:
            raise RefusedValue("outputs= needs inputs=", "inputs= too", "none")
        shapes = grids_of(basis)
        return None if shapes is None else (Frame(shapes[0]), Frame(shapes[1]))
    given, made = Cells.read(inputs), Cells.read(inputs if outputs is None else outputs)
    for name, cells, count in (("inputs", given, basis.size[0]), ("outputs", made, basis.size[1])):
        if cells.num_cells != count or cells.num_grids > 1:
            raise RefusedValue(f"{name} is one grid with a cell for each node", count, cells)
    if given.shape is not None and made.shape is not None:
        return _frame_of(given, given.shape), _frame_of(made, made.shape)
    return _common_box(given, made)


def _frame_of(cells: Cells, shape: Shape) -> Frame:
    return Frame(shape, None if cells.index is None else cells.index.cpu().numpy())


def _common_box(given: Cells, made: Cells) -> tuple[Frame, Frame]:
    """Both grids in one common box, so that equal coordinates are the same place."""
    places = [cells.listed().index.cpu().numpy() for cells in (given, made)]  # type: ignore[union-attr]
    both = np.concatenate(places)
    low, high = both.min(0), both.max(0)
    shape = tuple((high - low + 1).tolist())
    return Frame(shape, places[0] - low), Frame(shape, places[1] - low)
