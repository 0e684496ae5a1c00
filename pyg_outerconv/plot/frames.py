"""The boxes of the grids that a basis goes between, and which of their cells are its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..cache import cached_property
from ..errors import RefusedIndex, RefusedType, RefusedValue, refusal
from ..graph.cells import Cells

if TYPE_CHECKING:
    from ..basis.base import Basis

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Frame:
    """The box of a grid, and the cell of each node.

    Attributes:
        shape: cells on each axis of the box.
        index: (n, D) where each node is in the box; None if all cells are nodes, in order.
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
        """(cells,) where there is a node."""
        found = np.zeros(prod(self.shape), dtype=np.bool_)
        found[self.numbers] = True
        return found

    @property
    def middle(self) -> int:
        """The node nearest to the middle of the box."""
        if self.index is None:
            return int(np.ravel_multi_index([count // 2 for count in self.shape], self.shape))
        centre = np.array(self.shape) // 2
        return int(np.abs(self.index - centre).sum(1).argmin())

    def node(self, cell: int | Sequence[int]) -> int:
        """The node at a cell.

        Args:
            cell: one coordinate an axis, counted from the corner of the box; or the node itself.

        Raises:
            TypeError: coordinates that are no integers.
            ValueError: another number of coordinates than axes.
            IndexError: outside the grid, or no node is there.
        """
        at = (cell,) if isinstance(cell, int) else tuple(cell)
        shape = (len(self.numbers),) if isinstance(cell, int) else self.shape
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in at):
            raise RefusedType(
                refusal("a cell is given by integers", "one for each axis", repr(cell))
            )
        if len(at) != len(shape):
            raise RefusedValue(
                refusal("a cell has a coordinate for each axis", f"{len(shape)} of {shape}", at)
            )
        if not all(0 <= number < count for number, count in zip(at, shape, strict=True)):
            raise RefusedIndex(refusal("a cell must be in its grid", f"below {shape}", at))
        if isinstance(cell, int):
            return cell
        found = np.flatnonzero(self.numbers == np.ravel_multi_index(at, shape))
        if not found.size:
            raise RefusedIndex(refusal("a cell must have a node", "one that is listed", at))
        return int(found[0])


def frames(basis: Basis, inputs: Any, outputs: Any) -> tuple[Frame, Frame] | None:
    """The grids of a basis: those that it is said to go between, or else that it knows of.

    Args:
        basis: whose sources and targets they are.
        inputs: the shape of a grid, a mask, or :class:`Cells`; None if the basis knows.
        outputs: the same of the targets; None for those of ``inputs``.

    Raises:
        TypeError, ValueError: they are no cells, there are several grids, or they have another
            number of cells than the basis has nodes.
    """
    if inputs is None:
        if outputs is not None:
            raise RefusedValue(refusal("outputs= comes with the inputs", "inputs= too", "none"))
        shapes = basis.grids()
        return None if shapes is None else (Frame(shapes[0]), Frame(shapes[1]))
    given, made = Cells.read(inputs), Cells.read(inputs if outputs is None else outputs)
    for name, cells, count in (("inputs", given, basis.size[0]), ("outputs", made, basis.size[1])):
        if cells.num_cells != count or cells.num_grids > 1:
            raise RefusedValue(
                refusal(f"{name} are one grid's, a cell for each node", count, cells)
            )
    if given.shape is not None and made.shape is not None:
        return _framed(given, given.shape), _framed(made, made.shape)
    return _around(given, made)


def _framed(cells: Cells, shape: Shape) -> Frame:
    return Frame(shape, None if cells.index is None else cells.index.cpu().numpy())


def _around(given: Cells, made: Cells) -> tuple[Frame, Frame]:
    """Both in the one box that holds both, so that coordinates mean the same in them."""
    places = [cells.listed().index.cpu().numpy() for cells in (given, made)]  # type: ignore[union-attr]
    both = np.concatenate(places)
    low, high = both.min(0), both.max(0)
    shape = tuple((high - low + 1).tolist())
    return Frame(shape, places[0] - low), Frame(shape, places[1] - low)
