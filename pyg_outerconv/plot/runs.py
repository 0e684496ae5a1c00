"""Pictures of runs: what labels contribute, which classes are confused, runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .canvas import MARK, NEGATIVE, POSITIVE, REACHED, new_figure, value_colours

Values = NDArray[np.float64]

MAX_NUMBERS = 30  # classes; in larger matrices only colours are drawn
MAX_BARS = 24  # of a layer; of more labels those with the largest norms

# What labels contribute ------------------------------------------------------------------------


def bars(contributions: Sequence[Mapping[str, Any]], metric: str, title: str = "") -> Figure:
    """Draw three panels for each layer: norms, changes of the metric in points, of the loss.

    Bars of labels that the layer does better with are blue, of others red.

    Args:
        contributions: of each label of each layer its ``layer`` and ``name``, the ``norm``
            ‖A_kᵀ X Θ_k‖, and without it the ``change`` of the metric and ``loss_change``.
        metric: the name of the metric.
        title: of the figure.
    """
    layers: dict[str, list[Mapping[str, Any]]] = {}
    for one in contributions:
        layers.setdefault(one["layer"], []).append(one)
    heights = [0.9 + 0.26 * min(len(own), MAX_BARS) for own in layers.values()]
    figure = new_figure(11.5, sum(heights) + 0.4)
    grid = figure.add_gridspec(len(layers), 3, height_ratios=heights)
    for row, (layer, own) in enumerate(layers.items()):
        norms = np.array([one["norm"] for one in own])
        shown = [own[k] for k in np.sort(np.argsort(-norms, kind="stable")[:MAX_BARS])]
        names = [one["name"] for one in shown]
        norm, change, loss = (
            np.array([one[what] for one in shown]) for what in ("norm", "change", "loss_change")
        )
        first, second, third = (figure.add_subplot(grid[row, column]) for column in range(3))
        said = f"{layer}: {len(shown)} of {len(own)} labels, those of the largest norms"
        first.set_title(said if len(shown) < len(own) else layer, fontsize=9, loc="left")
        _bars(first, names, norm, [POSITIVE] * len(shown), "‖A_kᵀ X Θ_k‖")
        without = f"change of validation {metric} without it, points"
        _bars(second, names, 100 * change, _colours(-change), without)
        _bars(third, names, loss, _colours(loss), "change of validation cross entropy without it")
        for axes in (second, third):
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
            axes.axvline(0, color="#333333", linewidth=0.8)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def _colours(help_of_label: Values) -> list[str]:
    return [POSITIVE if value >= 0 else NEGATIVE for value in help_of_label]


def _bars(axes: Axes, names: Sequence[str], values: Values, colours: list[str], label: str) -> None:
    axes.barh(range(len(names)), values, color=colours, height=0.7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(label, fontsize=8)
    axes.margins(x=0.2)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for place, value in enumerate(values):
        inward = 3 if value >= 0 else -3
        axes.annotate(
            f"{value:.3g}",
            (value, place),
            (inward, 0),
            textcoords="offset points",
            va="center",
            ha="left" if value >= 0 else "right",
            fontsize=6.5,
        )
    axes.spines[["top", "right"]].set_visible(False)


# The confusion matrix --------------------------------------------------------------------------


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


def _numbers(axes: Axes, values: Values, form: str, most: float) -> None:
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


# Several runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A model of a run: its name and the values of its seeds."""

    name: str
    values: Sequence[float]
    is_reference: bool = False


def intervals(groups: Sequence[tuple[str, str, Sequence[Row]]]) -> Figure:
    """Draw a panel for each group of comparable runs.

    Each row has the mean of its seeds as a large dot, ± the standard error as a thick line and ±
    the standard deviation as a thin one, and the seeds as small dots below. A dashed line stands at
    the mean of the reference.

    Args:
        groups: the title of each, the name of the values, and the rows, drawn from the top.
    """
    heights = [0.75 + 0.36 * len(rows) for _, _, rows in groups]
    longest = max(len(row.name) for _, _, rows in groups for row in rows)
    figure = new_figure(5.5 + min(6.0, 0.065 * longest), sum(heights) + 0.3)
    grid = figure.add_gridspec(len(groups), 1, height_ratios=heights)
    for place, (title, what, rows) in enumerate(groups):
        axes = figure.add_subplot(grid[place, 0])
        for height, row in enumerate(rows):
            values = 100 * np.asarray(row.values)
            colour = MARK if row.is_reference else POSITIVE
            mean = float(values.mean())
            seeds = np.full(len(values), height + 0.25)
            axes.plot(values, seeds, ".", color=REACHED, markersize=4, alpha=0.6)
            if len(values) > 1:
                deviation = float(values.std(ddof=1))
                error = deviation / sqrt(len(values))
                for half, width in ((deviation, 0.9), (error, 3.0)):
                    axes.plot(
                        [mean - half, mean + half], [height, height], color=colour, linewidth=width
                    )
            axes.plot([mean], [height], "o", color=colour, markersize=6, zorder=3)
            if row.is_reference:
                axes.axvline(mean, color=MARK, linewidth=0.8, linestyle="--", zorder=0)
        axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=7.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(what, fontsize=8)
        axes.tick_params(axis="x", labelsize=7.5)
        axes.set_title(title, fontsize=9, loc="left")
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
