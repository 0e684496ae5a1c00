"""Text, tables and numbers in Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any


def plain(value: Any) -> Any:
    """Text that is no HTML, on one line; of lists and dictionaries all that is in them.

    >>> plain({"name": "<b>", "values": [1, "a & b"]})
    {'name': '&lt;b&gt;', 'values': [1, 'a &amp; b']}
    """
    if isinstance(value, str):
        return " ".join(html.escape(value, quote=False).split())
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def code(text: str) -> str:
    """Text in a span of code, in which nothing is escaped.

    >>> code("gcn"), code("a`b")
    ('`gcn`', '`` a`b ``')
    """
    line = " ".join(text.split())
    runs = re.findall("`+", line)
    fence = "`" * (max(map(len, runs)) + 1) if runs else "`"
    return f"{fence} {line} {fence}" if runs else f"{fence}{line}{fence}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: the first column to the left, the others to the right."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return [line(row) for row in (head, ruler, *rows)]


def line(cells: Sequence[str]) -> str:
    """A row of a table."""
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
