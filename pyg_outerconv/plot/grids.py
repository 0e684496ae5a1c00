"""Pictures of grids: shifts, and the inputs that reach an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .cells import arrow, finish_image, hide, image_shape, outline, place
from .colours import ABSENT, MARK, QUIET, REACHED
from .matrices import left_out_title, panels


@dataclass(frozen=True, eq=False)
class GridCells:
    """The box of a grid, with the cells that are nodes.

    Attributes:
        shape: the number of cells on each axis.
        present: (cells,) booleans: the cells that are nodes, the last axis running fastest.
    """

    shape: tuple[int, ...]
    present: NDArray[np.bool_]

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of the image."""
        return image_shape(self.shape)

    def name(self, cell: int) -> str:
        """The coordinates of a cell as text."""
        return str(tuple(int(at) for at in np.unravel_index(cell, self.shape)))


Grids = tuple[GridCells, GridCells]
"""The input grid and the output grid."""


def shifts(
    seen: NDArray[np.int64],
    both: Grids,
    titles: Sequence[str],
    followed: int,
    *,
    left_out: int = 0,
) -> Figure:
    """Draw the input grid, and for each label the output grid in the colours of its inputs.

    White cells see no input, dark cells are not nodes. Arrows follow one input.

    Args:
        seen: (K, cells) the input cell that each output cell sees under each label, −1 for none.
        both: the grids.
        titles: the title of each of the K labels.
        followed: the number of the input cell at which the arrows start.
        left_out: the number of labels that are not drawn.
    """
    given, made = both
    figure, (first, *others) = _panels(1 + len(seen), both)
    numbers = np.arange(len(given.present))
    _draw_numbers(first, numbers, len(numbers), given, "input")
    outline(first, place(followed, given.shape), MARK)
    origin = _same_place(followed, given.shape, made.shape)
    for axes, row, title in zip(others, seen, titles, strict=True):
        _draw_numbers(axes, row, len(numbers), made, title)
        ends = np.flatnonzero(row == followed).tolist()
        _follow(axes, origin, [place(end, made.shape) for end in ends])
    left_out_title(figure, len(seen), left_out)
    return figure


def receptive_field(reached: Sequence[int], targets: Sequence[int], both: Grids) -> Figure:
    """Draw the output grid with ``targets`` marked, and the input grid with ``reached`` marked.

    Dark cells are not nodes.

    Args:
        reached: numbers of input cells.
        targets: numbers of output cells.
        both: the grids.
    """
    given, made = both
    figure, (left, right) = _panels(2, both)
    names = ", ".join(made.name(target) for target in targets)
    _highlight(left, targets, made, MARK, f"output {names}")
    count = f"{len(reached)} of {int(given.present.sum())} inputs"
    _highlight(right, reached, given, REACHED, f"reached by {count}")
    return figure


def _panels(number: int, both: Grids) -> tuple[Figure, list[Axes]]:
    rows, columns = zip(*(grid.sides for grid in both), strict=True)
    return panels(number, max(rows), max(columns), 0.0)


def _draw_numbers(
    axes: Axes, numbers: NDArray[np.int64], count: int, grid: GridCells, title: str
) -> None:
    """Draw each cell in the colour of its number, below ``count``; white if negative."""
    axes.imshow(
        np.ma.masked_less(numbers, 0).reshape(grid.sides),
        cmap=colormaps["viridis"].with_extremes(bad=ABSENT),
        norm=Normalize(0, max(count - 1, 1)),
        interpolation="none",
    )
    hide(axes, grid.present, grid.shape)
    finish_image(axes, grid.shape, title)


def _same_place(
    number: int, shape: tuple[int, ...], other: tuple[int, ...]
) -> tuple[int, int] | None:
    """The place of a cell's coordinates in the image of another grid; None if out of bounds."""
    at = np.unravel_index(number, shape)
    if len(shape) != len(other) or any(i >= count for i, count in zip(at, other, strict=True)):
        return None
    return place(int(np.ravel_multi_index(at, other)), other)


def _follow(axes: Axes, origin: tuple[int, int] | None, ends: Sequence[tuple[int, int]]) -> None:
    """Mark the outputs that see an input, with arrows from the input's place."""
    for end in ends:
        outline(axes, end, MARK)
        if origin is not None and end != origin:
            outline(axes, origin, MARK, ":")
            arrow(axes, origin, end, MARK)


def _highlight(axes: Axes, cells: Sequence[int], grid: GridCells, colour: str, title: str) -> None:
    shown = np.zeros(len(grid.present))
    shown[list(cells)] = 1
    axes.imshow(
        shown.reshape(grid.sides),
        cmap=ListedColormap([QUIET, colour]),
        norm=Normalize(0, 1),
        interpolation="none",
    )
    hide(axes, grid.present, grid.shape)
    finish_image(axes, grid.shape, title)
