"""Families on the command line: read from text, listed and described."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import MISSING, Field, fields
from typing import Any, get_args, get_origin, get_type_hints

from ..errors import RefusedValue
from ..families import FAMILIES, Directed, Family, Relation, Stack, Union, parse_family
from ..graph import Graph
from ..signatures import describe


def options(family: type[Family]) -> dict[str, Any]:
    """The options of a family that text can give, each with its type hint."""
    hints = get_type_hints(family)
    plain = {option.name: hints[option.name] for option in _fields(family)}
    return {
        name: hint for name, hint in plain.items() if not FAMILIES.holds(hint) and _is_written(hint)
    }


def needs_python(family: type[Family]) -> bool:
    """Whether a family needs a function or a module, which text cannot give."""
    hints = get_type_hints(family)
    needed = [hints[option.name] for option in _needed(family)]
    return not all(FAMILIES.holds(hint) or _is_written(hint) for hint in needed)


def defaults(family: type[Family]) -> dict[str, Any]:
    """The default of each option; ``dataclasses.MISSING`` where it has none."""
    option_hints = options(family)
    return {
        option.name: _default(option) for option in _fields(family) if option.name in option_hints
    }


def short_name(family: Family) -> str:
    """A family as text, with integer options and options that differ from their defaults."""
    name = FAMILIES.name_of(type(family))
    if isinstance(family, Stack | Union):
        return f"{name}({', '.join(map(short_name, family.families))})"
    said = []
    for option in _fields(type(family)):
        value = getattr(family, option.name)
        if value != _default(option) or option.type == "int":
            said.append(
                f"{option.name}={value!r}" if not isinstance(value, Family) else short_name(value)
            )
    return f"{name}({', '.join(said)})" if said else name


def _fields(family: type[Family]) -> tuple[Field[Any], ...]:
    dataclass_fields = fields(family)  # type: ignore[arg-type]  # every family is a dataclass
    return tuple(option for option in dataclass_fields if option.init)


def _default(option: Field[Any]) -> Any:
    """The default of an option, ``dataclasses.MISSING`` if it has none."""
    return option.default if option.default_factory is MISSING else option.default_factory()


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


def make_family(text: str, directed: bool = False, num_relations: int | None = None) -> Family:
    """The family of edges that a text names; ``num_relations`` is for a relation by its name."""
    family = _parsed(text, {}, num_relations)
    if not issubclass(Graph, family.reads):
        raise RefusedValue(
            "a graph is read by families of edges", "such as gcn", short_name(family)
        )
    return Directed(family) if directed else family


def any_family(text: str, chosen: dict[str, Any], num_relations: int | None = None) -> Family:
    """The family that a text names, whatever kind of structure it reads, without features."""
    family = _parsed(text, chosen, num_relations)
    if family.makes_use_of("x"):
        raise RefusedValue(
            "a command makes the basis of a structure alone, without features",
            "a family whose values do not depend on features, or a layer in Python",
            short_name(family),
        )
    return family


def _parsed(text: str, chosen: dict[str, Any], num_relations: int | None) -> Family:
    """The family that a text names, with the chosen options if it has none of its own."""
    if text.strip().isidentifier():
        return _named(text.strip(), chosen, num_relations)
    return parse_family(text)


def _named(name: str, chosen: dict[str, Any], num_relations: int | None) -> Family:
    """The family of this name, with the chosen options."""
    family = FAMILIES.named(name)
    if needs_python(family):
        raise RefusedValue(
            f"family {name!r} is made of functions or modules",
            f"{family.__name__}(...) in Python",
            repr(name),
        )
    option_hints = options(family)
    for option in chosen:
        if option not in option_hints:
            has = ", ".join(option_hints) or "no options"
            raise RefusedValue(f"family {name!r} has no option {option}", has, option)
    values = dict(chosen)
    if family is Relation and num_relations is not None:
        values.setdefault("num_relations", num_relations)
    needed = [option.name for option in _needed(family)]
    if not values.keys() >= set(needed):
        wanted = f"{name.lower()}({', '.join(f'{option}=...' for option in needed)})"
        raise RefusedValue(f"family {name!r} must be told {needed[0]}", wanted, name)
    return family(**values)


# Listing and describing ---------------------------------------------------------------------------


def list_families() -> list[tuple[str, str, str]]:
    """A row for each family: its name, its equation, its options with their defaults."""
    rows = [("family", "matrices", "options, with defaults")]
    for _, family in sorted(FAMILIES.items()):
        option_texts = [
            option if default is MISSING else f"{option}={default!r}"
            for option, default in defaults(family).items()
        ]
        listed = "in Python" if needs_python(family) else ", ".join(option_texts) or "-"
        rows.append((FAMILIES.name_of(family), family.equation, listed))
    return rows


def describe_family(name: str) -> str:
    """The equation of a family, its options with types, defaults and meaning, and an example."""
    family = FAMILIES.named(name)
    hints = get_type_hints(family)
    texts = [inspect.getdoc(kind) or "" for kind in family.__mro__ if issubclass(kind, Family)]
    lines = [f"{family.__name__}: {_plain(texts[0].split(chr(10), 1)[0])}", "", family.equation, ""]
    for option in _fields(family):
        hint, default = hints[option.name], _default(option)
        kind = describe(hint) if _is_written(hint) else "a Python object"
        if FAMILIES.holds(hint):
            kind = "families with commas" if get_args(hint) else "a family"
        said = short_name(default) if isinstance(default, Family) else repr(default)
        told = "required" if default is MISSING else f"default {said}"
        lines.append(f"  {option.name}: {kind}, {told}")
        if meaning := next(filter(None, (_meaning(one, option.name) for one in texts)), ""):
            lines += textwrap.wrap(meaning, 92, initial_indent=" " * 6, subsequent_indent=" " * 6)
    if not _fields(family):
        lines.append("  no options")
    return "\n".join([*lines, "", f"example: {example(family)}"])


def example(family: type[Family]) -> str:
    """How the command line names a family, with the options that it needs, or else its first."""
    name, hints = FAMILIES.name_of(family), get_type_hints(family)
    if needs_python(family):
        return f"{family.__name__}(...) in Python"
    if family in (Stack, Union):
        return f'--family "{name}(gcn, walk(2))"'
    values = {option.name: _sample(hints[option.name]) for option in _needed(family)}
    for first, value in list(defaults(family).items())[:1]:
        values = values or {first: _sample(hints[first]) if value is None else repr(value)}
    written = ", ".join(f"{option}={value}" for option, value in values.items())
    return f'--family "{name}({written})"' if written else f"--family {name}"


def _sample(hint: Any) -> str:
    """A value of a type, as text."""
    if FAMILIES.holds(hint):
        return "gcn"
    if bool in (hint, *get_args(hint)):
        return "True"
    lists = any(get_origin(part) is tuple for part in (hint, *get_args(hint)))
    return "(3, 3)" if lists else "2"


def _meaning(text: str, option: str) -> str:
    """The sentences on an option in the ``Args`` of a docstring, without markup."""
    match = re.search(
        rf"^    {option} \([^\n]*?\): (.*?)(?=\n {{0,4}}\S|\n\n|\Z)", text, re.DOTALL | re.MULTILINE
    )
    sentences = _plain(match[1]) if match else ""
    return re.sub(r"\s*\(default: .*?\)$", "", sentences)


def _plain(text: str) -> str:
    """A docstring's text on one line, without markup."""
    text = re.sub(r":\w+:`~?\.*([^`]*)`", r"\1", text)
    return " ".join(text.replace("``", "").split())
