"""The report of a run: its JSON, the machine, runs of several processes as one, an earlier run.

A report holds ``machine``, ``settings``, ``roofline``, ``records`` (one for each point of each
case), ``targets`` (the verdicts) and ``crossovers``. A record holds ``case``, ``group``,
``description``, ``axis`` and ``at`` (None for a single point), ``sizes``, ``modes`` (seconds by
mode and contender), ``bounds`` (the least seconds by mode), ``fractions`` (of the bound that was
reached), ``agreement`` (max|Δ| by peer), ``memory`` (bytes by contender), by name the reasons why a
contender is ``absent`` or in ``errors``, ``notes``, and the ``seconds`` that all of it took. Where
several processes measured, it holds ``ratios`` too: times over ours by mode and contender, one for
each process.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import psutil
import torch

from ...errors import RefusedValue
from ...files import read_bytes
from ..pages import render_page, text_table
from ..pages.figures import COLOURS, INK, drawing
from .case import DENSE_FORMS, OURS, SPARSE, TRAINING, Case
from .roofline import Roofline
from .targets import chosen_key, crossover, say_crossover

Record = dict[str, Any]
KIND, FORMAT = "pyg_outerconv.bench", 1
_RESULTS = ("modes", "bounds", "fractions", "agreement", "memory", "absent", "errors", "notes")
RECORD = {"case", "group", "description", "axis", "at", "sizes", *_RESULTS, "seconds"}


def make_report(
    machine: Record,
    settings: Record,
    roofline: Roofline,
    records: Sequence[Record],
    cases: Iterable[Case],
    seconds: float,
) -> Record:
    """The whole report, as plain values for JSON."""
    verdicts = []
    for case in cases:
        points = [record for record in records if record["case"] == case.name]
        if points:
            verdicts += [{"case": case.name, **target.judge(points)} for target in case.targets]
    return {
        "kind": KIND,
        "format": FORMAT,
        "machine": machine,
        "settings": settings,
        "roofline": asdict(roofline),
        "records": list(records),
        "targets": verdicts,
        "crossovers": find_crossovers(records),
        "seconds": round(seconds, 1),
    }


def as_json(report: Record) -> bytes:
    """The report as it is written."""
    return (json.dumps(report, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def read_json(path: Path) -> Record:
    """Read a report that :func:`as_json` wrote."""
    rule = f"{path} must be written by outerconv bench"
    try:
        report = json.loads(read_bytes(path).decode())
    except OSError as error:
        raise RefusedValue(rule, "a file", error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise RefusedValue(rule, "JSON", " ".join(str(error).split())) from error
    if not isinstance(report, dict) or report.get("kind") != KIND:
        raise RefusedValue(rule, f"a report of kind {KIND!r}", "something else")
    if report.get("format") != FORMAT:
        raise RefusedValue(rule, f"format {FORMAT}", report.get("format"))
    records = report.get("records")
    whole = isinstance(records, list) and all(
        isinstance(record, dict) and set(record) >= RECORD for record in records
    )
    if not whole or not isinstance(report.get("machine"), dict):
        raise RefusedValue(rule, "a machine, and whole records", "others")
    return report


def say_place(record: Record) -> str:
    """The case, and the point if it has several."""
    return str(record["case"]) if record["at"] is None else f"{record['case']} at {record['at']}"


def failures(report: Record) -> list[str]:
    """Every error of a run, in a line each."""
    return [
        f"{say_place(record)}: {name}: {reason}"
        for record in report["records"]
        for name, reason in record["errors"].items()
    ]


SOFTWARE = ("torch", "torch-geometric", "torch-scatter", "triton", "numpy", "scipy")


def describe_machine(device: str) -> Record:
    """Processor, cores, threads, memory, device and versions."""
    described: Record = {
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "logical_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "mkl": torch.backends.mkl.is_available(),
        "versions": {name: version for name in SOFTWARE if (version := _installed(name))},
        "device": device,
    }
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        described["gpu"] = properties.name
        described["gpu_memory_gib"] = round(properties.total_memory / 2**30, 1)
        described["cuda"] = torch.version.cuda
    return described


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit_of(path: Path) -> str | None:
    """The last commit that changed a file or folder, ``-dirty`` if more has; None outside git."""
    folder = path if path.is_dir() else path.parent
    asked = [["log", "-1", "--format=%h"], ["status", "--porcelain"]]
    try:
        commit, changes = (
            subprocess.run(
                ["git", *command, "--", str(path)],
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for command in asked
        )
    except (OSError, subprocess.CalledProcessError):  # no git, or no clone
        return None
    return f"{commit}-dirty" if commit and changes else commit or None


def say_machine(machine: Record) -> str:
    """The machine and its software in a line."""
    software = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    gpu = f", {machine['gpu']}" if "gpu" in machine else ""
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"{machine['memory_gib']} GiB{gpu}; {software}"
    )


# Differences below this are the same, whatever the quartiles say.
SLACK = 0.05


def compare_timings(new: Record, old: Record) -> str:
    """``'faster'`` or ``'slower'`` where quartiles lie apart and medians differ, or ``'same'``."""
    ratio = new["median"] / old["median"]
    if new["high"] < old["low"] and ratio < 1 - SLACK:
        return "faster"
    if new["low"] > old["high"] and ratio > 1 + SLACK:
        return "slower"
    return "same"


def compare_reports(new: Record, old: Record) -> Record:
    """Compare every timing that both reports have."""
    before = {say_place(record): record["sizes"] for record in old["records"]}
    records = {say_place(record): record for record in new["records"]}
    others = {
        place: record["case"]
        for place, record in records.items()
        if before.get(place, record["sizes"]) != record["sizes"]
    }
    now, then = (timings(report["records"]) for report in (new, old))
    rows, notes = [], []
    for row in now.merge(then, on=_PLACE, suffixes=("", "_before")).to_dict("records"):
        record, was = records[row["place"]], {key: row[f"{key}_before"] for key in _QUARTILES}
        if row["place"] in others:
            continue
        comparison = {"case": record["case"], "at": record["at"], "mode": row["mode"]}
        comparison |= {"contender": row["contender"], "before": was["median"], "now": row["median"]}
        verdict = compare_timings(row, was)
        rows.append({**comparison, "ratio": row["median"] / was["median"], "verdict": verdict})
    for key in ("processor", "threads", "gpu"):
        one, other = old["machine"].get(key), new["machine"].get(key)
        if one != other:
            notes.append(f"another {key}: {one} before, {other} now")
    if others:
        notes.append(f"not compared, as sizes differ: {', '.join(sorted(set(others.values())))}")
    return {"rows": rows, "notes": notes}


def merge(reports: Sequence[Record]) -> tuple[list[Record], Roofline]:
    """The records of several runs as one, and the roofline in their median.

    Each timing becomes the median of the medians, with their range where one run has quartiles.
    ``ratios`` is added: by mode and contender, its time over ours in each process. Errors and
    absences of all stay, and the largest differences.
    """
    times = pd.concat(
        [timings(report["records"]).assign(process=number) for number, report in enumerate(reports)]
    )
    ours = times.loc[times["contender"] == OURS, ["place", "mode", "process", "median"]]
    times = times.merge(ours, "left", ["place", "mode", "process"], suffixes=("", "_of_ours"))
    times["ratio"] = times["median"] / times["median_of_ours"]
    merged = times.groupby(_PLACE, sort=False).agg(
        median=("median", "median"),
        low=("median", "min"),
        high=("median", "max"),
        least=("least", "min"),
        repeats=("repeats", "sum"),
        inner=("inner", "first"),
        ratios=("ratio", list),
    )
    together: dict[str, list[Record]] = {}
    for report in reports:
        for record in report["records"]:
            together.setdefault(say_place(record), []).append(record)
    records = {place: _merged(place_records) for place, place_records in together.items()}
    for (place, mode, name), timing in merged.to_dict("index").items():
        record, ratios = records[place], [one for one in timing.pop("ratios") if one == one]
        record["modes"].setdefault(mode, {})[name] = timing
        if mode in record["bounds"]:
            share = record["bounds"][mode]["seconds"] / timing["median"]
            record["fractions"].setdefault(mode, {})[name] = share
        of_mode = record["ratios"].setdefault(mode, {})
        if name != OURS and ratios:
            of_mode[name] = ratios
    middle = pd.DataFrame([report["roofline"] for report in reports]).median()
    return list(records.values()), Roofline(**middle.to_dict())


def _merged(records: Sequence[Record]) -> Record:
    """One point of several runs, without its times."""
    merged_record = {**records[0], "modes": {}, "ratios": {}, "fractions": {}}
    for name in ("absent", "errors", "memory"):
        merged_record[name] = {
            key: text for record in records for key, text in record[name].items()
        }
    for name in merged_record["agreement"]:
        gaps = [record["agreement"].get(name) for record in records]
        merged_record["agreement"] = {
            **merged_record["agreement"],
            name: None if None in gaps else max(gaps),
        }
    merged_record["seconds"] = round(sum(record["seconds"] for record in records), 2)
    return merged_record


_PLACE = ["place", "mode", "contender"]
_QUARTILES = ["median", "low", "high"]


def timings(records: Iterable[Record]) -> pd.DataFrame:
    """A row for each timing: the case and the point, the mode, the contender, and its numbers."""
    rows = [
        {"case": record["case"], "at": record["at"], "place": say_place(record)}
        | {"mode": mode, "contender": name, **timing}
        for record in records
        for mode, of_mode in record["modes"].items()
        for name, timing in of_mode.items()
    ]
    columns = ["case", "at", *_PLACE, *_QUARTILES, "least", "repeats", "inner"]
    return pd.DataFrame(rows, columns=columns)


def find_crossovers(records: Iterable[Record]) -> list[Record]:
    """For each sweep over density and each mode: from where on the best dense form is faster."""
    crossovers = []
    swept = timings(record for record in records if record["axis"] == "density")
    for (name, mode), rows in swept.groupby(["case", "mode"], sort=False):
        times = rows.pivot(index="at", columns="contender", values="median").sort_index()
        # Some cases have no layer that would not be sparse by itself.
        sparse = times.get(SPARSE, times.get(OURS))
        dense = times.reindex(columns=[*DENSE_FORMS]).min(axis=1)
        both = pd.DataFrame({"sparse": sparse, "dense": dense}).dropna()
        if len(both):
            at = both.index.astype(float).tolist()
            density = crossover(at, both["sparse"].tolist(), both["dense"].tolist())
            ends = {"lowest": at[0], "highest": at[-1]}
            crossovers.append({"case": name, "mode": mode, "density": density, **ends})
    return crossovers


# Tables, for the terminal ----------------------------------------------------------------------


def say_seconds(seconds: float) -> str:
    """Three significant figures in s, ms or µs."""
    factor, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    digits = ".3g" if seconds * factor < 1000 else ".0f"
    return f"{seconds * factor:{digits}} {unit}"


HEAD = ("contender", "mode", "median", "spread", "× ours", "of the bound", "peak memory")


def say_record(record: Record) -> str:
    """One point: medians of its contenders, their spread and their share of the bound."""
    lines = [f"{say_place(record)}: {record['description']}"]
    if record["sizes"]:
        lines.append(
            ", ".join(f"{name} {say_size(size)}" for name, size in record["sizes"].items())
        )
    if rows := timing_rows(record):
        lines.append(text_table([HEAD, *(tuple(cell or "-" for cell in row) for row in rows)]))
    lines += [f"note: {note}" for note in record["notes"]]
    lines += [f"not run: {name}: {reason}" for name, reason in record["absent"].items()]
    lines += [f"ERROR: {name}: {reason}" for name, reason in record["errors"].items()]
    return "\n".join(lines)


def timing_rows(record: Record) -> list[tuple[str, ...]]:
    """The columns of ``HEAD`` for each mode and contender, '' where a number is not known.

    Memory is that of the last mode; of a single point the bound of a mode stands below it.
    """
    rows: list[tuple[str, ...]] = []
    last = [*record["modes"]][-1:]
    for mode, timings in record["modes"].items():
        ours = (timings.get(OURS) or next(iter(timings.values())))["median"]
        for name, timing in timings.items():
            share = record["fractions"].get(mode, {}).get(name)
            peak = record["memory"].get(name) if [mode] == last else None
            rows.append(
                (
                    name,
                    mode,
                    say_seconds(timing["median"]),
                    f"{say_seconds(timing['low'])} – {say_seconds(timing['high'])}",
                    f"{timing['median'] / ours:.2f}",
                    "" if share is None else f"{100 * share:.0f} %",
                    "" if peak is None else f"{peak['step'] / 2**20:.0f} MiB",
                )
            )
        bound = record["bounds"].get(mode)
        if bound is not None and record["axis"] is None:
            rows.append(("bound", mode, say_seconds(bound["seconds"]), "", "", bound["limit"], ""))
    return rows


def ratio_rows(report: Record) -> list[tuple[str, ...]]:
    """Times over ours over several processes, median and range, below their head."""
    rows: list[tuple[str, ...]] = [("case", "contender", "mode", "median", "range")]
    for record in report["records"]:
        for mode, of_mode in record.get("ratios", {}).items():
            for name, ratios in of_mode.items():
                spread = f"{min(ratios):.2f} – {max(ratios):.2f}"
                rows.append((say_place(record), name, mode, f"{median(ratios):.2f}", spread))
    return rows


def say_size(size: float | int | str) -> str:
    """A count with thousands separated by spaces; any other value as text."""
    return f"{size:,}".replace(",", " ") if isinstance(size, int) else str(size)


def summary_rows(report: Record) -> list[tuple[str, ...]]:
    """The quantities that cases measure: case, quantity, value, a note, below their head."""
    rows: list[tuple[str, ...]] = [("case", "quantity", "measured", "")]
    for row in report["targets"]:
        if row["measured"]:
            rows.append((row["case"], row["what"], row["measured"], row["note"]))
    return rows


def comparison_rows(compared: Record) -> list[tuple[str, ...]]:
    """A row for each timing that was compared, below their head."""
    rows: list[tuple[str, ...]] = [
        ("case", "contender", "mode", "before", "now", "ratio", "verdict")
    ]
    for row in compared["rows"]:
        times = say_seconds(row["before"]), say_seconds(row["now"]), f"{row['ratio']:.2f}"
        rows.append((say_place(row), row["contender"], row["mode"], *times, row["verdict"]))
    return rows


def say_end(report: Record) -> str:
    """What is said when a run has ended: ratios, quantities, crossovers, an earlier run."""
    parts = []
    if len(rows := ratio_rows(report)) > 1:
        title = f"Times over those of {OURS}, median and range over processes"
        parts.append(f"{title}\n{text_table(rows)}")
    if len(rows := summary_rows(report)) > 1:
        notes = [f"{case}, {what}: {note}" for case, what, _, note in rows[1:] if note]
        parts.append("\n".join(["Summary", text_table([row[:3] for row in rows]), *notes]))
    if report["crossovers"]:
        lines = map(say_crossover, report["crossovers"])
        parts.append("\n".join(["Sparse against dense on this machine", *lines]))
    if "compared" in report:
        rows = comparison_rows(report["compared"])
        alike = text_table(rows) if len(rows) > 1 else "nothing that both runs have measured alike"
        parts.append("\n".join(["Against the earlier run", alike, *report["compared"]["notes"]]))
    return "\n\n".join(parts)


# The page, of which page.jinja is the template ----------------------------------------------------


def make_page(report: Record) -> str:
    """The whole page."""
    return render_page(
        Path(__file__).with_name("page.jinja"),
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


def _by(records: Sequence[Record], key: str) -> list[tuple[str, list[Record]]]:
    """The records by a key, in the order in which its values first come."""
    names = dict.fromkeys(record[key] for record in records)
    return [(name, [record for record in records if record[key] == name]) for name in names]


def _case(points: Sequence[Record], report: Record) -> Record:
    """What the template shows of a case, from the records of its points."""
    first = points[0]
    name, axis, sizes = first["case"], first["axis"], first["sizes"]
    modes = list(dict.fromkeys(mode for record in points for mode in record["modes"]))
    crossings = [crossing for crossing in report["crossovers"] if crossing["case"] == name]
    figures = []
    if axis is None and modes:
        figures = [bars(first)]
    elif axis == "density":
        densities = {crossing["mode"]: crossing["density"] for crossing in crossings}
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
        "crossovers": [say_crossover(crossing) for crossing in crossings],
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


def bars(record: Record) -> str:
    """Medians with quartiles, a panel for each mode; the bound of the machine as a line."""
    panels = list(timings([record]).groupby("mode", sort=False))
    most = max(len(rows) for _, rows in panels)
    with drawing(record["case"], 4.6 * len(panels), 0.7 + 0.34 * most) as picture:
        for place, (mode, rows) in enumerate(panels, start=1):
            axes, rows = picture.figure.add_subplot(1, len(panels), place), rows[::-1]
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
    return picture.svg


def curves(records: Sequence[Record], mode: str, crossover: float | None) -> str:
    """Time over density of every contender with its quartiles, the crossover marked."""
    rows = timings(records).query("mode == @mode")
    with drawing(records[0]["case"] + mode, 4.6, 3.1) as picture:
        axes = picture.figure.add_subplot(xlabel=records[0]["axis"], ylabel=f"{mode}, ms")
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
    return picture.svg


def order_ratios(records: Sequence[Record], mode: str) -> str:
    """The chosen order's time over that of the best one, a bar for each problem."""
    chosen = {str(one["at"]): one["sizes"].get(chosen_key(mode)) for one in records}
    rows = timings(records).query("mode == @mode")
    rows = rows.assign(ratio=rows["median"] / rows.groupby("place")["median"].transform("min"))
    rows = rows[rows["contender"] == rows["at"].astype(str).map(chosen)][::-1]
    with drawing("orders", 7, 0.9 + 0.26 * len(rows)) as picture:
        axes = picture.figure.add_subplot()
        axes.barh(list(rows["at"].astype(str)), rows["ratio"], color=COLOURS[0], height=0.66)
        axes.axvline(1.15, color=COLOURS[1], linewidth=1.2, linestyle="--")
        axes.set_xlabel(f"{mode}: chosen order over the best one")
    return picture.svg
