"""Grids as images: positions of cells, lines between them, marks and arrows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from .colours import LINE, NO_NODE

_MAX_LINES = 60  # per side; more lines would hide the cells


def image_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the image: the last axis runs right, all others run down."""
    return prod(shape[:-1]), shape[-1]


def place(number: int, shape: Sequence[int]) -> tuple[int, int]:
    """Row and column of cell ``number`` in the image; the last axis runs fastest."""
    return divmod(number, shape[-1])


def finish_image(axes: Axes, shape: Sequence[int], title: str) -> None:
    """Add title, ticks, lines between cells, and heavier lines between slices of 3 axes or more."""
    rows, columns = image_shape(shape)
    axes.set_title(title, fontsize=9)
    axes.set_xticks([0, columns - 1] if columns > 1 else [0])
    axes.set_yticks([0, rows - 1] if rows > 1 else [0])
    axes.tick_params(labelsize=7, length=2)
    lines(axes, (rows, columns), (1, 1), width=0.4)
    if len(shape) > 2:
        lines(axes, (rows, columns), (shape[-2], columns), width=1.4)


def hide(axes: Axes, present: NDArray[np.bool_], shape: Sequence[int]) -> None:
    """Cover the cells of an image that are not nodes."""
    if present.all():
        return
    absent = np.ma.masked_array(np.ones(present.shape), present).reshape(image_shape(shape))
    axes.imshow(absent, cmap=ListedColormap([NO_NODE]), interpolation="none")


def lines(axes: Axes, sides: tuple[int, int], steps: tuple[int, int], width: float) -> None:
    """Draw lines every ``steps`` rows and columns of an image, unless they are too many."""
    rows, columns = sides
    if max(rows // steps[0], columns // steps[1]) > _MAX_LINES:
        return
    across = np.arange(steps[0], rows, steps[0]) - 0.5
    down = np.arange(steps[1], columns, steps[1]) - 0.5
    axes.hlines(across, -0.5, columns - 0.5, colors=LINE, linewidth=width)
    axes.vlines(down, -0.5, rows - 0.5, colors=LINE, linewidth=width)


def outline(axes: Axes, at: tuple[int, int], colour: str, style: str = "-") -> None:
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


def arrow(axes: Axes, start: tuple[int, int], end: tuple[int, int], colour: str) -> None:
    """Draw an arrow between two cells, each given as (row, column)."""
    axes.annotate(
        "",
        xy=end[::-1],
        xytext=start[::-1],
        arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.4},
        annotation_clip=False,
    )
