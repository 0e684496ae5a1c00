"""Several processes that measure the same: memory is laid out anew in each, and moves times."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ..errors import RefusedValue, refusal
from .names import OURS
from .options import Options
from .report import read_json
from .roofline import Roofline

Report = dict[str, Any]

_FLAGS = ("repeats", "scale", "threads", "device", "dtype", "seed", "root")
_SWITCHES = ("quick", "no_memory")


def run_processes(options: Options, folder: Path, told: Callable[[str], None]) -> list[Report]:
    """The report of each process, one after the other; each has a folder ``process-<number>``.

    Peak memory is measured by the first one alone.

    Args:
        options: of the command line.
        folder: of the whole run.
        told: a line after each process.

    Raises:
        ValueError: a process broke off before it wrote a report.
    """
    reports = []
    for number in range(1, options.processes + 1):
        out = folder / f"process-{number}"
        flags = [*_flags(options), *(["--no-memory"] if number > 1 else [])]
        done = subprocess.run(
            [sys.executable, "-m", "pyg_outerconv", "bench", *flags, "--out", str(out)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        if not (out / "bench.html").is_file():
            last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise RefusedValue(refusal(f"process {number} must end", "a report", last))
        reports.append(read_json(out / "bench.json"))
        told(f"process {number} of {options.processes}: {reports[-1]['seconds']:.0f} s")
    return reports


def _flags(options: Options) -> list[str]:
    flags = [part for name in options.only for part in ("--only", name)]
    for name in _FLAGS:
        if (value := getattr(options, name)) is not None:
            flags += [f"--{name}", str(value)]
    return flags + [f"--{name.replace('_', '-')}" for name in _SWITCHES if getattr(options, name)]


def merge(reports: Sequence[Report]) -> tuple[list[dict[str, Any]], Roofline]:
    """The records of several runs as one, and the roofline in their median.

    Each timing becomes the median of the medians, with their range where one run has quartiles.
    ``ratios`` is added: by mode and contender, its time over ours in each process. Errors and
    absences of all stay, and the largest differences.
    """
    by_place: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for report in reports:
        for record in report["records"]:
            by_place.setdefault((record["case"], record["at"]), []).append(record)
    roofline = Roofline(
        *(
            median(report["roofline"][name] for report in reports)
            for name in ("bandwidth", "flop_rate")
        )
    )
    return [_merge_records(records) for records in by_place.values()], roofline


def _merge_records(records: list[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(records[0])
    for name in ("absent", "errors", "memory"):
        merged[name] = {key: text for record in records for key, text in record[name].items()}
    merged["modes"], merged["ratios"], merged["fractions"] = {}, {}, {}
    for mode in dict.fromkeys(mode for record in records for mode in record["modes"]):
        runs = [record["modes"][mode] for record in records if mode in record["modes"]]
        names = dict.fromkeys(name for run in runs for name in run)
        times = {name: [run[name] for run in runs if name in run] for name in names}
        merged["modes"][mode] = {name: _merge_timings(found) for name, found in times.items()}
        merged["ratios"][mode] = {
            name: ratios
            for name in names
            if name != OURS
            and (
                ratios := [
                    run[name]["median"] / run[OURS]["median"]
                    for run in runs
                    if {name, OURS} <= {*run}
                ]
            )
        }
        if mode in merged["bounds"]:
            least = merged["bounds"][mode]["seconds"]
            merged["fractions"][mode] = {
                name: least / timing["median"] for name, timing in merged["modes"][mode].items()
            }
    merged["agreement"] = {
        name: max(gaps) if None not in gaps else None
        for name in records[0]["agreement"]
        for gaps in [[record["agreement"].get(name) for record in records]]
    }
    merged["seconds"] = round(sum(record["seconds"] for record in records), 2)
    return merged


def _merge_timings(found: list[dict[str, Any]]) -> dict[str, float | int]:
    medians = [timing["median"] for timing in found]
    return {
        "median": median(medians),
        "low": min(medians),
        "high": max(medians),
        "least": min(timing["least"] for timing in found),
        "repeats": sum(timing["repeats"] for timing in found),
        "inner": found[0]["inner"],
    }
