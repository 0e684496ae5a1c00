"""Pictures of the matrices of a basis, and of the two Kronecker flattenings of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from .canvas import check_entries, lines, new_figure, panel_size, value_colours

COLUMNS = 5


def panels(
    number: int, rows: int, columns: int, shared_bar: float = 0.7
) -> tuple[Figure, list[Axes]]:
    """A figure with axes for ``number`` images of one size, at most five side by side."""
    width, height = panel_size(rows, columns)
    across = min(number, COLUMNS)
    down = ceil(number / across)
    figure = new_figure(across * (width + 0.45) + shared_bar, down * (height + 0.5) + 0.45)
    return figure, [figure.add_subplot(down, across, at) for at in range(1, number + 1)]


def left_out_title(figure: Figure, shown: int, left_out: int) -> None:
    """Write the number of labels that are not drawn above the panels."""
    if left_out:
        figure.suptitle(f"{shown} of {shown + left_out} labels; {left_out} left out", fontsize=10)


def matrices(
    values: NDArray[np.float64],
    titles: Sequence[str],
    *,
    left_out: int = 0,
    blocks: tuple[int, int] | None = None,
) -> Figure:
    """Draw a panel for each A_k: row m, column n, coloured by value, white without an edge.

    Args:
        values: (K, M, N), masked where there is no edge.
        titles: the title of each of the K labels.
        left_out: the number of labels that are not drawn.
        blocks: numbers of sources and of targets between lines, for grids of several axes.
    """
    num_labels, num_sources, num_targets = values.shape
    figure, all_axes = panels(num_labels, num_sources, num_targets)
    colour_map, norm = value_colours(values)
    for axes, matrix, title in zip(all_axes, values, titles, strict=True):
        axes.imshow(matrix, cmap=colour_map, norm=norm, interpolation="none")
        _finish(axes, title, "target n", "source m")
        if blocks is not None:
            lines(axes, (num_sources, num_targets), blocks, width=0.4)
    figure.colorbar(all_axes[0].images[0], ax=all_axes, shrink=0.8, label="A[k, m, n]")
    left_out_title(figure, num_labels, left_out)
    return figure


def check_flattenings(size: tuple[int, int], channels: tuple[int, int]) -> None:
    """Refuse flattenings that are too large to be legible.

    Raises:
        ValueError: there are too many entries; see :func:`.canvas.check_entries`.
    """
    sides = (size[0] * channels[0], size[1] * channels[1])
    advice = "fewer channels, or a part of the basis (restrict, or a smaller structure)"
    check_entries("2·M·N·P·Q", 2 * sides[0] * sides[1], sides, advice)


LEGIBLE = 240  # rows or columns of a flattening; of larger ones the norms of blocks are drawn


def flattenings(
    phi_hat: NDArray[np.float64],
    phi_check: NDArray[np.float64],
    size: tuple[int, int],
    channels: tuple[int, int],
) -> Figure:
    """Draw Φ̂ and Φ̌ side by side (the paper's figure 2); zeros are white.

    Where a side exceeds ``LEGIBLE``, the norm of the block of each pair of nodes, and of each pair
    of channels, is drawn in place of its entries.

    Args:
        phi_hat: (MP, NQ), with lines around the channels of every pair of nodes.
        phi_check: (PM, QN), with lines around the nodes of every pair of channels.
        size: (M, N).
        channels: (P, Q).
    """
    sides = (phi_hat.shape[0], phi_hat.shape[1])
    if max(sides) > LEGIBLE:
        return _norms_of_blocks(phi_hat, size, channels)
    colour_map, norm = value_colours(np.stack([phi_hat, phi_check]))
    figure, all_axes = panels(2, *sides)
    pictures = (
        (phi_hat, "Φ-hat: sum of A_k ⊠ Θ_k", "node, channel within", channels),
        (phi_check, "Φ-check: sum of Θ_k ⊠ A_k", "channel, node within", size),
    )
    for axes, (values, title, order, inner) in zip(all_axes, pictures, strict=True):
        shown = np.ma.masked_equal(values, 0)
        axes.imshow(shown, cmap=colour_map, norm=norm, interpolation="none")
        _finish(axes, title, f"output: {order}", f"input: {order}")
        lines(axes, sides, inner, width=0.6)
    figure.colorbar(all_axes[0].images[0], ax=all_axes, shrink=0.8)
    return figure


def _norms_of_blocks(
    phi_hat: NDArray[np.float64], size: tuple[int, int], channels: tuple[int, int]
) -> Figure:
    (m, n), (p, q) = size, channels
    squares = phi_hat.reshape(m, p, n, q) ** 2
    figure = new_figure(10, 4.4)
    all_axes = [figure.add_subplot(1, 2, at) for at in (1, 2)]
    pictures = (
        (squares.sum((1, 3)), f"Φ-hat: norms of its blocks, {p} × {q} each", "node"),
        (squares.sum((0, 2)), f"Φ-check: norms of its blocks, {m} × {n} each", "channel"),
    )
    for axes, (sums, title, what) in zip(all_axes, pictures, strict=True):
        norms = np.ma.masked_equal(np.sqrt(sums), 0)
        colour_map, norm = value_colours(norms)
        image = axes.imshow(norms, cmap=colour_map, norm=norm, interpolation="none")
        _finish(axes, title, f"output {what}", f"input {what}")
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _finish(axes: Axes, title: str, across: str, down: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(across, fontsize=8)
    axes.set_ylabel(down, fontsize=8)
    axes.tick_params(labelsize=7, length=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, integer=True))
