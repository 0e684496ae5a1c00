"""Text read as an expression of Python: names, calls and plain values; nothing is run."""

from __future__ import annotations

import ast
from typing import Any

from .errors import RefusedType

# What the parser raises of text that is no expression, too deep, not Unicode, or not hashable.
_UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


def expression(text: Any, refused: Exception) -> ast.expr:
    """The expression that a text is.

    Raises:
        TypeError: it is no text.
        Exception: ``refused``, where it is no expression.
    """
    if not isinstance(text, str):
        raise RefusedType("an expression is text", "str", type(text).__name__)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except _UNREADABLE as error:
        raise refused from error


def plain_value(node: ast.expr, refused: Exception) -> Any:
    """The value of an expression of numbers, text, tuples and the like; else ``refused``."""
    try:
        return ast.literal_eval(node)
    except _UNREADABLE as error:
        raise refused from error
