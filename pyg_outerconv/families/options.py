"""Checks of the options of families against the types of their dataclass fields."""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import RefusedType, RefusedValue, refusal, unknown

MOST_POWERS = 10_000  # each costs a sparse product at every call
RENAMED = {
    "aggregate": ("aggr",),
    "kernel_size": ("window",),
    "loop": ("add_self_loops",),
    "loops": ("add_self_loops",),
    "num_sources": ("size",),
    "num_targets": ("size",),
    "reduce": ("aggr",),
    "size": ("window",),
}
"""The options that took the place of those of earlier versions."""


def present_name(name: str, known: Collection[str]) -> str | None:
    """The option of ``known`` that has this name, or had it once; None if there is none."""
    return next((option for option in (name, *RENAMED.get(name, ())) if option in known), None)


def refuse_unknown(family: type[Any], names: Iterable[str]) -> None:
    """Refuse options that a family does not have; an old name is refused with its new one.

    Raises:
        TypeError: there is such an option.
    """
    known = getattr(family, "__dataclass_fields__", {})
    for name in [name for name in names if known and name not in known]:
        if name in inspect.signature(family).parameters:  # of a constructor of its own
            continue
        kind, meant = f"option of {family.__name__}", present_name(name, known)
        message = refusal(f"{kind} renamed", meant, name) if meant else unknown(kind, name, known)
        raise RefusedType(message)


def check_options(family: Any) -> None:
    """Refuse options that do not have the type of their field.

    Raises:
        TypeError: an option has the wrong type.
    """
    for name, hint in _hints(type(family)).items():
        value = getattr(family, name)
        if not fits(value, hint):
            raise RefusedType(
                refusal(f"{type(family).__name__}'s {name} has a type", describe(hint), repr(value))
            )


def _hints(family: type[Any]) -> dict[str, Any]:
    known = get_type_hints(family)
    return {name: known[name] for name in getattr(family, "__dataclass_fields__", ())}


def check_powers(family: Any, name: str) -> None:
    """Refuse an option above ``MOST_POWERS``.

    Raises:
        ValueError: the option is larger.
    """
    if getattr(family, name) > MOST_POWERS:
        raise RefusedValue(
            refusal(
                f"{name} of {type(family).__name__} is bounded",
                f"<= {MOST_POWERS}",
                getattr(family, name),
            )
        )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an option; a bool is not a number."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple | list) and all(fits(v, get_args(hint)[0]) for v in value)
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    return isinstance(value, hint)


def describe(hint: Any) -> str:
    """A type hint in words."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe(part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        part = get_args(hint)[0]
        said = describe(part)
        if get_origin(part) is tuple:
            return f"lists of {said}"
        return "families with commas" if said == "a family" else f"{said}s with commas"
    if hint is type(None):
        return "none"
    if isinstance(hint, type) and hint.__name__ == "Family":
        return "a family"
    if getattr(hint, "_is_protocol", False):
        return "a function"
    return {int: "integer", float: "number", str: "text", bool: "switch"}.get(hint, str(hint))
