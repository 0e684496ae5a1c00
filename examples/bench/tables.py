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
from pathlib import Path

from pyg_outerconv.lab.bench.report import markdown_table, read_json, targets_table

HERE = Path(__file__).resolve().parent
TABLE = re.compile(r"<!-- ([\w-]+), ([^>]+) -->\n.*?<!-- end -->", re.DOTALL)


def written(page: str, folder: Path) -> str:
    """The page with the table of every run that the folder keeps."""

    def table(found: re.Match[str]) -> str:
        group, mode = found.groups()
        run = folder / f"{group}.json"
        if not run.exists():
            return found[0]
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
