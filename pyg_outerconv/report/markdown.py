"""Tables and numbers in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: the first column to the left, the others to the right."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return [_line(row) for row in (head, ruler, *rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def percent(mean: float, deviation: float | None = None) -> str:
    """A share as a percentage, with its deviation if there is one."""
    return f"{100 * mean:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")


def points(value: float, error: float | None = None) -> str:
    """A difference of shares in percentage points, with its sign."""
    said = f"{100 * value:+.2f}".replace("-0.00", "+0.00").replace("+0.00", "0.00")
    return said + ("" if error is None else f" ± {100 * error:.2f}")


def share(value: float | None) -> str:
    """A number between 0 and 1, or a dash."""
    return "–" if value is None else f"{value:.3f}"
