"""``python tests/write_equations.py`` writes the tables of EQUATIONS.md.

Classes and functions say their rows: a score, a normaliser, a feature map or a support in ``page``,
what it computes and where that comes from; all else by ``@row`` above it. Text around tables, and
the order of rows, stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyg_outerconv.families.support
import pyg_outerconv.nn.attention
from pyg_outerconv.attention import FEATURE_MAPS, NORMALISERS, SCORES
from pyg_outerconv.equations import ROWS
from pyg_outerconv.families import FAMILIES
from pyg_outerconv.registry import import_files

FILE = Path(__file__).resolve().parents[1] / "EQUATIONS.md"

import_files(pyg_outerconv.nn.attention.__name__, pyg_outerconv.nn.attention.__path__)

# How the heading above a table begins, and what says its row there by `page`.
NAMED: dict[str, dict[str, type]] = {
    "Support": {k.__name__: k for k in FAMILIES.values() if ".support." in k.__module__},
    "Scores": dict(SCORES),
    "Normalisers": dict(NORMALISERS),
    "Feature maps": dict(FEATURE_MAPS),
}


def said() -> dict[str, dict[str, str]]:
    """By table and first cell, all rows that classes and functions say."""
    tables = {table: dict(rows) for table, rows in sorted(ROWS.items())}
    for table, kinds in NAMED.items():
        pages = {f"`{name}`": vars(kind).get("page") for name, kind in sorted(kinds.items())}
        tables.setdefault(table, {}).update({name: page for name, page in pages.items() if page})
    return {
        table: {first: f"| {' | '.join((first, *cells))} |" for first, cells in rows.items()}
        for table, rows in tables.items()
    }


def written(text: str) -> str:
    """The page with its tables made anew; rows that it lacks follow the ones that it has.

    Raises:
        ValueError: a row is of a table that the page has no heading for.
    """
    intro, *sections = text.split("\n## ")
    tables = said()
    out = [intro]
    for section in sections:
        heading = section.partition("\n")[0]
        names = [table for table in tables if heading.startswith(table)]
        rows = tables.pop(names[0]) if names else {}
        out.append("\n".join(_section(section.rstrip("\n").split("\n"), rows)) + "\n")
    if tables:
        raise ValueError(f"{FILE.name} has no table of {', '.join(tables)}")
    return "\n## ".join(out)


def _section(lines: list[str], rows: dict[str, str]) -> Iterator[str]:
    """The lines of a section with ``rows`` in its table, the first two of which are its head."""
    table = [line for line in lines if line.startswith("|")]
    old = [line[2:].split(" | ")[0] for line in table[2:]]
    kept = dict.fromkeys(first for first in old if first in rows)
    for line in lines:
        if line not in table[2:]:
            yield line
        if line in table[1:2]:
            yield from (rows[first] for first in {**kept, **rows})


def main() -> int:
    """Write the page."""
    FILE.write_text(written(FILE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
