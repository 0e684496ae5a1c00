"""A run against an earlier one: faster, slower, or the same within the spread of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..train.results import text_table
from .report import say_place

# Differences below this are the same, whatever the quartiles say.
SLACK = 0.05


def compare_timings(new: dict[str, Any], old: dict[str, Any]) -> str:
    """``'faster'`` or ``'slower'`` where quartiles lie apart and medians differ, or ``'same'``.

    Args:
        new, old: ``median``, ``low`` and ``high`` of two timings of the same work.
    """
    ratio = new["median"] / old["median"]
    if new["high"] < old["low"] and ratio < 1 - SLACK:
        return "faster"
    if new["low"] > old["high"] and ratio > 1 + SLACK:
        return "slower"
    return "same"


def compare_reports(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Compare every timing that both reports have.

    Returns:
        ``rows``, one with a verdict for each timing; ``notes``, differences between the machines.
    """
    before = dict(_timings(old))
    sizes = {_place(record): record["sizes"] for record in old["records"]}
    others = {
        _place(record)
        for record in new["records"]
        if _place(record) in sizes and sizes[_place(record)] != record["sizes"]
    }
    rows, notes = [], []
    for (case, at, mode, contender), timing in _timings(new):
        earlier = before.get((case, at, mode, contender))
        if earlier is None or (case, at) in others:
            continue
        rows.append(
            {
                "case": case,
                "at": at,
                "mode": mode,
                "contender": contender,
                "before": earlier["median"],
                "now": timing["median"],
                "ratio": timing["median"] / earlier["median"],
                "verdict": compare_timings(timing, earlier),
            }
        )
    for key in ("processor", "threads", "gpu"):
        if new["machine"].get(key) != old["machine"].get(key):
            notes.append(
                f"another {key}: {old['machine'].get(key)} before, {new['machine'].get(key)} now"
            )
    if others:
        names = ", ".join(sorted({case for case, _ in others}))
        notes.append(f"not compared, as sizes differ: {names}")
    return {"rows": rows, "notes": notes}


def say_comparison(compared: dict[str, Any]) -> str:
    """The comparison as text."""
    rows = [("case", "contender", "mode", "before ms", "now ms", "ratio", "verdict")]
    rows += [
        (
            say_place(row),
            row["contender"],
            row["mode"],
            f"{1e3 * row['before']:.3f}",
            f"{1e3 * row['now']:.3f}",
            f"{row['ratio']:.2f}",
            row["verdict"],
        )
        for row in compared["rows"]
    ]
    table = text_table(rows) if len(rows) > 1 else "nothing that both runs have measured alike"
    return "\n".join([table, *compared["notes"]])


def _place(record: dict[str, Any]) -> tuple[str, Any]:
    return record["case"], record["at"]


def _timings(report: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    for record in report["records"]:
        for mode, timings in record["modes"].items():
            for contender, timing in timings.items():
                yield (*_place(record), mode, contender), timing
