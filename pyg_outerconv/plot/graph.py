"""Graphs of a basis: nodes in one layout, and a panel with the edges of each label."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch
from numpy.typing import NDArray

from ..errors import RefusedValue
from ..graph.checks import Labels
from .canvas import (
    LINE,
    MARK,
    QUIET,
    REACHED,
    THIN,
    image_shape,
    label_colours,
    new_figure,
    value_colours,
)
from .layout import (
    MAX_NODES,
    Edges,
    Numbers,
    Values,
    edges_of,
    lay_out,
    nearest,
    of_label,
    on_grid,
    part,
    radius,
)
from .shapes import MAX_PANELS, grids_of, labels_of

if TYPE_CHECKING:
    from ..basis.base import Basis

MAX_EDGES = 6  # of a panel, for each node; those of the largest |value|
_ACROSS, _FEW = 3, 9  # panels side by side; of more than so many panels one more
MAX_SOURCES = 24  # of a neighbourhood, of the largest mean |value| over labels
_REACH = 1.25  # a panel shows [-_REACH, _REACH] on both axes


def graph(
    basis: Basis,
    *,
    labels: Labels | None = None,
    titles: Sequence[str] | None = None,
    max_panels: int = MAX_PANELS,
    around: int | Sequence[int] = (),
    classes: Any = None,
    layout: str | None = None,
    seed: int = 0,
) -> Figure:
    """Draw a panel for each A_k: nodes, and edges with the colour and the width of their value.

    Two edges there and back of one value are a line, others arrows; negative ones are dashed. Cells
    of a grid stand in their places, unless a ``layout`` is given. If M ≠ N, sources are left and
    targets right. Of a graph of more than ``MAX_NODES`` nodes, or if nodes are given, a part is
    drawn: these, framed, and the nodes that are nearest to them. Of more labels than
    ``max_panels`` those of the largest values in the part are drawn.
    """
    edges = edges_of(basis)
    _, names, _ = labels_of(basis, range(basis.num_bases), titles, max_panels)
    if classes is not None:
        classes = np.asarray(classes)
        if classes.shape != (edges.num_nodes,):
            raise RefusedValue("nodes have a class each", (edges.num_nodes,), classes.shape)
    nodes, middle, said = part(edges, (around,) if isinstance(around, int) else tuple(around))
    shapes = grids_of(basis) if layout is None else None
    if shapes is not None and shapes[0] == shapes[1] and len(shapes[0]) <= 2:
        places = on_grid(image_shape(shapes[0]), nodes)
    else:
        places = lay_out(edges, nodes, layout or "spring", seed)
    if labels is None:
        chosen, told = _largest(edges, nodes, len(names), max_panels)
    else:
        (chosen, _, _), told = labels_of(basis, labels, titles, max_panels), ""
    shown: list[tuple[Any, ...]] = []
    shown_names, most = [], MAX_EDGES * len(nodes)
    for k in chosen:
        ends_and_value = of_label(edges, k, nodes)
        order = np.argsort(-np.abs(ends_and_value[-1]), kind="stable")
        kept, more = np.sort(order[:most]), len(order) - most
        shown.append(tuple(one[kept] for one in ends_and_value))
        shown_names.append(names[k] + (f", {more} smaller edges left out" if more > 0 else ""))
    framed = np.isin(nodes, middle)
    numbers = _numbers(edges, nodes)
    figure, _ = value_panels(shown, shown_names, nodes, places, classes, numbers, framed)
    if said := "; ".join(filter(None, (told, said))):
        figure.suptitle(said, fontsize=10)
    return figure


def value_panels(
    shown: Sequence[tuple[Any, ...]],
    titles: Sequence[str],
    nodes: Numbers,
    places: Values,
    classes: Numbers | None,
    numbers: Numbers,
    framed: NDArray[np.bool_],
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each label, all on one scale of values, and its panels.

    Args:
        shown: of each label sources, targets, as places among the nodes, and values of its edges.
        titles: of the panels.
        nodes: that are drawn, ``places`` and ``numbers`` of each, and which are ``framed``.
        classes: of all nodes, negative where it is unknown; None for none.
    """
    figure, panels, points = square_panels(len(shown), len(nodes))
    colour_map, norm = value_colours(np.concatenate([values for _, _, values in shown]), THIN)
    scale = ScalarMappable(norm, colour_map)
    fills, paint = class_fills(classes, nodes)
    class_legend(figure, paint)
    for axes, title, (source, target, value) in zip(panels, titles, shown, strict=True):
        axes.set_title(title, fontsize=9)
        strokes = [tuple(colour) for colour in scale.to_rgba(value)]
        draw_edges(axes, source, target, value, places, strokes, norm.vmax)
        draw_nodes(axes, places, fills, numbers, points, framed)
    if any(len(value) for _, _, value in shown):  # a bar as high as one of the panels
        rows = ceil(len(panels) / _across(len(panels)))
        look: dict[str, Any] = {"shrink": 0.7 / rows, "aspect": 20, "label": "A[k, m, n]"}
        figure.colorbar(scale, ax=panels, **look)
    return figure, panels


def _largest(edges: Edges, nodes: Numbers, count: int, most: int) -> tuple[list[int], str]:
    """The labels of the largest values, and how many are left out in words; '' for none."""
    if count <= most:
        return list(range(count)), ""
    inside = np.zeros(edges.num_nodes, dtype=bool)
    inside[nodes] = True
    source, target = edges.ends
    there = inside[source] & inside[target]
    sums = np.bincount(edges.label[there], np.abs(edges.value[there]) + 1e-12, minlength=count)
    used = int((sums > 0).sum())
    chosen = np.sort(np.argsort(-sums, kind="stable")[: min(most, used) or most]).tolist()
    told = f"{len(chosen)} of {count} labels; {count - len(chosen)} left out"
    if used < count:
        told += f", {count - used} without an edge here"
    return chosen, told


def reaching_nodes(
    edges: Edges, reached: Sequence[int], target: int, layout: str, seed: int
) -> Figure:
    """Draw the graph, with ``target`` framed and the inputs ``reached`` filled.

    Of a graph of more than ``MAX_NODES`` nodes the target and its inputs are drawn, those that are
    nearest to it where they are many.
    """
    framed = target + (0 if edges.is_square else edges.size[0])
    nodes, title = np.arange(edges.num_nodes), f"output {target}: reached by "
    title += f"{len(reached)} of {edges.size[0]} inputs"
    if edges.num_nodes > MAX_NODES:
        nodes = np.unique([framed, *reached])
        if len(nodes) > MAX_NODES:
            nodes = np.sort(nearest(edges, [framed], MAX_NODES))
        title += f"; {len(nodes)} of {edges.num_nodes} nodes are drawn"
    places = lay_out(edges, nodes, layout, seed)
    figure, (axes,), points = square_panels(1, len(nodes))
    source, ends, value = of_label(edges, None, nodes)
    strokes = [REACHED if nodes[n] == framed else LINE for n in ends]
    draw_edges(axes, source, ends, value, places, strokes)
    inputs = set(reached)
    fills = [REACHED if node in inputs else QUIET for node in nodes.tolist()]
    draw_nodes(axes, places, fills, _numbers(edges, nodes), points, nodes == framed)
    axes.set_title(title, fontsize=9)
    return figure


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
        said: the beginning of the title.
    """
    own = bool(present[:, target].any())
    nodes, places = _around(strongest(values, present), target, classes, own)
    count, shown = int(present.any(0).sum()), min(len(values), MAX_PANELS)
    edges = []
    for row, there in zip(values[:shown, nodes], present[:shown, nodes], strict=True):
        source = np.flatnonzero(there)  # the target is the first of the nodes
        edges.append((source, np.zeros(len(source), dtype=np.int64), row[source]))
    framed = np.arange(len(nodes)) == 0
    figure, panels = value_panels(edges, titles[:shown], nodes, places, classes, nodes, framed)
    for axes, (source, _, row) in zip(panels, edges, strict=True):
        _write(axes, places, source, row)
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


# Drawing -------------------------------------------------------------------------------------


def _across(number: int) -> int:
    """The number of panels side by side."""
    return 2 if number in (2, 4) else min(number, _ACROSS if number <= _FEW else _ACROSS + 1)


def square_panels(number: int, num_nodes: int) -> tuple[Figure, list[Axes], float]:
    """A figure, square panels without frames, and the points of a unit of their axes."""
    across = _across(number)
    side = float(np.clip((3.2 + 0.04 * num_nodes) * (1 if number <= 4 else 0.8), 3.4, 7.2))
    figure = new_figure(across * side + 0.8, ceil(number / across) * side)
    panels = [figure.add_subplot(ceil(number / across), across, 1 + k) for k in range(number)]
    for axes in panels:
        axes.set(xlim=(-_REACH, _REACH), ylim=(-_REACH, _REACH), aspect="equal")
        axes.axis("off")
    return figure, panels, 0.85 * 72 * side / (2 * _REACH)


def draw_edges(
    axes: Axes,
    source: Numbers,
    target: Numbers,
    value: Values,
    places: Values,
    strokes: Sequence[Any],
    most: float | None = None,
) -> None:
    """Draw lines, arrows, and circles beside nodes for self-loops; the largest values above.

    Widths grow from 0.6 points to 2.5 at ``most``, by default the largest value.
    """
    node = radius(places)
    most = most or float(np.abs(value).max(initial=0)) or 1.0
    pairs = list(zip(source.tolist(), target.tolist(), value.tolist(), strict=True))
    back: dict[tuple[int, int], list[float]] = {}
    for m, n, number in pairs:
        back.setdefault((m, n), []).append(number)
    drawn: dict[tuple[int, int], int] = {}
    for edge in np.argsort(np.abs(value), kind="stable").tolist():
        m, n, number = pairs[edge]
        nth = drawn[m, n] = drawn.get((m, n), -1) + 1
        look: dict[str, Any] = {
            "edgecolor": strokes[edge],
            "linewidth": 0.6 + 1.9 * abs(number) / most,
            "linestyle": "--" if number < 0 else "-",
            "zorder": 0.5 if strokes[edge] == LINE else 1,
        }
        if m == n:
            size = 0.5 * node * 0.8**nth
            centre = places[n] + (node + size) * _free_side(places, n)
            axes.add_patch(
                Circle(tuple(centre), size, fill=False, gid="loop", **look | {"zorder": 1.5})
            )
            continue
        other = back.get((n, m), [])
        both_ways = len(other) == len(back[m, n]) and np.allclose(sorted(other), sorted(back[m, n]))
        if both_ways and m > n:  # the line of the other one is both
            continue
        bend = (0.0 if both_ways or not other else 0.12) + 0.14 * nth
        end = _border(places[m], places[n], bend, 0.0 if both_ways else node)
        axes.add_patch(
            FancyArrowPatch(
                tuple(places[m]),
                end,
                arrowstyle="-" if both_ways else "-|>",
                mutation_scale=7,
                connectionstyle=f"arc3,rad={bend}",
                shrinkA=0,
                shrinkB=0,
                facecolor=strokes[edge],
                gid="line" if both_ways else "arrow",
                **look,
            )
        )


def _border(start: Values, end: Values, bend: float, radius: float) -> tuple[float, float]:
    """Where an arc of a bend comes to the border of the node at its end."""
    along = end - start
    control = (start + end) / 2 + bend * np.array([along[1], -along[0]])
    x, y = end - radius * (end - control) / np.linalg.norm(end - control)
    return float(x), float(y)


def _free_side(places: Values, node: int) -> Values:
    """The direction in which there is most room beside a node."""
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False) + np.pi / 2
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    others = np.delete(places, node, axis=0) - places[node]
    if not len(others):
        return ways[0]
    distance = np.linalg.norm(others, axis=1, keepdims=True)
    crowd = ((ways @ (others / distance).T) / distance.T**2).sum(1)
    return ways[int(crowd.round(9).argmin())]


def draw_nodes(
    axes: Axes,
    places: Values,
    fills: Sequence[str],
    numbers: Numbers,
    points: float,
    framed: NDArray[np.bool_],
) -> None:
    """Draw the nodes, with numbers where there is room; ``points`` are those of a unit."""
    node = radius(places)
    sides = np.full(len(places), 2 * node)
    axes.add_collection(
        EllipseCollection(
            sides,
            sides,
            np.zeros(len(places)),
            units="xy",
            offsets=places,
            offset_transform=axes.transData,
            facecolors=list(fills),
            edgecolors=[MARK if mark else "#333333" for mark in framed],
            linewidths=[2.4 if mark else 0.8 for mark in framed],
            zorder=2,
        )
    )
    if node * points < 4.5:
        return
    for (x, y), number in zip(places, numbers.tolist(), strict=True):
        size = node * points * (1.1 if number < 100 else 0.75)
        axes.text(x, y, str(number), ha="center", va="center", fontsize=min(8, size), zorder=3)


def _numbers(edges: Edges, nodes: Numbers) -> Numbers:
    """The numbers that stand in the nodes."""
    return (
        nodes if edges.is_square else np.where(nodes < edges.size[0], nodes, nodes - edges.size[0])
    )


def _pale(colours: Sequence[str]) -> list[str]:
    """Colours on which black numbers are legible."""
    pale_colours = []
    for colour in colours:
        parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        pale_colours.append(
            "#" + "".join(f"{round(0.55 * part + 0.45 * 255):02x}" for part in parts)
        )
    return pale_colours


def class_fills(classes: Numbers | None, nodes: Numbers) -> tuple[list[str], dict[int, str]]:
    """The colour of each of some nodes, and that of each class that they have.

    A class has one colour in all pictures of a graph; −1 is no class.
    """
    if classes is None:
        return ["white"] * len(nodes), {}
    colours = _pale(label_colours(int(classes.max(initial=-1)) + 1))
    own = np.maximum(classes[nodes], -1).tolist()
    paint = {
        k: colours[k] if k >= 0 else "#ffffff" for k in sorted(set(own), key=lambda k: (k < 0, k))
    }
    return [paint[k] for k in own], paint


def class_legend(figure: Figure, paint: dict[int, str]) -> None:
    """A legend below the panels with the colour of each class; nothing without classes."""
    handles = [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            color=colour,
            mec="#333333",
            label=f"class {number}" if number >= 0 else "no class",
        )
        for number, colour in paint.items()
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8)
