"""Bars of what each label of each layer contributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .canvas import NEGATIVE, POSITIVE, new_figure

Values = NDArray[np.float64]

MAX_BARS = 24  # of a layer; of more labels those with the largest norms


@dataclass(frozen=True)
class LayerBars:
    """The labels of a layer: their names, and three numbers of each.

    Attributes:
        layer: the name of the layer.
        names: of the K labels.
        norm: (K,) ‖A_kᵀ X Θ_k‖.
        change: (K,) of the metric without the label.
        loss_change: (K,) of the cross entropy without the label.
    """

    layer: str
    names: Sequence[str]
    norm: Sequence[float]
    change: Sequence[float]
    loss_change: Sequence[float]


def bars(layers: Sequence[LayerBars], metric: str, title: str = "") -> Figure:
    """Draw three panels for each layer: norms, changes of the metric in points, of the loss.

    Bars of labels that the layer does better with are blue, of others red.
    """
    counts = [min(len(layer.names), MAX_BARS) for layer in layers]
    heights = [0.9 + 0.26 * count for count in counts]
    figure = new_figure(11.5, sum(heights) + 0.4)
    grid = figure.add_gridspec(len(layers), 3, height_ratios=heights)
    for row, layer in enumerate(layers):
        norm = np.asarray(layer.norm)
        shown = np.sort(np.argsort(-norm, kind="stable")[:MAX_BARS])
        names = [layer.names[k] for k in shown]
        change = 100 * np.asarray(layer.change)[shown]
        loss = np.asarray(layer.loss_change)[shown]
        first, second, third = (figure.add_subplot(grid[row, column]) for column in range(3))
        few = len(shown) < len(norm)
        said = f"{layer.layer}: {len(shown)} of {len(norm)} labels, those of the largest norms"
        _bars(first, names, norm[shown], [POSITIVE] * len(shown), "‖A_kᵀ X Θ_k‖")
        _bars(
            second,
            names,
            change,
            _colours(-change),
            f"change of validation {metric} without it, points",
        )
        _bars(third, names, loss, _colours(loss), "change of validation cross entropy without it")
        first.set_title(said if few else layer.layer, fontsize=9, loc="left")
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
