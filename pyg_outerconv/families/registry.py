"""Families by name: what there is, and how a line of text names one."""

from __future__ import annotations

import ast
from typing import Any

from ..errors import RefusedValue, refusal, unknown
from .family import FAMILIES, Family


def parse_family(text: str) -> Family:
    """The family that a line of text describes, as ``repr`` prints it or in lower case.

    ``"gcn"``, ``"walk(2)"``, ``"Walk(length=2, norm='target')"``, ``"stack(gcn, identity)"``.

    Raises:
        ValueError: the text is no such expression, a family is unknown (the nearest is named), or
            it refuses its options.
    """
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise RefusedValue(
            refusal("a family is a name with options", "such as walk(length=2)", repr(text))
        ) from error
    made = _evaluate(expression, text)
    if not isinstance(made, Family):
        raise RefusedValue(
            refusal("a family is a name with options", "such as walk(length=2)", repr(text))
        )
    return made


def _evaluate(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name):
        return _make(node.id, [], {})
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        positional = [_evaluate(argument, text) for argument in node.args]
        if any(kw.arg is None for kw in node.keywords):
            raise RefusedValue(refusal("options of a family are named", "name=value", repr(text)))
        named = {str(kw.arg): _evaluate(kw.value, text) for kw in node.keywords}
        return _make(node.func.id, positional, named)
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise RefusedValue(
            refusal(
                "a family is made of names, options and plain values",
                "such as stack(gcn, walk(2))",
                repr(text),
            )
        ) from error


def _make(name: str, positional: list[Any], named: dict[str, Any]) -> Any:
    cls = _family_class(name)
    try:
        return cls(*positional, **named)
    except TypeError as error:
        raise RefusedValue(f"{name} refuses its options: {error}") from error


def _family_class(name: str) -> type[Any]:
    if name.lower() not in FAMILIES:
        raise RefusedValue(unknown("family", name, FAMILIES))
    return FAMILIES[name.lower()]
