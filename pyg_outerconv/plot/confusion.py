"""The confusion matrix: counts, and shares of each true class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .canvas import new_figure, value_colours

MAX_NUMBERS = 30  # classes; in larger matrices only colours are drawn


def confusion(counts: NDArray[np.int64], names: Sequence[str], title: str = "") -> Figure:
    """Draw the counts (C, C) of true (rows) and predicted classes, and the shares of each row.

    A row without nodes has no shares, and is white.
    """
    total = counts.sum(1, keepdims=True)
    shares = np.ma.masked_array(
        counts / np.maximum(total, 1), np.broadcast_to(total == 0, counts.shape)
    )
    side = float(np.clip(1.6 + 0.42 * len(names), 3.0, 9.0))
    figure = new_figure(2 * side + 1.2, side + 0.6)
    pictures = (
        (np.ma.masked_array(counts.astype(float), False), "nodes", "{:.0f}"),
        (shares, "share of the true class", "{:.2f}"),
    )
    for place, (values, said, form) in enumerate(pictures, start=1):
        axes = figure.add_subplot(1, 2, place)
        colour_map, norm = value_colours(values if place == 1 else np.ones(1), "#f4f5f7")
        image = axes.imshow(values, cmap=colour_map, norm=norm, interpolation="none")
        axes.set_title(said, fontsize=9)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set_xlabel("predicted", fontsize=8)
        axes.set_ylabel("true", fontsize=8)
        if len(names) <= MAX_NUMBERS:
            _numbers(axes, values, form, float(norm.vmax or 1.0))
        figure.colorbar(image, ax=axes, shrink=0.8)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def _numbers(axes: Axes, values: NDArray[np.float64], form: str, most: float) -> None:
    """The number in each cell, white on dark ones."""
    mask = np.ma.getmaskarray(values)
    for row, column in zip(*np.nonzero(~mask), strict=True):
        value = float(values[row, column])
        axes.text(
            column,
            row,
            form.format(value),
            ha="center",
            va="center",
            fontsize=7 if len(values) <= 12 else 5,
            color="white" if value > 0.55 * most else "#222222",
        )
