"""Tables of a report, for the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from ...errors import RefusedValue
from ..train.results import text_table
from .case import OURS
from .report import say_place
from .targets import ratios_of


def say_seconds(seconds: float) -> str:
    """Three significant figures in s, ms or µs."""
    factor, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    digits = ".3g" if seconds * factor < 1000 else ".0f"
    return f"{seconds * factor:{digits}} {unit}"


def say_record(record: dict[str, Any]) -> str:
    """One point: medians of its contenders, their spread and their share of the bound."""
    lines = [f"{say_place(record)}: {record['description']}"]
    if record["sizes"]:
        lines.append(
            ", ".join(f"{name} {say_size(size)}" for name, size in record["sizes"].items())
        )
    head = ("contender", "mode", "median", "spread", "× ours", "of the bound", "peak memory")
    rows, last = [head], list(record["modes"])[-1:]
    for row in timing_rows(record):
        peak = record["memory"].get(row[0]) if [row[1]] == last else None
        memory = "" if peak is None else f"{peak['step'] / 2**20:.0f} MiB"
        rows.append(tuple(cell or "-" for cell in (*row, memory)))  # type: ignore[arg-type]
    if len(rows) > 1:
        lines.append(text_table(rows))
    lines += [f"note: {note}" for note in record["notes"]]
    lines += [f"not run: {name}: {reason}" for name, reason in record["absent"].items()]
    lines += [f"ERROR: {name}: {reason}" for name, reason in record["errors"].items()]
    return "\n".join(lines)


def timing_rows(record: dict[str, Any]) -> list[tuple[str, ...]]:
    """Of each mode and contender the median, the spread, over ours, and of the bound, or ''."""
    rows: list[tuple[str, ...]] = []
    for mode, timings in record["modes"].items():
        ours = (timings.get(OURS) or next(iter(timings.values())))["median"]
        for name, timing in timings.items():
            fraction = record["fractions"].get(mode, {}).get(name)
            spread = f"{say_seconds(timing['low'])} – {say_seconds(timing['high'])}"
            over, share = f"{timing['median'] / ours:.2f}", f"{100 * (fraction or 0):.0f} %"
            row = name, mode, say_seconds(timing["median"]), spread, over
            rows.append((*row, "" if fraction is None else share))
    return rows


def say_ratios(report: dict[str, Any]) -> str:
    """Times over ours over several processes, median and range; '' for one process."""
    rows = [("case", "contender", "mode", "median", "range")]
    for record in report["records"]:
        for mode, found in record.get("ratios", {}).items():
            for name, ratios in found.items():
                spread = f"{min(ratios):.2f} – {max(ratios):.2f}"
                rows.append((say_place(record), name, mode, f"{median(ratios):.2f}", spread))
    return text_table(rows) if len(rows) > 1 else ""


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


# In Markdown.


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
        raise RefusedValue("a table is of a group and a mode", known, f"{group}, {mode}")
    rows: list[Sequence[str]] = [("contender", *map(say_place, records))]
    for name in dict.fromkeys(name for record in records for name in record["modes"][mode]):
        rows.append((name, *(_cell(record, mode, name) for record in records)))
    return _markdown(rows)


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
        raise RefusedValue("a table of targets is of a group that has some", known, group)
    head = ["case", "what", "asked"] + ["before"] * (earlier is not None) + ["measured"]
    rows = [head]
    for target in targets:
        case, what = target["case"], target["what"]
        found = [_ratio(cases[case], what)]
        if earlier is not None:
            old = {record["case"]: record for record in earlier["records"]}
            found.insert(0, _ratio(old[case], what) if case in old else "–")
        rows.append([case, what, target["asked"], *found])
    return _markdown(rows)


_TIME = ", time of "


def _ratio(record: dict[str, Any], what: str) -> str:
    """The time of a peer by ours in a mode; over several processes their median and range."""
    mode, peer = what.split(_TIME)
    times = record["modes"].get(mode, {})
    if peer not in times or OURS not in times:
        return "–"
    middle, *between = _times_ours(record, mode, peer)
    return f"{middle} ({between[0]})" if between else middle


def _cell(record: dict[str, Any], mode: str, name: str) -> str:
    times = record["modes"][mode]
    if name not in times:
        return "–"
    said = say_seconds(times[name]["median"])
    if name == OURS or OURS not in times:
        return said
    return f"{said} ({', '.join(_times_ours(record, mode, name))})"


def _times_ours(record: dict[str, Any], mode: str, name: str) -> list[str]:
    """How many times ours a contender takes, and over several processes the range of that."""
    ratios = ratios_of(record, mode, name)
    by_process = name in record.get("ratios", {}).get(mode, {})
    return [f"{median(ratios):.2f}×"] + [f"{min(ratios):.2f}–{max(ratios):.2f}"] * by_process


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a table, whose first one is its head."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *others))
