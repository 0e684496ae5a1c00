"""Graphs of a basis: nodes in one layout, and a panel with the edges of each label."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch
from numpy.typing import NDArray

from ..errors import RefusedValue
from .canvas import LINE, MARK, QUIET, REACHED, THIN, label_colours, new_figure, value_colours
from .layout import (
    MAX_NODES,
    Edges,
    Numbers,
    Values,
    lay_out,
    nearest,
    of_label,
    on_grid,
    part,
    radius,
)

MAX_EDGES = 6  # of a panel, for each node; those of the largest |value|
_ACROSS, _FEW = 3, 9  # panels side by side; of more than so many panels one more
_REACH = 1.25  # a panel shows [-_REACH, _REACH] on both axes


def graph(
    edges: Edges,
    titles: Sequence[str],
    layout: str = "spring",
    seed: int = 0,
    *,
    shape: tuple[int, int] | None = None,
    around: Sequence[int] = (),
    classes: Numbers | None = None,
    labels: Sequence[int] | None = None,
    max_panels: int = 16,
) -> Figure:
    """Draw a panel for each label: nodes, and edges with the colour and the width of their value.

    Two edges there and back of one value are a line, others arrows; negative ones are dashed. Of a
    graph of more than ``MAX_NODES`` nodes, or if nodes are given, a part is drawn; the nodes in its
    middle are framed.

    Args:
        edges: the edges of all labels.
        titles: the name of each label.
        layout: ``'spring'`` or ``'circle'``; if M ≠ N, sources are left and targets right.
        seed: the seed of the spring layout.
        shape: rows and columns of a grid, in which nodes stand in place of a layout.
        around: nodes of the picture; the part is these and the nodes that are nearest to them.
        classes: (nodes,) a class for each node, negative where it is unknown; None for none.
        labels: the labels to draw; None for all, or for those of the largest values among the drawn
            nodes if there are more than ``max_panels``.

    Raises:
        ValueError: the layout is unknown, or there is not a class for each node.
        IndexError: a node is out of range.
    """
    if classes is not None and classes.shape != (edges.num_nodes,):
        raise RefusedValue("nodes have a class each", (edges.num_nodes,), classes.shape)
    nodes, middle, said = part(edges, around)
    places = lay_out(edges, nodes, layout, seed) if shape is None else on_grid(shape, nodes)
    chosen, told = (
        _labels(edges, nodes, len(titles), max_panels) if labels is None else (labels, "")
    )
    shown = [of_label(edges, k, nodes) for k in chosen]
    figure, panels, points = square_panels(len(chosen), len(nodes))
    colour_map, norm = value_colours(np.concatenate([values for _, _, values in shown]), THIN)
    scale = ScalarMappable(norm, colour_map)
    fills, paint = class_fills(classes, nodes)
    class_legend(figure, paint)
    for axes, k, (source, target, value) in zip(panels, chosen, shown, strict=True):
        kept = np.sort(np.argsort(-np.abs(value), kind="stable")[: MAX_EDGES * len(nodes)])
        more = len(value) - len(kept)
        axes.set_title(titles[k] + (f", {more} smaller edges left out" if more else ""), fontsize=9)
        strokes = [tuple(colour) for colour in scale.to_rgba(value[kept])]
        draw_edges(axes, source[kept], target[kept], value[kept], places, strokes, norm.vmax)
        framed = np.isin(nodes, middle)
        draw_nodes(axes, places, fills, _numbers(edges, nodes), points, framed)
    if any(len(value) for _, _, value in shown):
        value_bar(figure, panels, scale, "A[k, m, n]")
    if said := "; ".join(filter(None, (told, said))):
        figure.suptitle(said, fontsize=10)
    return figure


def _labels(edges: Edges, nodes: Numbers, count: int, most: int) -> tuple[list[int], str]:
    """The labels to draw, and how many are left out in words; '' for none."""
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


def receptive_field(
    edges: Edges, reached: Sequence[int], target: int, layout: str = "spring", seed: int = 0
) -> Figure:
    """Draw the graph, with ``target`` framed and the inputs ``reached`` filled.

    Of a graph of more than ``MAX_NODES`` nodes the target and its inputs are drawn, those that are
    nearest to it where they are many.

    Raises:
        ValueError: the layout is unknown.
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
    framed: NDArray[np.bool_] | None = None,
) -> None:
    """Draw the nodes, with numbers where there is room; ``points`` are those of a unit."""
    marked = np.zeros(len(places), dtype=bool) if framed is None else framed
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
            edgecolors=[MARK if mark else "#333333" for mark in marked],
            linewidths=[2.4 if mark else 0.8 for mark in marked],
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
    found = []
    for colour in colours:
        parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        found.append("#" + "".join(f"{round(0.55 * part + 0.45 * 255):02x}" for part in parts))
    return found


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


def value_bar(figure: Figure, panels: list[Axes], scale: ScalarMappable, label: str) -> None:
    """A colour bar beside the panels, as high as one of them."""
    rows = ceil(len(panels) / _across(len(panels)))
    figure.colorbar(scale, ax=panels, shrink=0.7 / rows, aspect=20, label=label)
