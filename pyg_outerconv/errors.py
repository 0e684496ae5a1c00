"""Exceptions for bad input; their messages state the rule, what was expected and what came."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class Refused(Exception):
    """Base class of the exceptions for bad input; only the subclasses below are raised.

    Args:
        rule: the rule that the input breaks; or the whole message.
        *expected_and_got: what the rule allows, and what came; see :func:`refusal`.
    """

    def __init__(self, rule: str, *expected_and_got: object) -> None:
        super().__init__(refusal(rule, *expected_and_got) if expected_and_got else rule)


class RefusedValue(Refused, ValueError):
    """A value that breaks a rule; a ``ValueError``."""


class RefusedType(Refused, TypeError):
    """An argument of the wrong type or dtype; a ``TypeError``."""


class RefusedIndex(Refused, IndexError):
    """An index out of range; an ``IndexError``."""


def refusal(rule: str, expected: object, got: object) -> str:
    """The message of an exception, one line.

    Args:
        rule: the rule that the input breaks.
        expected: the value, or a description of the values, that the rule allows.
        got: the value that was passed; tensors are shown by dtype and shape.
    """
    return f"{rule}: expected {_brief(expected)}, got {_brief(got)}"


LONGEST = 400
"""Up to so many characters of a value are shown."""


def _brief(value: object) -> object:
    """A description of a tensor with dimensions (dtype and shape); any other value, shortened."""
    shape = getattr(value, "shape", ())
    if not shape or not hasattr(value, "dtype"):
        text = f"{value}"
        if "\n" in text:
            text = " ".join(text.split())
        return f"{text[:LONGEST]}... of {len(text)} characters" if len(text) > LONGEST else text
    return f"a tensor of {value.dtype} and shape {tuple(shape)}"


def unknown(kind: str, name: object, registered_names: Iterable[str]) -> str:
    """The message for a name that is not registered; suggests the registered name most like it.

    Args:
        kind: the kind of thing that is looked up, such as 'backend'.
        name: the name that was passed.
        registered_names: the registered names.
    """
    names = sorted(registered_names)
    by_lower = {candidate.lower(): candidate for candidate in names}
    similar = get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    hint = f" (did you mean {by_lower[similar[0]]!r}?)" if similar else ""
    said = " ".join(f"{name!r}".split("\n"))
    return f"unknown {kind} {said}{hint}: expected one of {', '.join(names)}"
