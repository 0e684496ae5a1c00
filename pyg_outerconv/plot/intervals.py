"""Means of several runs side by side: a point for each seed, standard deviation and error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from matplotlib.figure import Figure

from .canvas import MARK, POSITIVE, REACHED, new_figure


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
