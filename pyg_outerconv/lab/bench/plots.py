"""Figures of a report, as SVG that stands inside a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes

from ...plot.canvas import new_figure
from ..pages.svg import COLOURS, INK, as_svg, svg_style
from .case import OURS
from .sweeps import fitted_exponent
from .targets import chosen_key

Records = Sequence[dict[str, Any]]


def bars(record: dict[str, Any]) -> str:
    """Medians with quartiles, a panel for each mode; the bound of the machine as a line."""
    modes = record["modes"]
    most = max(len(timings) for timings in modes.values())
    with rc_context(svg_style(record["case"])):
        figure = new_figure(4.6 * len(modes), 0.7 + 0.34 * most)
        for place, (mode, timings) in enumerate(modes.items(), start=1):
            axes = figure.add_subplot(1, len(modes), place)
            names = list(timings)[::-1]
            medians = [1e3 * timings[name]["median"] for name in names]
            low, high = (
                [
                    abs(1e3 * timings[name][end] - at)
                    for name, at in zip(names, medians, strict=True)
                ]
                for end in ("low", "high")
            )
            colours = [COLOURS[0] if name == OURS else COLOURS[5] for name in names]
            axes.barh(names, medians, xerr=[low, high], color=colours, ecolor=INK, height=0.66)
            bound = record["bounds"].get(mode)
            if bound is not None:
                axes.axvline(
                    1e3 * bound["seconds"], color=COLOURS[1], linewidth=1.2, linestyle="--"
                )
            axes.set_xlabel(f"{mode}, ms")
        return as_svg(figure)


def curves(records: Records, mode: str, crossover: float | None) -> str:
    """Time over density of every contender, the crossover marked."""
    axis = records[0]["axis"]
    with rc_context(svg_style(records[0]["case"] + mode)):
        figure = new_figure(4.6, 3.1)
        axes = figure.add_subplot()
        names = dict.fromkeys(name for r in records for name in r["modes"].get(mode, {}))
        for number, name in enumerate(names):
            _curve(axes, records, mode, name, COLOURS[number % len(COLOURS)])
        if crossover is not None:
            axes.axvline(crossover, color=INK, linewidth=0.8, linestyle=":")
            axes.set_title(f"crossover at {crossover:.2g}", fontsize=9)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(axis)
        axes.set_ylabel(f"{mode}, ms")
        axes.legend(frameon=False, fontsize=8)
        return as_svg(figure)


def _curve(axes: Axes, records: Records, mode: str, name: str, colour: str) -> None:
    points = [
        (record["at"], record["modes"][mode][name])
        for record in records
        if name in record["modes"].get(mode, {})
    ]
    at = [point for point, _ in points]
    axes.plot(at, [1e3 * t["median"] for _, t in points], "o-", color=colour, label=name, ms=3)
    axes.fill_between(
        at,
        [1e3 * t["low"] for _, t in points],
        [1e3 * t["high"] for _, t in points],
        color=colour,
        alpha=0.2,
        linewidth=0,
    )


def cost_per_edge(sweeps: Mapping[str, Records], mode: str) -> str:
    """Nanoseconds for each edge over the number of edges, a line for each sweep."""
    with rc_context(svg_style("cost per edge")):
        figure = new_figure(5.6, 3.1)
        axes = figure.add_subplot()
        for number, (name, records) in enumerate(sweeps.items()):
            points = [
                (record["at"], 1e9 * record["modes"][mode][OURS]["median"] / record["at"])
                for record in records
                if OURS in record["modes"].get(mode, {})
            ]
            axes.plot(*zip(*points, strict=True), "o-", color=COLOURS[number], label=name, ms=3)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("edges")
        axes.set_ylabel(f"{mode}, ns per edge")
        axes.legend(frameon=False, fontsize=8)
        return as_svg(figure)


def growth(sweeps: Mapping[str, Records], mode: str) -> str:
    """Time over the axis that some sweeps share, a line for each, with its fitted exponent."""
    (axis,) = {record["axis"] for records in sweeps.values() for record in records}
    with rc_context(svg_style(f"growth over {axis}")):
        figure = new_figure(5.6, 3.1)
        axes = figure.add_subplot()
        for number, (name, records) in enumerate(sweeps.items()):
            timings = [next(iter(record["modes"][mode].values())) for record in records]
            at = [float(record["at"]) for record in records]
            seconds = [float(timing["median"]) for timing in timings]
            label = f"{name}: exponent {fitted_exponent(at, seconds):.2f}"
            line = [1e3 * taken for taken in seconds]
            axes.plot(at, line, "o-", color=COLOURS[number], label=label, ms=3)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(axis)
        axes.set_ylabel(f"{mode}, ms")
        axes.legend(frameon=False, fontsize=8)
        return as_svg(figure)


def order_ratios(records: Records, mode: str) -> str:
    """The chosen order's time over that of the best one, a bar for each problem."""
    key = chosen_key(mode)
    rows = [
        (str(record["at"]), times[record["sizes"][key]]["median"] / best)
        for record in records
        if record["sizes"].get(key) in (times := record["modes"].get(mode, {}))
        and (best := min(timing["median"] for timing in times.values()))
    ]
    with rc_context(svg_style("orders")):
        figure = new_figure(7, 0.9 + 0.26 * len(rows))
        axes = figure.add_subplot()
        names = [name for name, _ in rows][::-1]
        ratios = [ratio for _, ratio in rows][::-1]
        axes.barh(names, ratios, color=COLOURS[0], height=0.66)
        axes.axvline(1.15, color=COLOURS[1], linewidth=1.2, linestyle="--")
        axes.set_xlabel(f"{mode}: chosen order over the best one")
        return as_svg(figure)
