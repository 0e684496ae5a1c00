"""Grids as images: what a shift moves where, and which inputs reach an output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .cells import arrow, finish_image, image_shape, outline, place
from .colours import ABSENT, MARK, QUIET, REACHED
from .matrices import left_out_title, panels

Shape = Sequence[int]


def shifts(
    seen: NDArray[np.int64],
    shapes: tuple[Shape, Shape],
    titles: Sequence[str],
    followed: int,
    *,
    left_out: int = 0,
) -> Figure:
    """The input grid, and for each label the output grid, whose cells have the colour of the
    input that they see; white ones see none. An arrow follows one input.

    Args:
        seen: (K, N) the input that each output sees under each label, −1 for none.
        shapes: of the input grid and of the output grid.
        titles: what each of the K labels means.
        followed: the number of the input that the arrows start from.
        left_out: the number of labels that are not among them.
    """
    input_shape, output_shape = shapes
    given, made = image_shape(input_shape), image_shape(output_shape)
    figure, all_axes = panels(1 + len(seen), max(given[0], made[0]), max(given[1], made[1]), 0.0)
    numbers = np.arange(given[0] * given[1])
    colour_map = colormaps["viridis"].with_extremes(bad=ABSENT)
    norm = Normalize(0, max(len(numbers) - 1, 1))
    start = place(followed, input_shape)
    origin = _same_place(followed, input_shape, output_shape)
    all_axes[0].imshow(
        np.ma.masked_array(numbers.reshape(given)),
        cmap=colour_map,
        norm=norm,
        interpolation="none",
    )
    finish_image(all_axes[0], input_shape, "input")
    outline(all_axes[0], start, MARK)
    for axes, row, title in zip(all_axes[1:], seen, titles, strict=True):
        shown = np.ma.masked_less(row, 0).reshape(made)
        axes.imshow(shown, cmap=colour_map, norm=norm, interpolation="none")
        finish_image(axes, output_shape, title)
        _follow(
            axes, origin, [place(n, output_shape) for n in np.flatnonzero(row == followed).tolist()]
        )
    left_out_title(figure, len(seen), left_out)
    return figure


def _same_place(number: int, shape: Shape, other: Shape) -> tuple[int, int] | None:
    """Where the coordinates of a cell are in the image of another grid, if it has them."""
    at = np.unravel_index(number, tuple(shape))
    if len(shape) != len(other) or any(i >= count for i, count in zip(at, other, strict=True)):
        return None
    return place(int(np.ravel_multi_index(at, tuple(other))), other)


def _follow(axes: Axes, origin: tuple[int, int] | None, ends: Sequence[tuple[int, int]]) -> None:
    """Mark the outputs that see an input, and where it came from."""
    for end in ends:
        outline(axes, end, MARK)
        if origin is not None and end != origin:
            outline(axes, origin, MARK, ":")
            arrow(axes, origin, end, MARK)


def receptive_field(
    reached: Sequence[int], targets: Sequence[int], shapes: tuple[Shape, Shape]
) -> Figure:
    """The output grid with the cells that are asked about, and the input grid with the cells
    that reach them.

    Args:
        reached: numbers of inputs.
        targets: numbers of outputs.
        shapes: of the input grid and of the output grid.
    """
    input_shape, output_shape = shapes
    given, made = image_shape(input_shape), image_shape(output_shape)
    figure, (left, right) = panels(2, max(given[0], made[0]), max(given[1], made[1]), 0.0)
    names = ", ".join(_cell_name(target, output_shape) for target in targets)
    _highlight(left, targets, output_shape, MARK, f"output {names}")
    count = f"{len(reached)} of {given[0] * given[1]} inputs"
    _highlight(right, reached, input_shape, REACHED, f"reached by {count}")
    return figure


def _highlight(axes: Axes, cells: Sequence[int], shape: Shape, colour: str, title: str) -> None:
    rows, columns = image_shape(shape)
    shown = np.zeros(rows * columns)
    shown[list(cells)] = 1
    axes.imshow(
        shown.reshape(rows, columns),
        cmap=ListedColormap([QUIET, colour]),
        norm=Normalize(0, 1),
        interpolation="none",
    )
    finish_image(axes, shape, title)


def _cell_name(number: int, shape: Shape) -> str:
    return str(tuple(int(at) for at in np.unravel_index(number, tuple(shape))))
