"""What ``outerconv bench --only orders`` found, as a table: every order, and who picks which.

    outerconv bench --only orders --out runs/orders
    python examples/bench/orders.py runs/orders/bench.json > examples/bench/orders.md

For each problem the orders with their times relative to the best one, the order that the plain rule
takes, and the one that is cheapest by costs. A pick is good within 15 % of the best.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SLACK = 1.15
MODES = "forward", "forward + backward"
HEAD = "| problem | best, ms | orders, relative to it | rule | costs |\n|---|---|---|---|---|"


def row(record: dict[str, Any], mode: str) -> tuple[str, list[bool]]:
    """A line of the table, and whether the pick of the rule, and that of costs, is good."""
    medians = {name: timing["median"] for name, timing in record["modes"][mode].items()}
    ranked = sorted(medians, key=lambda name: medians[name])
    best = medians[ranked[0]]
    others = ", ".join(f"{name} {medians[name] / best:.2f}" for name in ranked)
    picks = [record["sizes"][f"{who}, {mode}"] for who in ("chosen", "cheapest by costs")]
    good = [medians.get(pick, float("inf")) <= SLACK * best for pick in picks]
    cells = [
        f"{pick} {'yes' if fits else '**no**'}" for pick, fits in zip(picks, good, strict=True)
    ]
    return f"| {record['at']} | {1e3 * best:.2f} | {others} | {cells[0]} | {cells[1]} |", good


def page(records: list[dict[str, Any]]) -> str:
    """The tables of both modes, each with its totals."""
    lines = []
    for mode in MODES:
        rows = [row(record, mode) for record in records if record["modes"].get(mode)]
        totals = [sum(good[who] for _, good in rows) for who in range(2)]
        lines += [
            f"## {mode.capitalize()}",
            "",
            f"Within 15 % of the best: the rule in {totals[0]} of {len(rows)} problems, "
            f"costs in {totals[1]}.",
            "",
            HEAD,
            *(line for line, _ in rows),
            "",
        ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the page of a ``bench.json``."""
    records = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))["records"]
    print(page([record for record in records if record["case"] == "orders"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
