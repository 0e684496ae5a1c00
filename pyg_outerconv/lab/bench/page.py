"""The report as one HTML page that loads nothing from outside; its template is ``page.html``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..pages.pages import render_page
from . import plots
from .case import FORWARD, OURS, TRAINING
from .report import failures, say_place
from .sweeps import say_crossover
from .tables import say_seconds, say_size, summary_rows

Records = list[dict[str, Any]]


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
        figures = [plots.bars(first)]
    elif axis == "density":
        densities = {crossing["mode"]: crossing["density"] for crossing in found}
        figures = [plots.curves(points, mode, densities.get(mode)) for mode in modes]
        sizes = {size: count for size, count in sizes.items() if size != "edges"}
    elif axis == "problem" and TRAINING in modes:
        figures = [plots.order_ratios(points, TRAINING)]
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
    return [plots.cost_per_edge(sweeps, FORWARD)] if sweeps else []


def _growth(records: Records) -> list[str]:
    """A figure for each axis along which layers of several kinds were timed."""
    figures = []
    for _, mine in _by([r for r in records if r["modes"].get(TRAINING)], "axis"):
        sweeps = {name: points for name, points in _by(mine, "case") if len(points) > 1}
        if sweeps:
            figures.append(plots.growth(sweeps, TRAINING))
    return figures


def _rows(record: dict[str, Any]) -> list[Sequence[str]]:
    """A row for each mode and contender of a point; of a single point also the bounds."""
    rows: list[Sequence[str]] = []
    at = [] if record["axis"] is None else [say_size(record["at"])]
    for mode, timings in record["modes"].items():
        ours = timings.get(OURS) or next(iter(timings.values()))
        for name, timing in timings.items():
            fraction = record["fractions"].get(mode, {}).get(name)
            rows.append(
                (
                    *at,
                    name,
                    mode,
                    say_seconds(timing["median"]),
                    f"{say_seconds(timing['low'])} – {say_seconds(timing['high'])}",
                    f"{timing['median'] / ours['median']:.2f}",
                    "" if fraction is None else f"{100 * fraction:.0f} %",
                )
            )
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
