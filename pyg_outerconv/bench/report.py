"""The report of a run: its JSON, and the tables that a terminal shows.

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

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ..errors import RefusedValue, refusal
from ..files import read_bytes, replace
from ..train.results import text_table
from .case import Case
from .crossover import find_crossovers
from .names import OURS
from .roofline import Roofline

KIND, FORMAT = "pyg_outerconv.bench", 1
RECORD = frozenset(
    {
        "case",
        "group",
        "description",
        "axis",
        "at",
        "sizes",
        "modes",
        "bounds",
        "fractions",
        "agreement",
        "memory",
        "absent",
        "errors",
        "notes",
        "seconds",
    }
)


def make_report(
    machine: dict[str, Any],
    settings: dict[str, Any],
    roofline: Roofline,
    records: Sequence[dict[str, Any]],
    cases: Iterable[Case],
    seconds: float,
) -> dict[str, Any]:
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
        "roofline": roofline.as_dict(),
        "records": list(records),
        "targets": verdicts,
        "crossovers": find_crossovers(records),
        "seconds": round(seconds, 1),
    }


def write_json(report: dict[str, Any], path: Path) -> None:
    """Replace a file by the report, as a whole."""
    write_text(path, json.dumps(report, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole, never half written.

    Raises:
        ValueError: it cannot be written.
    """
    try:
        replace(path, text.encode())
    except OSError as error:
        raise RefusedValue(
            refusal("the folder must be writable", f"a file at {path}", error.strerror)
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read what :func:`write_json` wrote.

    Raises:
        ValueError: the file is missing, or holds something else.
    """
    rule = f"{path} must be written by outerconv bench"
    try:
        report = json.loads(read_bytes(path).decode())
    except OSError as error:
        raise RefusedValue(refusal(rule, "a file", error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise RefusedValue(refusal(rule, "JSON", " ".join(str(error).split()))) from error
    if not isinstance(report, dict) or report.get("kind") != KIND:
        raise RefusedValue(refusal(rule, f"a report of kind {KIND!r}", "something else"))
    if report.get("format") != FORMAT:
        raise RefusedValue(refusal(rule, f"format {FORMAT}", report.get("format")))
    records = report.get("records")
    whole = isinstance(records, list) and all(
        isinstance(record, dict) and set(record) >= RECORD for record in records
    )
    if not whole or not isinstance(report.get("machine"), dict):
        raise RefusedValue(refusal(rule, "a machine, and whole records", "others"))
    return report


# For the terminal ----------------------------------------------------------------------------


def say_seconds(seconds: float) -> str:
    """Three significant figures in s, ms or µs."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            return (
                f"{seconds * factor:.3g} {unit}"
                if seconds * factor < 1000
                else (f"{seconds * factor:.0f} {unit}")
            )
    raise AssertionError  # the loop returns


def say_record(record: dict[str, Any]) -> str:
    """One point: medians of its contenders, their spread and their share of the bound."""
    lines = [f"{say_place(record)}: {record['description']}"]
    if record["sizes"]:
        lines.append(
            ", ".join(f"{name} {say_size(size)}" for name, size in record["sizes"].items())
        )
    rows = [("contender", "mode", "median", "spread", "× ours", "of the bound", "peak memory")]
    for mode, timings in record["modes"].items():
        ours = (timings.get(OURS) or next(iter(timings.values())))["median"]
        for name, timing in timings.items():
            fraction = record["fractions"].get(mode, {}).get(name)
            last = mode == list(record["modes"])[-1]
            memory = record["memory"].get(name) if last else None
            rows.append(
                (
                    name,
                    mode,
                    say_seconds(timing["median"]),
                    f"{say_seconds(timing['low'])} – {say_seconds(timing['high'])}",
                    f"{timing['median'] / ours:.2f}",
                    "-" if fraction is None else f"{100 * fraction:.0f} %",
                    "-" if memory is None else f"{memory['step'] / 2**20:.0f} MiB",
                )
            )
    if len(rows) > 1:
        lines.append(text_table(rows))
    lines += [f"note: {note}" for note in record["notes"]]
    lines += [f"not run: {name}: {reason}" for name, reason in record["absent"].items()]
    lines += [f"ERROR: {name}: {reason}" for name, reason in record["errors"].items()]
    return "\n".join(lines)


def say_ratios(report: dict[str, Any]) -> str:
    """Times over ours over several processes, median and range; '' for one process."""
    rows = [("case", "contender", "mode", "median", "range")]
    for record in report["records"]:
        for mode, found in record.get("ratios", {}).items():
            for name, ratios in found.items():
                spread = f"{min(ratios):.2f} – {max(ratios):.2f}"
                rows.append((say_place(record), name, mode, f"{median(ratios):.2f}", spread))
    return text_table(rows) if len(rows) > 1 else ""


def say_place(found: dict[str, Any]) -> str:
    """The case, and the point if it has several."""
    case, at = found["case"], found["at"]
    return str(case) if at is None else f"{case} at {at}"


def say_size(size: float | int | str) -> str:
    """A count with thousands separated by spaces; any other value as text."""
    return f"{size:,}".replace(",", " ") if isinstance(size, int) else str(size)


def summary_rows(report: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The quantities that cases measure: the case, the quantity, its value, a note."""
    return [
        (row["case"], row["what"], row["measured"], row["note"])
        for row in report["targets"]
        if row["measured"]
    ]


def say_summary(report: dict[str, Any]) -> str:
    """:func:`summary_rows` as text, notes below; '' where there are none."""
    rows = summary_rows(report)
    if not rows:
        return ""
    notes = [f"{case}, {what}: {note}" for case, what, _, note in rows if note]
    table = text_table([("case", "quantity", "measured"), *(row[:3] for row in rows)])
    return "\n".join([table, *notes])


def failures(report: dict[str, Any]) -> list[str]:
    """Every error of a run, in a line each."""
    return [
        f"{say_place(record)}: {name}: {reason}"
        for record in report["records"]
        for name, reason in record["errors"].items()
    ]
