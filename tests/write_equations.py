"""``python tests/write_equations.py`` writes the rows of EQUATIONS.md that classes say themselves.

A score, a normaliser, a feature map or a support says in ``page`` what it computes and where that
comes from. Rows of what has no such class stay as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyg_outerconv.basis import FAMILIES
from pyg_outerconv.score import FEATURE_MAPS, NORMALISERS, SCORES

FILE = Path(__file__).resolve().parents[1] / "EQUATIONS.md"

# An alignment has a table of its own, whose rows are of families with options.
SUPPORTS = {kind.__name__: kind for kind in FAMILIES.values() if ".support." in kind.__module__}
# The first cell of a table's head, and what has a row in it.
TABLES: dict[str, dict[str, type]] = {
    "`support`": SUPPORTS,
    "`score`": dict(SCORES),
    "`normalise`": dict(NORMALISERS),
    "`feature_map`": dict(FEATURE_MAPS),
}


def row(name: str, kind: type) -> str:
    """The row of a class."""
    formula, source = kind.page  # type: ignore[attr-defined]
    return f"| `{name}` | {formula} | {source} |"


def written(text: str) -> str:
    """The page with its rows made anew; those that it lacks follow the ones that it has."""
    out: list[str] = []
    missing: dict[str, str] = {}
    rows: dict[str, str] = {}
    for line in text.splitlines():
        cells = line.split(" | ")
        head = cells[0].removeprefix("| ")
        if head in TABLES:
            kinds = sorted(TABLES[head].items())
            rows = {name: row(name, kind) for name, kind in kinds if hasattr(kind, "page")}
            missing = dict(rows)
        elif not line.startswith("|"):
            out += missing.values()
            rows, missing = {}, {}
        name = head.strip("`")
        out.append(rows.get(name, line))
        missing.pop(name, None)
    return "\n".join([*out, *missing.values()]) + "\n"


def main() -> int:
    """Write the page."""
    FILE.write_text(written(FILE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
