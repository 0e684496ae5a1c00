"""Rows of the tables in EQUATIONS.md, written as decorators of the classes and functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Decorated = TypeVar("Decorated")

ROWS: dict[str, dict[str, tuple[str, ...]]] = {}
"""The remaining cells of each row, by heading of the table and then by first cell."""


def row(table: str, *cells: str, option: str = "") -> Callable[[Decorated], Decorated]:
    """Decorate a class or function with its row of EQUATIONS.md.

    ``python tests/write_equations.py`` writes the file.

    Args:
        table: the beginning of the heading above the table.
        *cells: the cells of the row after the first.
        option: the first cell, in Markdown; by default the name of the class or function.
    """

    def register(decorated: Decorated) -> Decorated:
        first = option or f"`{decorated.__name__}`"  # type: ignore[attr-defined]
        ROWS.setdefault(table, {})[first] = cells
        return decorated

    return register
