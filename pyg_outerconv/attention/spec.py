"""Scores and normalisers from text: a name with options."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any, TypeVar

from ..errors import RefusedType, RefusedValue, unknown
from ..expressions import expression, plain_value
from .normalise import NORMALISERS, Normaliser
from .score import SCORES, Score

Named = TypeVar("Named", Score, Normaliser)

_SPEC = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


def make_score(
    spec: Score | str,
    heads: int,
    channels: int | None = None,
    in_channels: int | tuple[int, int] = -1,
    value_channels: int | None = None,
    **options: Any,
) -> Score:
    """The score that a text names, with its options; a score is returned as it is.

    ``"key-query"``, ``"key-query(bias=True)"``, ``"cosine(learned=False, beta=2.0)"``.

    Args:
        spec: the text, or a score.
        heads: H.
        channels: D of each head, unless the text has ``channels=...``.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        value_channels: D, in place of ``channels``, for scores that read the values X Θ.
        **options: further options; options in the text take precedence.

    Raises:
        TypeError: ``spec`` is neither a score nor text.
        ValueError: the text is not a name with named options, the score is unknown, or it has no
            such option.
    """
    if isinstance(spec, Score):
        return spec
    name, written = _parse("score", spec)
    if name in SCORES and SCORES[name].uses_theta and not written.get("own", False):
        channels = value_channels or channels
    channels = written.pop("channels", channels)
    return _make("score", SCORES, name, (heads, channels, in_channels), {**options, **written})


def make_normaliser(spec: Normaliser | str, **options: Any) -> Normaliser:
    """The normaliser that a text names, as :func:`make_score`: ``"softmax(temperature=2.0)"``."""
    if isinstance(spec, Normaliser):
        return spec
    name, written = _parse("normaliser", spec)
    return _make("normaliser", NORMALISERS, name, (), {**options, **written})


def _parse(what: str, text: str) -> tuple[str, dict[str, Any]]:
    """The name in a text, and the options in its parentheses."""
    rule = f"a {what} is a name with named options"
    refused = RefusedValue(rule, "such as name(a=1)", repr(text))
    if not isinstance(text, str):
        kind = what.capitalize()
        raise RefusedType(f"a {what} is an object or text", f"a {kind} or its name", text)
    match = _SPEC.fullmatch(text)
    if match is None:
        raise refused
    call = expression(f"_({match[2] or ''})", refused)
    if not isinstance(call, ast.Call) or call.args or any(kw.arg is None for kw in call.keywords):
        raise refused
    return match[1], {str(kw.arg): plain_value(kw.value, refused) for kw in call.keywords}


def _make(
    what: str,
    known: dict[str, type[Named]],
    name: str,
    given: tuple[Any, ...],
    options: dict[str, Any],
) -> Named:
    if name not in known:
        raise RefusedValue(unknown(what, name, known))
    names = list(inspect.signature(known[name]).parameters)[len(given) :]
    for option in options:
        if option not in names:
            raise RefusedValue(unknown(f"option of {what} {name!r}", option, names))
    return known[name](*given, **options)
