"""Pages from templates, in HTML that loads nothing from outside and in Markdown; text in tables."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent


def render_page(template: Path, form: str = "markdown", **values: Any) -> str:
    """The page of a template, in Markdown or in HTML.

    A template is written once for both: it takes ``page``, ``heading``, ``text``, ``items``,
    ``table``, ``picture`` and ``figures`` from ``form``, which is ``markdown.jinja`` or
    ``html.jinja`` of this folder. In HTML all text is escaped; in Markdown what these macros write.
    """
    page = _read(template, form).render(form=f"{form}.jinja", **values)
    return re.sub(r"\n{3,}", "\n\n", page.strip()) + "\n"


@cache
def _read(template: Path, form: str) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=form == "html",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"plain": plain, "code": code, "table": markdown_table}
    return environment.from_string(template.read_text(encoding="utf-8"))


# Text ---------------------------------------------------------------------------------------------


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns, the first to the left, the others to the right, a rule below the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


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


def markdown_table(rows: Sequence[Sequence[str]], others: str = "---:") -> str:
    """A table, whose first row is its head; other columns than the first to the right."""
    ruler = ["---", *[others] * (len(rows[0]) - 1)]
    cells = ([cell.replace("|", "\\|") for cell in row] for row in (rows[0], ruler, *rows[1:]))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def percent(mean: float, std: float | None = None) -> str:
    """A share as a percentage, with its deviation if there is one."""
    return f"{100 * mean:.2f}" + ("" if std is None else f" ± {100 * std:.2f}")


def points(value: float, error: float | None = None) -> str:
    """A difference of shares in percentage points, with its sign."""
    said = f"{100 * value:+.2f}".replace("-0.00", "+0.00").replace("+0.00", "0.00")
    return said + ("" if error is None else f" ± {100 * error:.2f}")


def share(value: float | None) -> str:
    """A number between 0 and 1, or a dash."""
    return "–" if value is None else f"{value:.3f}"
