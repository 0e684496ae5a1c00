"""Families by name, the text that describes one, and the names of well-known layers."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection
from itertools import zip_longest
from typing import Any, get_args, get_type_hints

from ..errors import RefusedType, RefusedValue, refusal, unknown
from ..expressions import expression, plain_value
from ..signatures import fits
from .family import FAMILIES, Family, find_family, text_name
from .options import refuse_unknown

_ATTENTION = "{} of pyg_outerconv.nn.attention"
_RECIPE = "{} of pyg_outerconv.nn.recipes"
_KERNEL = "Kernel({0}(...)) in Python, with {0} of pyg_outerconv.nn"

WELL_KNOWN = {
    "agnn": _ATTENTION.format("agnn_conv"),
    "appnp": "diffusion('ppr', alpha=0.1), or " + _RECIPE.format("appnp"),
    "cheb": "chebyshev(num_terms)",
    "dcrnn": "walk(length, norm='target', direction='both')",
    "dir": "directed(gcn)",
    "dirgnn": "directed(gcn)",
    "ecc": _KERNEL.format("EdgeNetwork"),
    "gdc": "diffusion, or " + _RECIPE.format("gdc_conv"),
    "gmm": _KERNEL.format("GaussianMixture"),
    "graph": "relation(1, norm=None) with root_weight=True",
    "graphsage": "relation(1, norm='mean') with root_weight=True",
    "linear": "identity",
    "mixhop": _RECIPE.format("mix_hop"),
    "nn": _KERNEL.format("EdgeNetwork"),
    "rgcn": "relation(num_relations)",
    "sage": "relation(1, norm='mean') with root_weight=True",
    "sg": _RECIPE.format("sg_conv"),
    "sgc": _RECIPE.format("sg_conv"),
    "spline": _KERNEL.format("BSpline"),
    "ssg": _RECIPE.format("ssg_conv"),
    "supergat": _ATTENTION.format("super_gat_conv"),
    "tag": "walk(length, norm='sym')",
    "tagcn": "walk(length, norm='sym')",
}
"""What to write for each layer, by its name in lower case without ``conv``."""


def well_known(name: str, families: Collection[str]) -> str | None:
    """One line for the name of a layer, such as ``'gat'`` or ``'SAGEConv'``; None for others."""
    layer = name.lower().replace("_", "").removesuffix("conv")
    meant = layer if layer in families else WELL_KNOWN.get(layer)
    if meant is None:
        return None
    return refusal(f"unknown family {name!r}, a well-known layer", meant, repr(name))


_WORD = re.compile(r"[A-Za-z][\w-]*\s*(\([^()]*\))?")


def parse_family(text: str) -> Family:
    """The family that a line of text describes, as ``repr`` prints it or in lower case.

    ``"gcn"``, ``"walk(2)"``, ``"Walk(length=2, norm='target')"``, ``"stack(gcn, identity)"``.
    A string among the options needs no quotes: ``"walk(2, norm=target)"``.

    Raises:
        ValueError: the text is no such expression, the name of a family is unknown, or the family
            refuses its options.
    """
    rule = "a family is a name with options"
    refused = RefusedValue(rule, "such as walk(length=2)", repr(text))
    made = _evaluate(expression(text, refused), text)
    if not isinstance(made, Family):
        raise refused
    return made


def check_family(family: Any) -> Family:
    """A family, parsed if it is given as text. Raises ValueError or TypeError."""
    family = parse_family(family) if isinstance(family, str) else family
    if not isinstance(family, Family):
        raise RefusedType(
            "family must be a recipe for a basis", "a Family or its name", type(family).__name__
        )
    return family


def unknown_family(name: str) -> str:
    """One line for the name of no family: the nearest name, or what a well-known layer is here."""
    known = [text_name(family) for family in FAMILIES.values()]
    return well_known(name, known) or unknown("family", name, known)


def _evaluate(node: ast.expr, text: str, hint: Any = None) -> Any:
    """The value of an expression, for an option of type ``hint`` where that is known."""
    if isinstance(node, ast.Name):
        if hint is not None and (fits(node.id, hint) or not holds_family(hint)):
            return node.id  # a string without its quotes; what it means is checked by its family
        return _make(node.id, [], [], text)
    if hint is str and not isinstance(node, ast.Constant):  # such as key-query, cosine(beta=2.0)
        written = ast.get_source_segment(text.strip(), node) or ""
        if _WORD.fullmatch(written):
            return written
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if any(kw.arg is None for kw in node.keywords):
            raise RefusedValue("options of a family are named", "name=value", repr(text))
        return _make(node.func.id, node.args, node.keywords, text)
    rule = "a family is made of names, options and plain values"
    return plain_value(node, RefusedValue(rule, "such as stack(gcn, walk(2))", repr(text)))


def holds_family(hint: Any) -> bool:
    """Whether a value of an option may be a family, or may hold one."""
    if isinstance(hint, type) and not get_args(hint):
        return issubclass(hint, Family)
    return any(holds_family(argument) for argument in get_args(hint))


def _make(name: str, positional: list[ast.expr], named: list[ast.keyword], text: str) -> Family:
    cls = find_family(name)
    if cls is None:
        raise RefusedValue(unknown_family(name))
    given = [str(kw.arg) for kw in named]
    if double := next((option for option in given if given.count(option) > 1), None):
        raise RefusedValue(f"an option of {name} has one value", f"{double} once", repr(text))
    try:
        refuse_unknown(cls, given)
    except TypeError as error:
        raise RefusedValue(str(error)) from error
    hints = get_type_hints(cls)
    options = [hints.get(option) for option in inspect.signature(cls).parameters]
    values = [
        _evaluate(value, text, hint)
        for value, hint in zip_longest(positional, options[: len(positional)])
    ]
    chosen = {str(kw.arg): _evaluate(kw.value, text, hints.get(str(kw.arg))) for kw in named}
    try:
        return cls(*values, **chosen)
    except TypeError as error:
        raise RefusedValue(f"{name} refuses its options: {error}") from error
