"""Pictures of grids: shifts, and the inputs that reach an output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from .canvas import ABSENT, MARK, NO_NODE, QUIET, REACHED, image_shape, lines
from .frames import Frame
from .matrices import left_out_title, panels

Grids = tuple[Frame, Frame]
"""The input grid and the output grid."""


def shifts(
    seen: NDArray[np.int64], both: Grids, titles: Sequence[str], followed: int, *, left_out: int = 0
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
    _outline(first, _place(followed, given.shape), MARK)
    origin = _same_place(followed, given.shape, made.shape)
    for axes, row, title in zip(others, seen, titles, strict=True):
        _draw_numbers(axes, row, len(numbers), made, title)
        ends = np.flatnonzero(row == followed).tolist()
        _follow(axes, origin, [_place(end, made.shape) for end in ends])
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
    names = ", ".join(str(made.coordinates(target)) for target in targets)
    _highlight(left, targets, made, MARK, f"output {names}")
    count = f"{len(reached)} of {int(given.present.sum())} inputs"
    _highlight(right, reached, given, REACHED, f"reached by {count}")
    return figure


def _panels(number: int, both: Grids) -> tuple[Figure, list[Axes]]:
    rows, columns = zip(*(image_shape(grid.shape) for grid in both), strict=True)
    return panels(number, max(rows), max(columns), 0.0)


def _draw_numbers(
    axes: Axes, numbers: NDArray[np.int64], count: int, grid: Frame, title: str
) -> None:
    """Draw each cell in the colour of its number, below ``count``; white if negative."""
    axes.imshow(
        np.ma.masked_less(numbers, 0).reshape(image_shape(grid.shape)),
        cmap=colormaps["viridis"].with_extremes(bad=ABSENT),
        norm=Normalize(0, max(count - 1, 1)),
        interpolation="none",
    )
    _hide(axes, grid.present, grid.shape)
    _finish_image(axes, grid.shape, title)


def _same_place(
    number: int, shape: tuple[int, ...], other: tuple[int, ...]
) -> tuple[int, int] | None:
    """The place of a cell's coordinates in the image of another grid; None if out of bounds."""
    at = np.unravel_index(number, shape)
    if len(shape) != len(other) or any(i >= count for i, count in zip(at, other, strict=True)):
        return None
    return _place(int(np.ravel_multi_index(at, other)), other)


def _follow(axes: Axes, origin: tuple[int, int] | None, ends: Sequence[tuple[int, int]]) -> None:
    """Mark the outputs that see an input, with arrows from the input's place."""
    for end in ends:
        _outline(axes, end, MARK)
        if origin is not None and end != origin:
            _outline(axes, origin, MARK, ":")
            _arrow(axes, origin, end, MARK)


def _highlight(axes: Axes, cells: Sequence[int], grid: Frame, colour: str, title: str) -> None:
    shown = np.zeros(len(grid.present))
    shown[list(cells)] = 1
    axes.imshow(
        shown.reshape(image_shape(grid.shape)),
        cmap=ListedColormap([QUIET, colour]),
        norm=Normalize(0, 1),
        interpolation="none",
    )
    _hide(axes, grid.present, grid.shape)
    _finish_image(axes, grid.shape, title)


def _place(number: int, shape: Sequence[int]) -> tuple[int, int]:
    """Row and column of cell ``number`` in the image; the last axis runs fastest."""
    return divmod(number, shape[-1])


def _finish_image(axes: Axes, shape: Sequence[int], title: str) -> None:
    """Add title, ticks, lines between cells, and heavier lines between slices of 3 axes or more."""
    rows, columns = image_shape(shape)
    axes.set_title(title, fontsize=9)
    axes.set_xticks([0, columns - 1] if columns > 1 else [0])
    axes.set_yticks([0, rows - 1] if rows > 1 else [0])
    axes.tick_params(labelsize=7, length=2)
    lines(axes, (rows, columns), (1, 1), width=0.4)
    if len(shape) > 2:
        lines(axes, (rows, columns), (shape[-2], columns), width=1.4)


def _hide(axes: Axes, present: NDArray[np.bool_], shape: Sequence[int]) -> None:
    """Cover the cells of an image that are not nodes."""
    if present.all():
        return
    absent = np.ma.masked_array(np.ones(present.shape), present).reshape(image_shape(shape))
    axes.imshow(absent, cmap=ListedColormap([NO_NODE]), interpolation="none")


def _outline(axes: Axes, at: tuple[int, int], colour: str, style: str = "-") -> None:
    """Draw a frame around the cell at (row, column)."""
    row, column = at
    axes.add_patch(
        Rectangle(
            (column - 0.5, row - 0.5),
            1,
            1,
            fill=False,
            edgecolor=colour,
            linewidth=1.6,
            linestyle=style,
        )
    )


def _arrow(axes: Axes, start: tuple[int, int], end: tuple[int, int], colour: str) -> None:
    """Draw an arrow between two cells, each given as (row, column)."""
    axes.annotate(
        "",
        xy=end[::-1],
        xytext=start[::-1],
        arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.4},
        annotation_clip=False,
    )
