"""The grids that a basis goes between, where it has any, and the numbers of their cells."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..errors import RefusedIndex, RefusedType, RefusedValue, refusal
from .algebra import Composed, Kronecker, Restricted, Stacked, Transposed
from .base import Basis
from .derived import Derived
from .grid.shift import GridShift

Shape = tuple[int, ...]


def grid_shapes(basis: Basis) -> tuple[Shape, Shape] | None:
    """(input shape, output shape) of a basis between full grids, None of any other.

    What the algebra makes of grids keeps them, as long as its nodes are their cells.
    """
    if isinstance(basis, Transposed):
        turned = grid_shapes(basis.base)
        return None if turned is None else (turned[1], turned[0])
    if isinstance(basis, GridShift):
        return basis.input_shape, basis.output_shape
    if isinstance(basis, Stacked):
        return grid_shapes(basis.parts[0])
    if isinstance(basis, Composed | Kronecker):
        first, second = grid_shapes(basis.first), grid_shapes(basis.second)
        if first is None or second is None:
            return None
        if isinstance(basis, Composed):
            return first[0], second[1]
        return first[0] + second[0], first[1] + second[1]
    if isinstance(basis, Derived) and not isinstance(basis, Restricted):
        return grid_shapes(basis.base) if basis.size == basis.base.size else None
    return None


def checked_shape(name: str, shape: Any, count: int) -> Shape:
    """A grid's shape that somebody states for some number of nodes.

    Raises:
        ValueError: it has another number of cells.
    """
    numbers = (shape,) if isinstance(shape, int) else tuple(shape)
    if not numbers or prod(numbers) != count:
        raise RefusedValue(refusal(f"{name} must have a cell for each node", count, shape))
    return numbers


def cell_number(cell: int | Sequence[int], shape: Shape) -> int:
    """The node that a cell is: numbered with the last axis running fastest.

    Args:
        cell: one coordinate an axis, or the number itself.
        shape: cells on each axis.

    Raises:
        TypeError: coordinates that are no integers.
        ValueError: another number of coordinates than axes.
        IndexError: outside the grid.
    """
    at = (cell,) if isinstance(cell, int) else tuple(cell)
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in at):
        raise RefusedType(refusal("a cell is given by integers", "one for each axis", repr(cell)))
    if isinstance(cell, int):
        shape = (prod(shape),)
    if len(at) != len(shape):
        raise RefusedValue(
            refusal("a cell has a coordinate for each axis", f"{len(shape)} of {shape}", at)
        )
    number = 0
    for coordinate, length in zip(at, shape, strict=True):
        if not 0 <= coordinate < length:
            raise RefusedIndex(refusal("a cell must be in its grid", f"below {shape}", at))
        number = number * length + coordinate
    return number
