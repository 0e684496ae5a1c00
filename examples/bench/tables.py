"""Writes the tables of the pages beside it that are one run's, from that run.

    outerconv bench --only citation --repeats 5 --processes 5 --root data --out runs/citation
    python examples/bench/tables.py citation runs/citation

keeps ``bench.json`` and ``bench.html`` of the run as ``citation.json`` and ``citation.html``, and
puts its times between the two comments ``<!-- citation, epoch -->`` and ``<!-- end -->`` of
``README.md``. The targets of a group go between ``<!-- small, targets -->`` and ``<!-- end -->`` of
``small.md``, beside those of ``small-before.json``. Without arguments it writes the tables of all
runs that are kept.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.bench.case import OURS
from pyg_outerconv.lab.bench.report import read_json, say_place, say_seconds
from pyg_outerconv.lab.bench.targets import Point
from pyg_outerconv.lab.pages import markdown_table as in_markdown

HERE = Path(__file__).resolve().parent
TABLE = re.compile(r"<!-- ([\w-]+), ([^>]+) -->\n.*?<!-- end -->", re.DOTALL)


def written(page: str, folder: Path) -> str:
    """The page with the table of every run that the folder keeps."""

    def table(match: re.Match[str]) -> str:
        group, mode = match.groups()
        run = folder / f"{group}.json"
        if not run.exists():
            return match[0]
        if mode == "targets":
            before = folder / f"{group}-before.json"
            earlier = read_json(before) if before.exists() else None
            lines = targets_table(read_json(run), group, earlier)
        else:
            lines = markdown_table(read_json(run), group, mode)
        return f"<!-- {group}, {mode} -->\n{lines}\n<!-- end -->"

    return TABLE.sub(table, page)


def main(arguments: list[str], folder: Path = HERE) -> int:
    """Keep a run, if one is named, and write the pages."""
    if arguments:
        name, run = arguments
        for end in ("json", "html"):
            shutil.copyfile(Path(run) / f"bench.{end}", folder / f"{name}.{end}")
    for page in (folder / "README.md", folder / "small.md"):
        if page.exists():
            page.write_text(written(page.read_text(encoding="utf-8"), folder), encoding="utf-8")
    return 0


# The tables -------------------------------------------------------------------------------------


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
        group_modes = sorted({f"{r['group']}, {m}" for r in report["records"] for m in r["modes"]})
        raise RefusedValue("a table is of a group and a mode", group_modes, f"{group}, {mode}")
    rows: list[Sequence[str]] = [("contender", *map(say_place, records))]
    for name in dict.fromkeys(name for record in records for name in record["modes"][mode]):
        rows.append((name, *(_cell(record, mode, name) for record in records)))
    return in_markdown(rows, others="---")


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
        groups = sorted({record["group"] for record in report["records"]})
        raise RefusedValue("a table of targets is of a group that has some", groups, group)
    head = ["case", "what", "asked"] + ["before"] * (earlier is not None) + ["measured"]
    rows = [head]
    for target in targets:
        case, what = target["case"], target["what"]
        ratios = [_ratio(cases[case], what)]
        if earlier is not None:
            old = {record["case"]: record for record in earlier["records"]}
            ratios.insert(0, _ratio(old[case], what) if case in old else "–")
        rows.append([case, what, target["asked"], *ratios])
    return in_markdown(rows, others="---")


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
    ratios = Point(record).ratios(mode, name)
    by_process = name in record.get("ratios", {}).get(mode, {})
    return [f"{median(ratios):.2f}×"] + [f"{min(ratios):.2f}–{max(ratios):.2f}"] * by_process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
