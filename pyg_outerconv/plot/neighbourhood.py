"""The values of the edges that reach one node: a panel for each label, numbers at the edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .canvas import THIN, value_colours
from .graph import class_fills, class_legend, draw_edges, draw_nodes, square_panels, value_bar

MAX_SOURCES = 24  # of the largest mean |value| over labels
MAX_PANELS = 16

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]


def strongest(values: Values, present: NDArray[np.bool_]) -> Numbers:
    """The sources (S,) with edges, at most ``MAX_SOURCES``, the largest mean |value| first.

    Args:
        values: (K, M) the values of the edges to one target.
        present: (K, M) whether there is an edge.
    """
    sources = np.flatnonzero(present.any(0))
    mean = np.where(present, np.abs(values), 0.0).mean(0)[sources]
    return sources[np.argsort(-mean, kind="stable")[:MAX_SOURCES]]


def neighbourhood(
    values: Values,
    present: NDArray[np.bool_],
    target: int,
    titles: Sequence[str],
    *,
    classes: Numbers | None = None,
    what: str = "A[k, m, n]",
    said: str = "",
) -> Figure:
    """Draw the sources of a target around it, with the value of each edge as width and number.

    The target is framed, in the middle; an edge from itself is a loop below it. Sources stand in
    the order of their classes, in the same place in all panels. Of many sources those of the
    largest mean |value| are drawn, and the title says how many are left out.

    Args:
        values: (K, M) the values of the edges to the target, which is a source, too.
        present: (K, M) whether there is an edge.
        target: n.
        titles: the name of each of the K labels.
        classes: (M,) a class for each node, negative where it is unknown; None for none.
        what: the label of the colour bar.
        said: the beginning of the title.
    """
    own = bool(present[:, target].any())
    nodes, places = _around(strongest(values, present), target, classes, own)
    count, shown = int(present.any(0).sum()), min(len(values), MAX_PANELS)
    figure, panels, points = square_panels(shown, len(nodes))
    drawn = np.where(present, values, 0.0)[:shown, nodes]
    colour_map, norm = value_colours(drawn, THIN)
    scale = ScalarMappable(norm, colour_map)
    fills, paint = class_fills(classes, nodes)
    class_legend(figure, paint)
    for axes, row, there, title in zip(panels, drawn, present[:shown, nodes], titles, strict=False):
        source = np.flatnonzero(there)
        strokes = [tuple(colour) for colour in scale.to_rgba(row[source])]
        ends = np.zeros(len(source), dtype=np.int64)  # the target is the first of the nodes
        draw_edges(axes, source, ends, row[source], places, strokes, norm.vmax)
        draw_nodes(axes, places, fills, nodes, points, np.arange(len(nodes)) == 0)
        _write(axes, places, source, row[source])
        axes.set_title(title, fontsize=9)
    value_bar(figure, panels, scale, what)
    parts = [said, f"node {target}: {count} source{'' if count == 1 else 's'}"]
    if (left_out := count - (len(nodes) - 1 + own)) > 0:
        parts.append(f"{left_out} of the smallest values left out")
    if shown < len(values):
        parts.append(f"{shown} of {len(values)} labels")
    figure.suptitle("; ".join(filter(None, parts)), fontsize=10)
    return figure


def _around(
    sources: Numbers, target: int, classes: Numbers | None, loop: bool
) -> tuple[Numbers, Values]:
    """The nodes, the target first, and their places: a circle around it, open below for a loop."""
    others = np.sort(sources[sources != target])
    if classes is not None:
        others = others[np.argsort(classes[others], kind="stable")]
    gap = 0.35 if loop else 0.0
    angles = np.linspace(-np.pi / 2 + gap, 1.5 * np.pi - gap, len(others) + 2)[1:-1]
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([[target], others]), np.concatenate([np.zeros((1, 2)), circle])


def _write(axes: Axes, places: Values, source: Numbers, values: Values) -> None:
    """The number of each edge, on it; that of a loop below it."""
    for node, value in zip(source.tolist(), values.tolist(), strict=True):
        x, y = 0.6 * places[node] if node else (0.0, -0.34)
        box = {
            "boxstyle": "round,pad=0.12",
            "facecolor": "white",
            "edgecolor": "none",
            "alpha": 0.85,
        }
        axes.text(
            x,
            y,
            f"{value:.2f}",
            ha="center",
            va="center",
            fontsize=6.5,
            bbox=box,
            zorder=4,
            gid="value",
        )
