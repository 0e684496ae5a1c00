"""Family options as command-line flags, derived from the fields of each family."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Collection
from dataclasses import MISSING, Field, fields
from typing import Any, get_args, get_type_hints

from ..errors import RefusedValue, refusal
from ..families import FAMILIES, Directed, Family, Relation, Stack, Union, parse_family
from ..families.options import describe, fits
from ..families.registry import unknown_family
from ..graph import EdgeList

_PREFIX = "family_option_"


def options(family: type[Family]) -> dict[str, Any]:
    """The options of a family that a flag can give, each with its type hint."""
    hints = get_type_hints(family)
    plain = {option.name: hints[option.name] for option in _fields(family)}
    return {
        name: hint for name, hint in plain.items() if not _holds_family(hint) and _is_written(hint)
    }


def needs_python(family: type[Family]) -> bool:
    """Whether a family needs a function or a module, which no text can name."""
    hints = get_type_hints(family)
    needed = [hints[option.name] for option in _needed(family)]
    return not all(_holds_family(hint) or _is_written(hint) for hint in needed)


def defaults(family: type[Family]) -> dict[str, Any]:
    """The default of each option; ``dataclasses.MISSING`` where it has none."""
    known = options(family)
    return {
        option.name: option.default_factory()
        if option.default_factory is not MISSING
        else option.default
        for option in _fields(family)
        if option.name in known
    }


def short_name(family: Family) -> str:
    """The text that names a family: its numbers, and the options that are not the defaults."""
    if isinstance(family, Stack | Union):
        name = type(family).__name__.lower()
        return f"{name}({', '.join(map(short_name, family.families))})"
    said = []
    for option in _fields(type(family)):
        value = getattr(family, option.name)
        default = option.default if option.default_factory is MISSING else option.default_factory()
        if value != default or option.type == "int":
            said.append(
                f"{option.name}={value!r}" if not isinstance(value, Family) else short_name(value)
            )
    name = type(family).__name__.lower()
    return f"{name}({', '.join(said)})" if said else name


def _fields(family: type[Family]) -> tuple[Field[Any], ...]:
    known = fields(family)  # type: ignore[arg-type]  # every family is a dataclass
    return tuple(option for option in known if option.init)


def _holds_family(hint: Any) -> bool:
    if isinstance(hint, type) and not get_args(hint):
        return issubclass(hint, Family)
    return any(_holds_family(argument) for argument in get_args(hint))


def _is_written(hint: Any) -> bool:
    """Whether text can say a value of an option: numbers, words and switches, or lists of them."""
    return hint in (int, float, str, bool) or any(_is_written(part) for part in get_args(hint))


def _needed(family: type[Family]) -> list[Field[Any]]:
    """The options without a default."""
    return [
        option
        for option in _fields(family)
        if option.default is MISSING and option.default_factory is MISSING
    ]


def flag(option: str) -> str:
    """The flag of an option."""
    return "--" + option.replace("_", "-")


def add_flags(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Add a flag for every option that some family has.

    Args:
        parser: of a command.
        without: options whose names the command needs itself; they are given in text.
    """
    group = parser.add_argument_group("options of families (see 'outerconv families')")
    owners: dict[str, list[str]] = {}
    for name, family in sorted(FAMILIES.items()):
        for option in options(family):
            owners.setdefault(option, []).append(name)
    for option, names in owners.items():
        if option in without:
            continue
        switch = all(_is_switch(options(FAMILIES[name])[option]) for name in names)
        extra: dict[str, Any] = (
            {"action": argparse.BooleanOptionalAction} if switch else {"metavar": "VALUE"}
        )
        group.add_argument(
            flag(option),
            dest=_PREFIX + option,
            default=None,
            help=f"of {', '.join(names)}",
            **extra,
        )


def _is_switch(hint: Any) -> bool:
    """Whether an option is on or off, or neither where it may be None."""
    return hint is bool or set(get_args(hint)) == {bool, type(None)}


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options whose flags were used."""
    return {
        key.removeprefix(_PREFIX): value
        for key, value in vars(arguments).items()
        if key.startswith(_PREFIX) and value is not None
    }


def make_family(
    text: str, chosen: dict[str, Any], directed: bool = False, num_relations: int | None = None
) -> Family:
    """The family of edges that a line of text and flags name.

    Args:
        text: a family's name, which flags complete, or an expression that is complete in itself.
        chosen: values of flags, as text or switches.
        directed: wrap it in :class:`Directed`.
        num_relations: what the data has, where a relation family is not told.

    Raises:
        ValueError: a name, an option or a value is wrong, or the family reads no edges.
    """
    made = any_family(text, chosen, num_relations)
    if not issubclass(EdgeList, made.reads):
        raise RefusedValue(
            refusal("a graph is read by families of edges", "such as gcn", short_name(made))
        )
    return Directed(made) if directed else made


def any_family(text: str, chosen: dict[str, Any], num_relations: int | None = None) -> Family:
    """The family that a line of text and flags name, whatever it reads; see :func:`make_family`.

    Raises:
        ValueError: a name, an option or a value is wrong.
    """
    named = text.strip().isidentifier()
    made = _named(text.strip(), chosen, num_relations) if named else _written(text, chosen)
    if made.makes_use_of("x"):
        raise RefusedValue(
            refusal(
                "a command makes the basis of a structure alone, without features",
                "a family whose values are not made of them, or a layer in Python",
                short_name(made),
            )
        )
    return made


def _written(text: str, chosen: dict[str, Any]) -> Family:
    if chosen:
        raise RefusedValue(
            refusal(
                "options are given in the family's text or by flags, not both",
                f"{text} alone",
                f"also {', '.join(map(flag, chosen))}",
            )
        )
    return parse_family(text)


def _named(name: str, chosen: dict[str, Any], num_relations: int | None) -> Family:
    family = FAMILIES.get(name.lower())
    if family is None:
        raise RefusedValue(unknown_family(name))
    if needs_python(family):
        raise RefusedValue(
            refusal(
                f"family {name!r} is made of functions or modules",
                f"{family.__name__}(...) in Python",
                repr(name),
            )
        )
    known = options(family)
    for option in chosen:
        if option not in known:
            has = ", ".join(map(flag, known)) or "no flags"
            raise RefusedValue(refusal(f"family {name!r} has no {flag(option)}", has, flag(option)))
    values = {option: _value(option, value, known[option]) for option, value in chosen.items()}
    if family is Relation and num_relations is not None:
        values.setdefault("num_relations", num_relations)
    needed = [option.name for option in _needed(family)]
    if not values.keys() >= set(needed):
        ways = [flag(n) if n in known else f"{n} in text: {name}(...)" for n in needed]
        raise RefusedValue(refusal(f"family {name!r} must be told", ", ".join(ways), "less"))
    return family(**values)


def _value(option: str, text: Any, hint: Any) -> Any:
    """The value of a flag: a Python literal, or text that stands for itself."""
    value = text
    if isinstance(text, str):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = None if text.lower() == "none" else text
    for candidate in (value, (value,), text):
        if fits(candidate, hint):
            return candidate
    raise RefusedValue(refusal(f"{flag(option)} has a type", describe(hint), repr(text)))
