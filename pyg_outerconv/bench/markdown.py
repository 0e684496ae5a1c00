"""A group of cases of a run as one Markdown table: a row for each contender, or each target."""

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


def targets_table(report: dict[str, Any], group: str, earlier: dict[str, Any] | None = None) -> str:
    """Times of peers over ours beside the targets of the project: a row for each target.

    Args:
        report: a run.
        group: whose targets.
        earlier: an earlier run for a column of its own, or None.

    Raises:
        ValueError: the group has no targets of times.
    """
    cases = {record["case"]: record for record in report["records"] if record["group"] == group}
    targets = [one for one in report["targets"] if one["case"] in cases and _TIME in one["what"]]
    if not targets:
        known = sorted({record["group"] for record in report["records"]})
        raise RefusedValue(refusal("a table of targets is of a group that has some", known, group))
    head = ["case", "what", "asked"] + ["before"] * (earlier is not None) + ["measured"]
    rows = [head, ["---"] * len(head)]
    for target in targets:
        case, what = target["case"], target["what"]
        found = [_ratio(cases[case], what)]
        if earlier is not None:
            old = {record["case"]: record for record in earlier["records"]}
            found.insert(0, _ratio(old[case], what) if case in old else "–")
        rows.append([case, what, target["asked"], *found])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_TIME = ", time of "


def _ratio(record: dict[str, Any], what: str) -> str:
    """The time of a peer by ours in a mode; over several processes their median and range."""
    mode, peer = what.split(_TIME)
    times = record["modes"].get(mode, {})
    if peer not in times or OURS not in times:
        return "–"
    middle, between = _times_ours(record, mode, peer)
    return f"{middle} ({between})" if between else middle


def _cell(record: dict[str, Any], mode: str, name: str) -> str:
    times = record["modes"][mode]
    if name not in times:
        return "–"
    said = say_seconds(times[name]["median"])
    if name == OURS or OURS not in times:
        return said
    return f"{said} ({', '.join(filter(None, _times_ours(record, mode, name)))})"


def _times_ours(record: dict[str, Any], mode: str, name: str) -> tuple[str, str]:
    """How many times ours a contender takes, and over several processes the range of that."""
    ratios = record.get("ratios", {}).get(mode, {}).get(name)
    if ratios:
        return f"{median(ratios):.2f}×", f"{min(ratios):.2f}–{max(ratios):.2f}"
    times = record["modes"][mode]
    return f"{times[name]['median'] / times[OURS]['median']:.2f}×", ""
