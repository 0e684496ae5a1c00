"""The report as one HTML page that loads nothing from outside; its template is ``page.jinja``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..pages import render_page
from ..pages.figures import COLOURS, INK, drawing
from .case import OURS, TRAINING
from .report import (
    HEAD,
    comparison_rows,
    failures,
    say_machine,
    say_size,
    summary_rows,
    timing_rows,
    timings,
)
from .targets import chosen_key, say_crossover

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
        groups=[
            {"name": name, "cases": [_case(points, report) for _, points in _by(records, "case")]}
            for name, records in _by(report["records"], "group")
        ],
    )


def _by(records: Records, key: str) -> list[tuple[str, Records]]:
    """The records by a key, in the order in which its values first come."""
    names = dict.fromkeys(record[key] for record in records)
    return [(name, [record for record in records if record[key] == name]) for name in names]


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
    rows = [[cell.replace("ours", "chosen") if axis == "problem" else cell for cell in HEAD]]
    rows += [list(row) for record in points for row in timing_rows(record)]
    if axis is not None:
        at = [say_size(record["at"]) for record in points for _ in timing_rows(record)]
        rows = [[place, *row] for place, row in zip([axis, *at], rows, strict=True)]
    return {
        "name": name,
        "description": first["description"],
        "sizes": ", ".join(f"{size} {say_size(count)}" for size, count in sizes.items())
        if axis in (None, "density")
        else "",
        "figures": figures,
        "crossovers": [say_crossover(crossing) for crossing in found],
        "is_sweep": axis is not None,
        "rows": rows,
        "notes": list(dict.fromkeys(note for record in points for note in record["notes"])),
        "absent": "; ".join(
            dict.fromkeys(
                f"{who}: {reason}" for one in points for who, reason in one["absent"].items()
            )
        ),
    }


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
    with drawing(records[0]["case"] + mode, 4.6, 3.1) as made:
        axes = made.figure.add_subplot(xlabel=records[0]["axis"], ylabel=f"{mode}, ms")
        for number, (name, of) in enumerate(rows.groupby("contender", sort=False)):
            at, colour = of["at"].astype(float), COLOURS[number % len(COLOURS)]
            axes.plot(at, 1e3 * of["median"], "o-", color=colour, label=name, ms=3)
            low, high = 1e3 * of["low"], 1e3 * of["high"]
            axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        if crossover is not None:
            axes.axvline(crossover, color=INK, linewidth=0.8, linestyle=":")
            axes.set_title(f"crossover at {crossover:.2g}", fontsize=9)
        axes.set(xscale="log", yscale="log")
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
