"""Rows of EQUATIONS.md, said above the class or function that they tell of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")

ROWS: dict[str, dict[str, tuple[str, ...]]] = {}


def row(table: str, *cells: str, option: str = "") -> Callable[[Made], Made]:
    """Put what stands below into a table of EQUATIONS.md (``python tests/write_equations.py``).

    Args:
        table: how the heading above the table begins.
        *cells: of the row, but for the first.
        option: the first cell, in Markdown; the name of what stands below, if empty.
    """

    def note(made: Made) -> Made:
        first = option or f"`{made.__name__}`"  # type: ignore[attr-defined]
        ROWS.setdefault(table, {})[first] = cells
        return made

    return note
