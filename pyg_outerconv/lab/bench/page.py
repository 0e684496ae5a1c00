"""The report as one HTML page that loads nothing from outside; its template is ``page.html``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from ...plot.canvas import new_figure
from ..pages import COLOURS, INK, as_svg, render_page, svg_style
from .case import FORWARD, OURS, TRAINING
from .report import failures, say_place, say_seconds, say_size, summary_rows, timing_rows
from .targets import chosen_key, fitted_exponent, say_crossover

Records = Sequence[dict[str, Any]]


def make_page(report: dict[str, Any]) -> str:
    """The whole page."""
    return render_page(
        Path(__file__).with_suffix(".html"),
        {"place": say_place, "seconds": say_seconds},
        report=report,
        errors=failures(report),
        summary=summary_rows(report),
        groups=[_group(name, records, report) for name, records in _by(report["records"], "group")],
    )


def _by(records: Records, key: str) -> list[tuple[str, Records]]:
    """The records by a key, in the order in which its values first come."""
    names = dict.fromkeys(record[key] for record in records)
    return [(name, [record for record in records if record[key] == name]) for name in names]


def _group(name: str, records: Records, report: dict[str, Any]) -> dict[str, Any]:
    figures = []
    if name == "scaling":
        figures = _scaling(records)
    elif name == "complexity":
        figures = _growth(records)
    cases = [_case(points, report) for _, points in _by(records, "case")]
    return {"name": name, "figures": figures, "cases": cases}


def _case(points: Records, report: dict[str, Any]) -> dict[str, Any]:
    """What the template shows of a case, from the records of its points."""
    first = points[0]
    name, axis, sizes = first["case"], first["axis"], first["sizes"]
    modes = list(dict.fromkeys(mode for record in points for mode in record["modes"]))
    found = [crossing for crossing in report["crossovers"] if crossing["case"] == name]
    figures = []
    if axis is None and modes:
        figures = [bars(first)]
    elif axis == "density":
        densities = {crossing["mode"]: crossing["density"] for crossing in found}
        figures = [curves(points, mode, densities.get(mode)) for mode in modes]
        sizes = {size: count for size, count in sizes.items() if size != "edges"}
    elif axis == "problem" and TRAINING in modes:
        figures = [order_ratios(points, TRAINING)]
    head = ["contender", "mode", "median", "spread", "× ours", "of the bound"]
    if axis == "problem":
        head[4] = "× chosen"
    return {
        "name": name,
        "description": first["description"],
        "sizes": ", ".join(f"{size} {say_size(count)}" for size, count in sizes.items())
        if axis in (None, "density")
        else "",
        "figures": figures,
        "crossovers": [say_crossover(crossing) for crossing in found],
        "is_sweep": axis is not None,
        "head": head if axis is None else [axis, *head],
        "rows": [row for record in points for row in _rows(record)],
        "memory": [rows for record in points if (rows := _memory(record))],
        "notes": list(dict.fromkeys(note for record in points for note in record["notes"])),
        "absent": list(dict.fromkeys(i for record in points for i in record["absent"].items())),
    }


def _scaling(records: Records) -> list[str]:
    """Time per edge over the number of edges."""
    sweeps = dict(_by([r for r in records if r["modes"].get(FORWARD, {}).get(OURS)], "case"))
    return [cost_per_edge(sweeps, FORWARD)] if sweeps else []


def _growth(records: Records) -> list[str]:
    """A figure for each axis along which layers of several kinds were timed."""
    figures = []
    for _, mine in _by([r for r in records if r["modes"].get(TRAINING)], "axis"):
        sweeps = {name: points for name, points in _by(mine, "case") if len(points) > 1}
        if sweeps:
            figures.append(growth(sweeps, TRAINING))
    return figures


def _rows(record: dict[str, Any]) -> list[Sequence[str]]:
    """A row for each mode and contender of a point; of a single point also the bounds."""
    at = [] if record["axis"] is None else [say_size(record["at"])]
    rows: list[Sequence[str]] = []
    for mode in record["modes"]:
        rows += [(*at, *row) for row in timing_rows(record) if row[1] == mode]
        bound = record["bounds"].get(mode)
        if bound is not None and not at:
            rows.append(("bound", mode, say_seconds(bound["seconds"]), "", "", bound["limit"]))
    return rows


def _memory(record: dict[str, Any]) -> list[Sequence[str]]:
    """A row for each contender whose peak memory was measured."""
    return [
        (
            name,
            f"{peak['step'] / 2**20:.0f} MiB",
            f"{peak['process'] / 2**20:.0f} MiB",
            peak["method"],
        )
        for name, peak in record["memory"].items()
    ]


# Figures, as SVG that stands inside the page ------------------------------------------------------


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
    """Time over density of every contender with its quartiles, the crossover marked."""
    names = dict.fromkeys(name for record in records for name in record["modes"].get(mode, {}))
    series = {
        name: [
            (record["at"], *(1e3 * record["modes"][mode][name][key] for key in _QUARTILES))
            for record in records
            if name in record["modes"].get(mode, {})
        ]
        for name in names
    }
    first, labels = records[0], (records[0]["axis"], f"{mode}, ms")
    return _lines(first["case"] + mode, series, labels, (4.6, 3.1), crossover=crossover)


def cost_per_edge(sweeps: Mapping[str, Records], mode: str) -> str:
    """Nanoseconds for each edge over the number of edges, a line for each sweep."""
    series = {
        name: [
            (record["at"], 1e9 * record["modes"][mode][OURS]["median"] / record["at"])
            for record in records
            if OURS in record["modes"].get(mode, {})
        ]
        for name, records in sweeps.items()
    }
    return _lines("cost per edge", series, ("edges", f"{mode}, ns per edge"), log_time=False)


def growth(sweeps: Mapping[str, Records], mode: str) -> str:
    """Time over the axis that some sweeps share, a line for each, with its fitted exponent."""
    (axis,) = {record["axis"] for records in sweeps.values() for record in records}
    series = {}
    for name, records in sweeps.items():
        seconds = [float(next(iter(one["modes"][mode].values()))["median"]) for one in records]
        at = [float(record["at"]) for record in records]
        label = f"{name}: exponent {fitted_exponent(at, seconds):.2f}"
        series[label] = [(one, 1e3 * taken) for one, taken in zip(at, seconds, strict=True)]
    return _lines(f"growth over {axis}", series, (axis, f"{mode}, ms"), base=2)


_QUARTILES = ("median", "low", "high")


def _lines(
    salt: str,
    series: Mapping[str, Sequence[tuple[float, ...]]],
    labels: tuple[str, str],
    size: tuple[float, float] = (5.6, 3.1),
    base: float = 10,
    log_time: bool = True,
    crossover: float | None = None,
) -> str:
    """A line for each name through (at, time), or with a band through (at, time, low, high)."""
    with rc_context(svg_style(salt)):
        figure = new_figure(*size)
        axes = figure.add_subplot()
        for number, (name, points) in enumerate(series.items()):
            at, times, *band = zip(*points, strict=True)
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(at, times, "o-", color=colour, label=name, ms=3)
            if band:
                low, high = band
                axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        if crossover is not None:
            axes.axvline(crossover, color=INK, linewidth=0.8, linestyle=":")
            axes.set_title(f"crossover at {crossover:.2g}", fontsize=9)
        axes.set_xscale("log", base=base)
        if log_time:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
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
