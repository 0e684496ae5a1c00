"""How the package refuses bad input: the rule, what was expected, what came."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class Refused(Exception):
    """Input that breaks a rule. Raised as one of the built-in kinds below, never by itself."""


class RefusedValue(Refused, ValueError):
    """A value that breaks a rule."""


class RefusedType(Refused, TypeError):
    """An argument of the wrong type."""


class RefusedIndex(Refused, IndexError):
    """An index out of range."""


def refusal(rule: str, expected: object, got: object) -> str:
    """One line for an exception: the rule that was broken, what it expects, and what came."""
    return f"{rule}: expected {_brief(expected)}, got {_brief(got)}"


def _brief(value: object) -> object:
    """A tensor of more than a number by its type and shape: a message is one line."""
    shape = getattr(value, "shape", ())
    if not shape or not hasattr(value, "dtype"):
        return value
    return f"a tensor of {value.dtype} and shape {tuple(shape)}"


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """One line for a name that is not registered, with the nearest registered one."""
    names = sorted(known)
    by_lower = {candidate.lower(): candidate for candidate in names}
    near = get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
    hint = f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
    return f"unknown {kind} {name!r}{hint}: expected one of {', '.join(names)}"
