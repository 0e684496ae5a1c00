"""A group of cases of a run as one Markdown table: a row for each contender."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from ..errors import RefusedValue, refusal
from .names import OURS
from .report import say_place, say_seconds


def markdown_table(report: dict[str, Any], group: str, mode: str) -> str:
    """Times of a mode, and how many times ours; with their range over several processes.

    Raises:
        ValueError: the run has no such times.
    """
    records = [
        record
        for record in report["records"]
        if record["group"] == group and record["modes"].get(mode)
    ]
    if not records:
        known = sorted({f"{r['group']}, {m}" for r in report["records"] for m in r["modes"]})
        raise RefusedValue(refusal("a table is of a group and a mode", known, f"{group}, {mode}"))
    rows: list[Sequence[str]] = [
        ("contender", *map(say_place, records)),
        ("---",) * (len(records) + 1),
    ]
    for name in dict.fromkeys(name for record in records for name in record["modes"][mode]):
        rows.append((name, *(_cell(record, mode, name) for record in records)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(record: dict[str, Any], mode: str, name: str) -> str:
    times = record["modes"][mode]
    if name not in times:
        return "–"
    said = say_seconds(times[name]["median"])
    if name == OURS or OURS not in times:
        return said
    ratios = record.get("ratios", {}).get(mode, {}).get(name)
    if not ratios:
        return f"{said} ({times[name]['median'] / times[OURS]['median']:.2f}×)"
    return f"{said} ({median(ratios):.2f}×, {min(ratios):.2f}–{max(ratios):.2f})"
