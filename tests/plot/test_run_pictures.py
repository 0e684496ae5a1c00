"""Pictures of runs show the numbers that they are given: bars, cells, edges and points."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lab.bench.fakes import record, timing
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

import pyg_outerconv
from pyg_outerconv.families import GCN
from pyg_outerconv.lab.bench import report as of_benchmarks
from pyg_outerconv.lab.bench.case import FORWARD
from pyg_outerconv.lab.search import pictures as of_searches
from pyg_outerconv.lab.train.results import draw_curves
from pyg_outerconv.plot.canvas import MARK, NEGATIVE, POSITIVE, new_figure, rendered
from pyg_outerconv.plot.graph import MAX_SOURCES, neighbourhood
from pyg_outerconv.plot.runs import MAX_BARS, MAX_NUMBERS, Row, bars, confusion, intervals
from pyg_outerconv.plot.shapes import MAX_PANELS

pytestmark = pytest.mark.pages

# Contributions --------------------------------------------------------------------------------


def widths(axes: Axes) -> list[float]:
    return [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]


def names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def label(layer: str, name: str, norm: float, change: float, loss: float) -> dict[str, Any]:
    return {"layer": layer, "name": name, "norm": norm, "change": change, "loss_change": loss}


def test_bars_are_the_numbers_of_each_layer() -> None:
    rows = [
        label("convs.0", "near", 2.0, -0.1, 0.3),
        label("convs.0", "self", 3.5, 0.02, -0.01),
        label("convs.1", "near", 7.0, 0.0, 0.25),
    ]
    figure = bars(rows, "f1", "of a run")
    assert [widths(axes) for axes in figure.axes] == [
        pytest.approx(values) for values in ([2, 3.5], [-10, 2], [0.3, -0.01], [7.0], [0.0], [0.25])
    ]
    norm, change, loss = figure.axes[:3]
    assert names(norm) == ["near", "self"]
    assert [axes.get_title(loc="left") for axes in figure.axes[::3]] == ["convs.0", "convs.1"]
    assert "f1" in change.get_xlabel()
    helps = [to_hex(patch.get_facecolor()) for patch in (*change.patches, *loss.patches)]
    assert helps == [POSITIVE, NEGATIVE, POSITIVE, NEGATIVE]
    written = [text.get_text() for text in norm.texts]
    assert written == ["2", "3.5"]
    low, high = norm.get_ylim()
    assert low > high  # the first label is above


def test_of_many_labels_those_of_the_largest_norms_have_bars() -> None:
    norm = [float(k % 45) for k in range(90)]
    rows = [label("convs.0", f"r{k}", norm[k], 0.0, norm[k]) for k in range(90)]
    axes = bars(rows, "accuracy").axes
    kept = [k for k in range(90) if norm[k] >= 45 - MAX_BARS / 2]
    assert names(axes[0]) == [f"r{k}" for k in kept]
    assert widths(axes[0]) == widths(axes[2]) == [norm[k] for k in kept]
    assert axes[0].get_title(loc="left").startswith("convs.0: 24 of 90 labels")


# The confusion matrix -------------------------------------------------------------------------


def test_cells_are_counts_and_shares_of_rows() -> None:
    counts = np.array([[3, 1, 0], [2, 2, 0], [0, 0, 0]])
    nodes, _, shares, _ = confusion(counts, ["a", "b", "c"]).axes
    assert np.array_equal(nodes.images[0].get_array(), counts)
    shown = shares.images[0].get_array()
    assert np.allclose(shown[:2], [[0.75, 0.25, 0], [0.5, 0.5, 0]])
    assert np.ma.getmaskarray(shown)[2].all()  # no node of this class
    texts = {text.get_position(): text.get_text() for text in nodes.texts}
    assert texts == {(j, i): str(counts[i, j]) for i in range(3) for j in range(3)}
    assert {text.get_text() for text in shares.texts} == {"0.75", "0.25", "0.00", "0.50"}
    assert (nodes.get_xlabel(), nodes.get_ylabel()) == ("predicted", "true")
    assert [label.get_text() for label in nodes.get_xticklabels()] == ["a", "b", "c"]
    assert (shares.images[0].norm.vmin, shares.images[0].norm.vmax) == (0, 1)


def test_numbers_of_very_many_classes_are_left_out() -> None:
    count = MAX_NUMBERS + 1
    nodes, *_ = confusion(np.eye(count, dtype=int), [str(k) for k in range(count)]).axes
    assert not nodes.texts
    assert nodes.images[0].get_array().sum() == count


# Neighbourhoods -------------------------------------------------------------------------------


def drawn(axes: Axes, gid: str) -> list[object]:
    return [patch for patch in axes.patches if patch.get_gid() == gid]


def numbers(axes: Axes) -> dict[tuple[float, float], str]:
    return {
        tuple(np.round(text.get_position(), 6)): text.get_text()
        for text in axes.texts
        if text.get_gid() == "value"
    }


def test_edges_have_the_width_and_the_number_of_their_value() -> None:
    values = np.array([[0.0, 0.5, 0.2, 0.0, 0.3], [0.0, 0.1, 0.1, 0.0, 0.8]])
    present = np.array([[False, True, True, False, True]] * 2)
    classes = np.array([0, 1, 1, 0, -1])
    figure = neighbourhood(
        values, present, 2, ["head 0", "head 1"], classes=classes, said="convs.0"
    )
    first, second, bar = figure.axes
    assert [axes.get_title() for axes in (first, second)] == ["head 0", "head 1"]
    assert figure.get_suptitle() == "convs.0; node 2: 3 sources"
    assert bar.get_ylim() == (0, 0.8)
    nodes = [int(text.get_text()) for text in first.texts if text.get_gid() != "value"]
    assert nodes == [2, 4, 1]  # the target, then by class, −1 first
    places = np.asarray(first.collections[0].get_offsets())
    assert np.allclose(places[0], 0)
    assert np.allclose(np.linalg.norm(places[1:], axis=1), 1)
    for axes, row in ((first, values[0]), (second, values[1])):
        assert np.array_equal(places, axes.collections[0].get_offsets())
        (loop,) = drawn(axes, "loop")
        assert loop.get_linewidth() == pytest.approx(0.6 + 1.9 * row[2] / 0.8)  # type: ignore[attr-defined]
        assert loop.center[1] < 0  # type: ignore[attr-defined]
        arrows = {
            nodes[int(np.abs(places - a._posA_posB[0]).sum(1).argmin())]: a.get_linewidth()  # type: ignore[attr-defined]
            for a in drawn(axes, "arrow")
        }
        assert arrows == {n: pytest.approx(0.6 + 1.9 * row[n] / 0.8) for n in (1, 4)}
        written = numbers(axes)
        for place, node in enumerate(nodes[1:], start=1):
            at = tuple(np.round(0.6 * places[place], 6))
            assert written.pop(at) == f"{row[node]:.2f}"
        assert list(written.values()) == [f"{row[2]:.2f}"]
    frames = [to_hex(colour) for colour in first.collections[0].get_edgecolors()]
    assert frames[0] == MARK
    assert MARK not in frames[1:]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["class 1", "no class"]


def test_of_many_sources_and_heads_the_strongest_and_the_first_are_drawn() -> None:
    count = MAX_SOURCES + 7
    values = np.tile(np.arange(1.0, count + 1) / count, (MAX_PANELS + 2, 1))
    figure = neighbourhood(
        values, values > 0, 0, [f"h{k}" for k in range(len(values))], classes=None
    )
    *panels, _ = figure.axes
    assert len(panels) == MAX_PANELS
    nodes = {int(text.get_text()) for text in panels[0].texts if text.get_gid() != "value"}
    assert nodes == {0, *range(7, count)}
    assert len(drawn(panels[0], "loop")) == 1  # that of the target, whatever its value
    assert figure.get_suptitle() == (
        f"node 0: {count} sources; 6 of the smallest values left out; {MAX_PANELS} of "
        f"{MAX_PANELS + 2} labels"
    )


def test_a_node_without_sources_stands_alone() -> None:
    figure = neighbourhood(np.zeros((1, 3)), np.zeros((1, 3), dtype=bool), 1, ["head 0"])
    assert len(figure.axes[0].collections[0].get_offsets()) == 1
    assert not figure.axes[0].patches
    assert figure.get_suptitle() == "node 1: 0 sources"


# Comparisons ----------------------------------------------------------------------------------


def test_points_are_means_and_lines_are_errors_and_deviations() -> None:
    rows = [Row("a", [0.5, 0.6, 0.7, 0.8], is_reference=True), Row("b", [0.9])]
    figure = intervals([("Cora", "test accuracy, %", rows), ("Karate", "f1, %", rows[:1])])
    axes, other = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert (axes.get_title(loc="left"), axes.get_xlabel()) == ("Cora", "test accuracy, %")
    lines = [(line.get_xdata(), line.get_ydata(), line.get_linewidth()) for line in axes.lines]
    seeds = [np.asarray(x) for x, y, _ in lines if len(y) and y[0] % 1 == 0.25]
    assert np.allclose(seeds[0], [50, 60, 70, 80])
    assert np.allclose(seeds[1], [90])
    deviation = np.std([50, 60, 70, 80], ddof=1)
    spans = {width: np.asarray(x) for x, y, width in lines if len(x) == 2 and list(y) == [0, 0]}
    assert np.allclose(spans[0.9], [65 - deviation, 65 + deviation])
    assert np.allclose(spans[3.0], [65 - deviation / 2, 65 + deviation / 2])
    means = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "o"]
    assert means == pytest.approx([65, 90])
    (dashed,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed.get_xdata() == pytest.approx([65, 65])
    low, high = axes.get_ylim()
    assert low > high  # the first row is above
    assert len(other.get_yticklabels()) == 1


# Text -----------------------------------------------------------------------------------------

# As formulas of matplotlib's they are errors, or other text.
NAMES = ["$\\frac$", "a$b$c", "$x$", "$ and $ and $", "\\$ $$", "<script>$&$</script>"]


def shown(picture: str) -> str:
    """A picture without its comments, which have formulas as they were written."""
    return re.sub("<!--.*?-->", "", picture, flags=re.DOTALL)


def of_basis(name: str, kind: str, **options: Any) -> Figure:
    basis = GCN().basis(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    return basis.plot(kind, titles=[name], **options)


def of_search(name: str) -> list[str]:
    trial = {"number": 0, "value": 0.5}
    report: Any = SimpleNamespace(
        titles={"outerconv": name, "gat": name},
        trials={"outerconv": [trial], "gat": [trial]},
        metric="accuracy",
        marginals=lambda: {name: {name: [trial], "other": [trial]}},
        differences=lambda: [(name, 0.1, 0.2)],
    )
    drawing = (of_searches.trials_over_time, of_searches.marginals, of_searches.against_winner)
    return [
        *(draw(report) for draw in drawing),
        of_searches.labels([label(name, name, 1.0, 0.1, 0.1)]),
        of_searches.homophily([("edges", 0.5), ("by chance", 0.2), (name, 0.1)]),
        of_searches.response({name: [0.5, None, 1.0]}),
    ]


def of_benchmark(name: str) -> list[str]:
    times = {name: timing(1.0), "ours": timing(2.0)}
    records: Any = [record(case=name, axis=name, at=at, modes={FORWARD: times}) for at in (1, 1000)]
    return [
        of_benchmarks.bars(records[0]),
        of_benchmarks.curves(records, FORWARD, 10.0),
    ]


PRESENT = np.ones((1, 3), dtype=bool)
FIGURES: dict[str, Callable[[str], Any]] = {
    "bars": lambda name: bars([label(name, name, 1.0, 0.1, 0.1)], name, name),
    "confusion": lambda name: confusion(np.eye(2, dtype=int), [name, "b"], name),
    "intervals": lambda name: intervals([(name, name, [Row(name, [0.5, 0.6])])]),
    "neighbourhood": lambda name: neighbourhood(PRESENT * 0.5, PRESENT, 1, [name], said=name),
    "matrices": lambda name: of_basis(name, "matrices"),
    "graph": lambda name: of_basis(name, "graph"),
    "search": of_search,
    "benchmark": of_benchmark,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", FIGURES)
def test_names_are_text_and_no_formulas(kind: str, name: str) -> None:
    drawn = FIGURES[kind](name)
    for picture in drawn if isinstance(drawn, list) else [rendered(drawn, "svg").decode()]:
        assert name in html.unescape(shown(picture))


@pytest.mark.parametrize("name", NAMES)
def test_learning_curves_of_any_title(name: str) -> None:
    history = {f"{part}_{what}": [0.5] for part in ("train", "val") for what in ("loss", "metric")}
    run = {"model": "outerconv", "seed": 0, "epochs": 1, "best_epoch": 1, "history": history}
    settings: Any = SimpleNamespace(metric=name, evaluated=lambda epochs: [1])
    assert draw_curves([run], name, settings).startswith(b"\x89PNG")


def test_ticks_of_logarithmic_axes_stay_powers() -> None:
    figure = new_figure(4, 3)
    axes = figure.add_subplot(title="$x$")
    axes.loglog([1, 1000], [1, 1000])
    picture = rendered(figure, "svg").decode()
    assert "$x$" in picture
    assert "mathdefault" not in shown(picture)
    assert [text.get_text() for text in figure.findobj(Text) if "mathdefault" in text.get_text()]


def test_every_figure_is_begun_in_one_place() -> None:
    folder = Path(pyg_outerconv.__file__).parent
    makers = set()
    for path in folder.rglob("*.py"):
        text = path.read_text()
        if "Figure" not in text:  # which takes longer to read as Python
            continue
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        if any(ast.unparse(call.func).endswith("Figure") for call in calls):
            makers.add(str(path.relative_to(folder)))
    assert makers == {"plot/canvas.py"}
