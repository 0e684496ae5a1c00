"""Pictures of grids: shifts, and the inputs that reach an output."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ..errors import RefusedValue
from ..graph.checks import Labels
from .canvas import ABSENT, MARK, QUIET, REACHED, check_entries, image_shape, lines
from .graph import reaching_nodes
from .layout import edges_of
from .matrices import panels
from .shapes import MAX_PANELS, Grids, Shape, grids, labels_of, node_at

if TYPE_CHECKING:
    from ..basis.base import Basis
    from ..basis.edges import EdgeBasis


def shift(
    basis: Basis,
    *,
    labels: Labels | None = None,
    titles: Sequence[str] | None = None,
    max_panels: int = MAX_PANELS,
    cell: int | Sequence[int] | None = None,
    inputs: Any = None,
    outputs: Any = None,
) -> Figure:
    """Draw the input grid, and for each label the output grid in the colours of its inputs.

    White cells see no input. Arrows follow the input ``cell``, by default the middle.
    """
    chosen, names, told = labels_of(basis, labels, titles, max_panels)
    both = grids(basis, inputs, outputs)
    if both is None:
        raise RefusedValue(
            "a picture of shifts needs grids", "a grid, or inputs= and outputs=", basis
        )
    input_grid, output_grid = both
    _check_cells("M + N·K", both, len(chosen))
    middle = [count // 2 for count in input_grid]
    followed = node_at(middle if cell is None else cell, input_grid)
    seen = _seen(basis.select(chosen).edges())
    figure, (first, *others) = _panels(1 + len(seen), both)
    numbers = np.arange(prod(input_grid))
    colours, most = colormaps["viridis"].with_extremes(bad=ABSENT), max(len(numbers) - 1, 1)
    _draw(first, numbers, input_grid, colours, most, "input")
    _outline(first, divmod(followed, input_grid[-1]), MARK)
    origin = _same_place(followed, input_grid, output_grid)
    for axes, row, title in zip(others, seen, names, strict=True):
        _draw(axes, np.ma.masked_less(row, 0), output_grid, colours, most, title)
        for end in np.flatnonzero(row == followed).tolist():
            _follow(axes, origin, divmod(end, output_grid[-1]))
    if told:
        figure.suptitle(told, fontsize=10)
    return figure


def receptive_field(
    basis: Basis,
    *,
    cell: int | Sequence[int] = 0,
    reach: int = 1,
    inputs: Any = None,
    outputs: Any = None,
    layout: str = "spring",
    seed: int = 0,
) -> Figure:
    """Draw the inputs that reach an output: cells of a grid, or nodes of a graph.

    On grids the output is marked in one panel, and its inputs in another.
    """
    both = grids(basis, inputs, outputs)
    target = node_at(cell, (basis.size[1],) if both is None else both[1])
    if both is not None:
        _check_cells("M + N", both, 1)
    reached = basis.receptive_field(target, reach).tolist()
    if both is None:
        return reaching_nodes(edges_of(basis), reached, target, layout, seed)
    input_grid, output_grid = both
    figure, both_axes = _panels(2, both)
    count = f"{len(reached)} of {prod(input_grid)} inputs"
    asked = tuple(map(int, np.unravel_index(target, output_grid)))
    for axes, cells, grid, colour, title in (
        (both_axes[0], [target], output_grid, MARK, f"output {asked}"),
        (both_axes[1], reached, input_grid, REACHED, f"reached by {count}"),
    ):
        shown = np.isin(np.arange(prod(grid)), cells).astype(float)
        _draw(axes, shown, grid, ListedColormap([QUIET, colour]), 1, title)
    return figure


def _check_cells(what: str, both: Grids, outputs: int) -> None:
    sides = [side for shape in both for side in image_shape(shape)]
    count = prod(both[0]) + outputs * prod(both[1])
    check_entries(what, count, tuple(sides), "labels= for fewer, or a smaller grid")


def _seen(edges: EdgeBasis) -> NDArray[np.int64]:
    """(K, N) the input that each output sees under each label; −1 for none."""
    seen = torch.full((edges.num_bases, edges.size[1]), -1, dtype=torch.long, device=edges.device)
    target, label = edges.index[1].long(), edges.label.long()
    seen[label, target] = edges.index[0].long()
    if int((seen >= 0).sum()) < edges.num_edges:
        raise RefusedValue(
            "a picture of shifts shows one input for each output and label",
            "no output that sees several",
            "some that do; draw the kind 'matrices'",
        )
    return np.asarray(seen.cpu().numpy())


def _panels(number: int, both: Grids) -> tuple[Figure, list[Axes]]:
    rows, columns = zip(*map(image_shape, both), strict=True)
    return panels(number, max(rows), max(columns), 0.0)


def _draw(
    axes: Axes, values: NDArray[Any], grid: Shape, colours: Colormap, most: float, title: str
) -> None:
    """Draw each cell in the colour of its value, from 0 to ``most``.

    Lines are between cells, and heavier ones between slices of 3 axes or more.
    """
    sides = rows, columns = image_shape(grid)
    image = values.reshape(sides)
    axes.imshow(image, cmap=colours, norm=Normalize(0, most), interpolation="none")
    axes.set_title(title, fontsize=9)
    axes.set_xticks([0, columns - 1] if columns > 1 else [0])
    axes.set_yticks([0, rows - 1] if rows > 1 else [0])
    axes.tick_params(labelsize=7, length=2)
    lines(axes, sides, (1, 1), width=0.4)
    if len(grid) > 2:
        lines(axes, sides, (grid[-2], columns), width=1.4)


def _same_place(number: int, shape: Shape, other: Shape) -> tuple[int, int] | None:
    """Row and column of a cell's coordinates in the image of another grid; None if out of it."""
    at = np.unravel_index(number, shape)
    if len(shape) != len(other) or any(i >= count for i, count in zip(at, other, strict=True)):
        return None
    return divmod(int(np.ravel_multi_index(at, other)), other[-1])


def _follow(axes: Axes, origin: tuple[int, int] | None, end: tuple[int, int]) -> None:
    """Mark an output that sees an input, with an arrow from the input's place."""
    _outline(axes, end, MARK)
    if origin is not None and end != origin:
        _outline(axes, origin, MARK, ":")
        arrow = {"arrowstyle": "->", "color": MARK, "linewidth": 1.4}
        axes.annotate(
            "", xy=end[::-1], xytext=origin[::-1], arrowprops=arrow, annotation_clip=False
        )


def _outline(axes: Axes, at: tuple[int, int], colour: str, style: str = "-") -> None:
    """Draw a frame around the cell at (row, column)."""
    corner = at[1] - 0.5, at[0] - 0.5
    look: dict[str, Any] = {"edgecolor": colour, "linewidth": 1.6, "linestyle": style}
    axes.add_patch(Rectangle(corner, 1, 1, fill=False, **look))
