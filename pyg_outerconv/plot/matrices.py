"""Pictures of the matrices of a basis, and of the two Kronecker flattenings of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from ..errors import RefusedValue
from ..graph.checks import Labels
from .canvas import check_entries, lines, new_figure, panel_size, value_colours
from .shapes import MAX_PANELS, PARTS, grids_of, labels_of

if TYPE_CHECKING:
    from ..basis.base import Basis

COLUMNS = 5
LEGIBLE = 240  # rows or columns of a flattening; of larger ones the norms of blocks are drawn


def panels(
    number: int, rows: int, columns: int, shared_bar: float = 0.7
) -> tuple[Figure, list[Axes]]:
    """A figure with axes for ``number`` images of one size, at most five side by side."""
    width, height = panel_size(rows, columns)
    across = min(number, COLUMNS)
    down = ceil(number / across)
    figure = new_figure(across * (width + 0.45) + shared_bar, down * (height + 0.5) + 0.45)
    return figure, [figure.add_subplot(down, across, at) for at in range(1, number + 1)]


def matrices(
    basis: Basis,
    *,
    labels: Labels | None = None,
    titles: Sequence[str] | None = None,
    max_panels: int = MAX_PANELS,
) -> Figure:
    """Draw a panel for each A_k: row m, column n, coloured by value, white without an edge.

    Matrices of grids of several axes have lines between rows of cells.
    """
    chosen, names, told = labels_of(basis, labels, titles, max_panels)
    m, n = basis.size
    check_entries("M·N·K", m * n * len(chosen), (m, n), PARTS)
    edges = basis.select(chosen).edges()
    absent = ~edges.support().cpu().numpy()
    values = np.ma.masked_array(edges.to_dense().detach().cpu().double().numpy(), absent)
    figure, all_axes = panels(len(chosen), m, n)
    colour_map, norm = value_colours(values)
    shapes = grids_of(basis)
    for axes, matrix, title in zip(all_axes, values, names, strict=True):
        axes.imshow(matrix, cmap=colour_map, norm=norm, interpolation="none")
        _finish(axes, title, "target n", "source m")
        if shapes is not None and len(shapes[0]) > 1:
            lines(axes, (m, n), (shapes[0][-1], shapes[1][-1]), width=0.4)
    figure.colorbar(all_axes[0].images[0], ax=all_axes, shrink=0.8, label="A[k, m, n]")
    if told:
        figure.suptitle(told, fontsize=10)
    return figure


def flattenings(
    basis: Basis, *, theta: Tensor | None = None, channels: tuple[int, int] = (2, 3), seed: int = 0
) -> Figure:
    """Draw Σ_k A_k ⊗ Θ_k and Σ_k Θ_k ⊗ A_k; Θ is drawn from a normal distribution if None."""
    if theta is None:
        if len(channels) != 2 or min(channels) < 1:
            raise RefusedValue("flattenings need channels", "(P, Q) >= 1", channels)
        random = torch.Generator().manual_seed(seed)
        theta = torch.randn((basis.num_bases, *channels), generator=random, dtype=torch.double)
    elif theta.dim() != 3 or theta.size(0) != basis.num_bases:
        raise RefusedValue(
            "Θ has a matrix for each label", f"({basis.num_bases}, P, Q)", theta.shape
        )
    m, n = basis.size
    check_flattenings(basis.size, (theta.size(1), theta.size(2)))
    check_entries("M·N·K", m * n * basis.num_bases, (), PARTS)
    dense = basis.to_dense(theta.dtype).to(theta.dtype)
    return draw_phi(torch.einsum("kmn,kpq->mnpq", dense, theta.to(basis.device)))


def check_flattenings(size: tuple[int, int], channels: tuple[int, int]) -> None:
    """Refuse flattenings that are too large to be legible."""
    sides = (size[0] * channels[0], size[1] * channels[1])
    advice = "fewer channels, or a part of the basis (restrict, or a smaller structure)"
    check_entries("2·M·N·P·Q", 2 * sides[0] * sides[1], sides, advice)


def draw_phi(phi: Tensor) -> Figure:
    """Draw both flattenings of Φ (M, N, P, Q) side by side (the paper's figure 2); zeros are white.

    In Φ̂, (MP, NQ), lines are around the channels of every pair of nodes, in Φ̌, (PM, QN), around the
    nodes of every pair of channels. Where a side exceeds ``LEGIBLE``, the norm of each of these
    blocks is drawn in place of its entries.
    """
    values = phi.detach().cpu().double().numpy()
    m, n, p, q = values.shape
    sides = (m * p, n * q)
    if max(sides) > LEGIBLE:
        return _norms_of_blocks(values)
    hat, check = (values.transpose(order).reshape(sides) for order in ((0, 2, 1, 3), (2, 0, 3, 1)))
    colour_map, norm = value_colours(values)
    figure, all_axes = panels(2, *sides)
    pictures = (
        (hat, "Φ-hat: sum of A_k ⊠ Θ_k", "node, channel within", (p, q)),
        (check, "Φ-check: sum of Θ_k ⊠ A_k", "channel, node within", (m, n)),
    )
    for axes, (entries, title, order, inner) in zip(all_axes, pictures, strict=True):
        shown = np.ma.masked_equal(entries, 0)
        axes.imshow(shown, cmap=colour_map, norm=norm, interpolation="none")
        _finish(axes, title, f"output: {order}", f"input: {order}")
        lines(axes, sides, inner, width=0.6)
    figure.colorbar(all_axes[0].images[0], ax=all_axes, shrink=0.8)
    return figure


def _norms_of_blocks(phi: NDArray[np.float64]) -> Figure:
    m, n, p, q = phi.shape
    figure = new_figure(10, 4.4)
    pictures = (
        ((2, 3), f"Φ-hat: norms of its blocks, {p} × {q} each", "node"),
        ((0, 1), f"Φ-check: norms of its blocks, {m} × {n} each", "channel"),
    )
    for place, (block, title, what) in enumerate(pictures, start=1):
        axes = figure.add_subplot(1, 2, place)
        norms = np.ma.masked_equal(np.sqrt((phi**2).sum(block)), 0)
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
