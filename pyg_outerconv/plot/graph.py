"""Graphs of a basis: a layout of nodes, and an arrow for each edge in the colour of its label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import networkx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch
from numpy.typing import NDArray

from ..errors import RefusedValue, refusal, unknown
from .canvas import new_figure
from .colours import LINE, MARK, QUIET, REACHED, label_colours

LAYOUTS = ("spring", "circle")
MAX_EDGES, MAX_NODES, MAX_LABELS = 2_000, 500, 20
_NUMBERED = 100  # up to this number of nodes, node numbers are drawn

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Edges:
    """Labelled edges as arrays: (E,) sources, targets, labels and values, and the size (M, N)."""

    source: Numbers
    target: Numbers
    label: Numbers
    value: NDArray[np.float64]
    size: tuple[int, int]

    @property
    def is_square(self) -> bool:
        """Whether M = N, so that sources and targets are drawn as the same nodes."""
        return self.size[0] == self.size[1]

    @property
    def num_nodes(self) -> int:
        """Number of nodes in the picture: N if square, else M sources, then N targets."""
        return self.size[0] if self.is_square else sum(self.size)

    def ends(self) -> list[tuple[int, int]]:
        """Source and target of every edge, as node numbers of the picture."""
        shift = 0 if self.is_square else self.size[0]
        return [(int(m), int(n) + shift) for m, n in zip(self.source, self.target, strict=True)]


def check_graph(num_edges: int, size: tuple[int, int], num_labels: int) -> None:
    """Refuse a graph that is too large for a legible picture.

    Raises:
        ValueError: there are too many edges, nodes or labels.
    """
    nodes = max(size)
    for what, limit, got in (
        ("edges", MAX_EDGES, num_edges),
        ("nodes", MAX_NODES, nodes),
        ("labels", MAX_LABELS, num_labels),
    ):
        if got > limit:
            raise RefusedValue(
                refusal(
                    f"a picture of a graph has a limit of {what}",
                    f"<= {limit}",
                    f"{got}; select labels, or draw a part of the graph",
                )
            )


def graph(edges: Edges, titles: Sequence[str], layout: str = "spring", seed: int = 0) -> Figure:
    """Draw nodes, and arrows for edges: colour by label, width by |value|, dashed if negative.

    Args:
        edges: the edges to draw; patch i of the picture is edge i.
        titles: the name of each label, for the legend.
        layout: ``'spring'`` or ``'circle'``; if M ≠ N, sources are left and targets right.
        seed: the seed of the spring layout.

    Raises:
        ValueError: the layout is unknown.
    """
    places = lay_out(edges, layout, seed)
    colours = label_colours(len(titles))
    figure, axes = _axes(edges.num_nodes)
    _draw_edges(axes, edges, places, [colours[k] for k in edges.label])
    _draw_nodes(axes, places, ["white"] * edges.num_nodes, edges)
    handles = [
        Line2D([], [], color=colours[k], label=titles[k]) for k in sorted(set(edges.label.tolist()))
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def receptive_field(
    edges: Edges,
    reached: Sequence[int],
    targets: Sequence[int],
    layout: str = "spring",
    seed: int = 0,
) -> Figure:
    """Draw the graph, with ``targets`` framed and the inputs ``reached`` filled.

    Raises:
        ValueError: the layout is unknown.
    """
    places = lay_out(edges, layout, seed)
    shift = 0 if edges.is_square else edges.size[0]
    fills = [QUIET] * edges.num_nodes
    for node in reached:
        fills[node] = REACHED
    frames = {target + shift for target in targets}
    figure, axes = _axes(edges.num_nodes)
    meant = set(targets)
    strokes = [REACHED if n in meant else LINE for n in edges.target.tolist()]
    _draw_edges(axes, edges, places, strokes)
    _draw_nodes(axes, places, fills, edges, frames)
    names = ", ".join(map(str, targets))
    axes.set_title(
        f"output {names}: reached by {len(reached)} of {edges.size[0]} inputs", fontsize=9
    )
    return figure


def lay_out(edges: Edges, layout: str, seed: int) -> NDArray[np.float64]:
    """(nodes, 2) the position of each node."""
    if layout not in LAYOUTS:
        raise RefusedValue(unknown("layout", layout, LAYOUTS))
    if not edges.is_square:
        columns = [(x, np.linspace(1, -1, count + 2)[1:-1]) for x, count in enumerate(edges.size)]
        return np.array([(x, y) for x, heights in columns for y in heights]).reshape(-1, 2)
    nodes = networkx.Graph()
    nodes.add_nodes_from(range(edges.num_nodes))
    nodes.add_edges_from((m, n) for m, n in edges.ends() if m != n)
    if layout == "circle":
        placed = networkx.circular_layout(nodes)
    else:
        placed = networkx.spring_layout(nodes, seed=seed)
    places = np.array([placed[node] for node in nodes]).reshape(-1, 2)
    low, high = places.min(0), places.max(0)
    return 2 * (places - low) / np.where(high > low, high - low, 1) - 1  # fills the figure


def _axes(num_nodes: int) -> tuple[Figure, Axes]:
    """A figure, and axes without frame and with equal scales."""
    side = _side(num_nodes)
    figure = new_figure(side, side)
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    axes.axis("off")
    return figure, axes


def _side(num_nodes: int) -> float:
    """Side of the figure in inches."""
    return float(np.clip(3.2 + 0.09 * num_nodes, 3.6, 11))


def _radius(num_nodes: int) -> float:
    """Radius of a node in points."""
    return 8.0 if num_nodes <= _NUMBERED else 3.0


def _draw_edges(
    axes: Axes, edges: Edges, places: NDArray[np.float64], strokes: Sequence[str]
) -> None:
    """Draw a patch for each edge; arrows bend by label, so that none hides another."""
    node = _radius(len(places)) / 72 * 2.3 / _side(len(places))  # radius in units of places
    most = float(np.abs(edges.value).max()) if edges.value.size else 1.0
    widths = 0.5 + 1.7 * np.abs(edges.value) / (most or 1.0)
    for (m, n), label, value, width, colour in zip(
        edges.ends(), edges.label, edges.value, widths, strokes, strict=True
    ):
        look: dict[str, Any] = {
            "edgecolor": colour,
            "linewidth": float(width),
            "linestyle": "--" if value < 0 else "-",
            "alpha": 0.4 if colour == LINE else 0.85,
            "zorder": 0.5 if colour == LINE else 1,
        }
        if m == n:
            radius = node * (1.15 + 0.25 * int(label))
            above = (places[n, 0], places[n, 1] + radius)
            axes.add_patch(Circle(above, radius, fill=False, **look))
            continue
        bend = 0.08 + 0.07 * int(label)
        axes.add_patch(
            FancyArrowPatch(
                places[m],
                places[n],
                arrowstyle="-|>",
                mutation_scale=8,
                connectionstyle=f"arc3,rad={bend}",
                shrinkA=_radius(len(places)) * 0.9,
                shrinkB=_radius(len(places)),
                facecolor=colour,
                **look,
            )
        )


def _draw_nodes(
    axes: Axes,
    places: NDArray[np.float64],
    fills: Sequence[str],
    edges: Edges,
    frames: set[int] | None = None,
) -> None:
    framed = frames or set()
    axes.scatter(
        places[:, 0],
        places[:, 1],
        s=(2 * _radius(len(places))) ** 2,
        c=list(fills),
        edgecolors=[MARK if node in framed else "#333333" for node in range(len(places))],
        linewidths=[2.4 if node in framed else 0.8 for node in range(len(places))],
        zorder=2,
    )
    if len(places) <= _NUMBERED:
        for node, (x, y) in enumerate(places):
            number = node if edges.is_square or node < edges.size[0] else node - edges.size[0]
            axes.text(x, y, str(number), ha="center", va="center", fontsize=6.5, zorder=3)
    axes.margins(0.08)
