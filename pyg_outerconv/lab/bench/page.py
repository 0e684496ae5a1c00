"""The report as one HTML page that loads nothing from outside; its template is ``page.jinja``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..pages import render_page
from ..pages.figures import COLOURS, INK, drawing
from .case import FORWARD, OURS, TRAINING
from .report import (
    comparison_rows,
    failures,
    say_machine,
    say_seconds,
    say_size,
    summary_rows,
    timing_rows,
    timings,
)
from .targets import chosen_key, fitted_exponent, say_crossover

Records = Sequence[dict[str, Any]]


def make_page(report: dict[str, Any]) -> str:
    """The whole page."""
    return render_page(
        Path(__file__).with_suffix(".jinja"),
        "html",
        report=report,
        said_machine=say_machine(report["machine"]),
        errors=failures(report),
        summary=summary_rows(report),
        compared=comparison_rows(report["compared"]) if "compared" in report else [],
        groups=[_group(name, records, report) for name, records in _by(report["records"], "group")],
    )


def _by(records: Records, key: str) -> list[tuple[str, Records]]:
    """The records by a key, in the order in which its values first come."""
    names = dict.fromkeys(record[key] for record in records)
    return [(name, [record for record in records if record[key] == name]) for name in names]


def _group(name: str, records: Records, report: dict[str, Any]) -> dict[str, Any]:
    figures = []
    if name == "scaling" and (OURS, FORWARD) in _timed(records):
        figures = [cost_per_edge(records, FORWARD)]
    elif name == "complexity":  # a figure for each axis along which layers were timed
        timed = [record for record in records if record["modes"].get(TRAINING)]
        swept = [one for _, points in _by(timed, "case") if len(points) > 1 for one in points]
        figures = [growth(mine, TRAINING) for _, mine in _by(swept, "axis")]
    cases = [_case(points, report) for _, points in _by(records, "case")]
    return {"name": name, "figures": figures, "cases": cases}


def _timed(records: Records) -> set[tuple[str, str]]:
    """The contenders and modes that were timed."""
    times = timings(records)
    return set(zip(times["contender"], times["mode"], strict=True))


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
        "memory": [row for record in points for row in _memory(record)],
        "notes": list(dict.fromkeys(note for record in points for note in record["notes"])),
        "absent": "; ".join(
            dict.fromkeys(
                f"{who}: {reason}" for one in points for who, reason in one["absent"].items()
            )
        ),
    }


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
    panels = list(timings([record]).groupby("mode", sort=False))
    most = max(len(rows) for _, rows in panels)
    with drawing(record["case"], 4.6 * len(panels), 0.7 + 0.34 * most) as made:
        for place, (mode, rows) in enumerate(panels, start=1):
            axes, rows = made.figure.add_subplot(1, len(panels), place), rows[::-1]
            spread = rows[["low", "high"]].sub(rows["median"], axis=0).abs().T
            colours = [COLOURS[0 if name == OURS else 5] for name in rows["contender"]]
            axes.barh(
                list(rows["contender"]),
                1e3 * rows["median"],
                xerr=1e3 * spread.to_numpy(),
                color=colours,
                ecolor=INK,
                height=0.66,
            )
            if bound := record["bounds"].get(mode):
                at = 1e3 * bound["seconds"]
                axes.axvline(at, color=COLOURS[1], linewidth=1.2, linestyle="--")
            axes.set_xlabel(f"{mode}, ms")
    return made.svg


def curves(records: Records, mode: str, crossover: float | None) -> str:
    """Time over density of every contender with its quartiles, the crossover marked."""
    rows = timings(records).query("mode == @mode")
    lines = rows.assign(line=rows["contender"], time=1e3 * rows["median"], band=True)
    labels, salt = (records[0]["axis"], f"{mode}, ms"), records[0]["case"] + mode
    return _lines(salt, lines, labels, (4.6, 3.1), crossover=crossover)


def cost_per_edge(records: Records, mode: str) -> str:
    """Nanoseconds for each edge over the number of edges, a line for each sweep."""
    rows = timings(records).query("mode == @mode and contender == @OURS")
    lines = rows.assign(line=rows["case"], time=1e9 * rows["median"] / rows["at"].astype(float))
    return _lines("cost per edge", lines, ("edges", f"{mode}, ns per edge"), log_time=False)


def growth(records: Records, mode: str) -> str:
    """Time over the axis that some sweeps share, a line for each, with its fitted exponent."""
    rows = timings(records).query("mode == @mode").drop_duplicates("place")
    titles = {}
    for name, of in rows.groupby("case"):
        fitted = fitted_exponent([float(at) for at in of["at"]], of["median"].tolist())
        titles[name] = f"{name}: exponent {fitted:.2f}"
    lines = rows.assign(line=rows["case"].map(titles), time=1e3 * rows["median"])
    axis = records[0]["axis"]
    return _lines(f"growth over {axis}", lines, (axis, f"{mode}, ms"), base=2)


def _lines(
    salt: str,
    rows: pd.DataFrame,
    labels: tuple[str, str],
    size: tuple[float, float] = (5.6, 3.1),
    base: float = 10,
    log_time: bool = True,
    crossover: float | None = None,
) -> str:
    """The ``time`` over ``at`` of each ``line``, in ms with quartiles if rows have a ``band``."""
    with drawing(salt, *size) as made:
        axes = made.figure.add_subplot()
        for number, (name, of) in enumerate(rows.groupby("line", sort=False)):
            at, colour = of["at"].astype(float), COLOURS[number % len(COLOURS)]
            axes.plot(at, of["time"], "o-", color=colour, label=name, ms=3)
            if "band" in of:
                low, high = 1e3 * of["low"], 1e3 * of["high"]
                axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        if crossover is not None:
            axes.axvline(crossover, color=INK, linewidth=0.8, linestyle=":")
            axes.set_title(f"crossover at {crossover:.2g}", fontsize=9)
        axes.set_xscale("log", base=base)
        if log_time:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        axes.legend(frameon=False, fontsize=8)
    return made.svg


def order_ratios(records: Records, mode: str) -> str:
    """The chosen order's time over that of the best one, a bar for each problem."""
    chosen = {str(one["at"]): one["sizes"].get(chosen_key(mode)) for one in records}
    rows = timings(records).query("mode == @mode")
    rows = rows.assign(ratio=rows["median"] / rows.groupby("place")["median"].transform("min"))
    rows = rows[rows["contender"] == rows["at"].astype(str).map(chosen)][::-1]
    with drawing("orders", 7, 0.9 + 0.26 * len(rows)) as made:
        axes = made.figure.add_subplot()
        axes.barh(list(rows["at"].astype(str)), rows["ratio"], color=COLOURS[0], height=0.66)
        axes.axvline(1.15, color=COLOURS[1], linewidth=1.2, linestyle="--")
        axes.set_xlabel(f"{mode}: chosen order over the best one")
    return made.svg
