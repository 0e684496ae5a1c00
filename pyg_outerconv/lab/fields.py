"""Settings said once: a field of a dataclass carries type, bounds, words and help.

From the fields are made the options of all commands with their help (``cli/options.py``), the
checks of what Python, TOML and folders say, and the tables of ``docs/commands.md``. This file does
not import torch, so that ``--help`` is quick.
"""

from __future__ import annotations

import importlib.util
import json
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from types import NoneType
from typing import Any

from ..errors import Refused, RefusedType, RefusedValue, unknown
from ..files import as_path, read_bytes

TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "int | None": (int, NoneType),
    "str | None": (str, NoneType),
    "float": (int, float),
    "float | None": (int, float, NoneType),
    "dict": (dict,),
}
"""The values of a type, by the text of its annotation; a switch is no number."""
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    ">=": (operator.ge, "minimum"),
    ">": (operator.gt, "minimum"),
    "<=": (operator.le, "maximum"),
    "<": (operator.lt, "maximum"),
}


def setting(
    default: Any = MISSING,
    help: str = "",
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    words: Sequence[str] | dict[str, str] = (),
    said: str | None = None,
    option: str | None = None,
    metavar: str | None = None,
    section: str = "",
    samples: Sequence[str] = (),
    argument: bool = False,
) -> Any:
    """A field of a dataclass of settings, for :func:`check_settings` and :func:`explained`.

    Args:
        default: its value where none is given.
        help: what it means, without words and default.
        at_least, above, at_most, below: bounds of a number.
        words: all values of a text, as a dictionary with the meaning of each, or an empty text.
        said: how help says the default; an empty text for not at all, None for the value.
        option: its name on the command line, if that is another one.
        metavar: what help says in the place of the value.
        section: of the options that begins with this one.
        samples: the kinds of ``batches`` that use it.
        argument: it is no option, but a word of the command line.
    """
    bounds = {">=": at_least, ">": above, "<=": at_most, "<": below}
    return field(
        default=default,
        metadata={
            "help": help,
            "bounds": {sign: bound for sign, bound in bounds.items() if bound is not None},
            "words": words if isinstance(words, dict) else dict.fromkeys(words, ""),
            "said": said,
            "option": option,
            "metavar": metavar,
            "section": section,
            "samples": tuple(samples),
            "argument": argument,
        },
    )


def explained(one: Field[Any]) -> str:
    """What a setting means, with its words and its default, as help and the guide say it."""
    text = one.metadata["help"]
    told = one.metadata["words"].items()
    if words := [f"{word} ({means})" if means else word for word, means in told]:
        text += f": {', '.join(words[:-1])} or {words[-1]}"
    said = one.metadata["said"]
    if said is None and one.default not in (None, ()):
        number = isinstance(one.default, float)
        said = "no" if one.default is False else format(one.default, "g" if number else "")
    said = said or ""
    colon = ":" if " " in said else ""
    return text + (f"; default{colon} {said}." if said else ".")


def flag_of(one: Field[Any]) -> str:
    """The option of commands for a setting, such as ``--weight-decay``."""
    return "--" + (one.metadata["option"] or one.name.replace("_", "-"))


def check_value(one: Field[Any], value: Any, where: str = "") -> None:
    """Refuse a value that a setting cannot have; ``where`` stands before its name in messages."""
    kind, name = _kind(one), f"{where}{one.name}"
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise RefusedType(f"{name} has a type", kind, repr(value))
    for sign, bound in one.metadata.get("bounds", {}).items() if value is not None else ():
        fits, end = _BOUNDS[sign]
        if not fits(value, bound):
            is_long = isinstance(value, int | float) and value > 1e15  # maybe too long to be told
            got = "more" if is_long else value
            raise RefusedValue(f"{name} has a {end}", f"{sign} {bound}", got)
    if (words := one.metadata.get("words")) and value not in words:
        raise RefusedValue(f"{where}{unknown(one.name, value, words)}")


def _kind(one: Field[Any]) -> str:
    """The text of a type, without what is in it."""
    return str(one.type).partition("[")[0]


def check_settings(settings: Any) -> None:
    """Check each field of a dataclass that :func:`setting` made."""
    for one in fields(settings):
        if _kind(one) in TYPES:
            check_value(one, getattr(settings, one.name))


def require_modules(
    what: str, names: Sequence[str], install: str, refused: type[Refused] = RefusedValue
) -> None:
    """Refuse what needs modules that are not installed here, and say how to ``install`` them."""
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        said = f"{what} {' and '.join(missing)}, not installed here: pip install {install}"
        raise refused(said)


# In files -----------------------------------------------------------------------------------------


def read_values(
    fields_by_name: dict[str, Field[Any]], values: Any, where: str, needed: Sequence[str] = ()
) -> dict[str, Any]:
    """Names and values that a file holds ``where``, if each is that of a field of this name."""
    if not isinstance(values, dict):
        raise RefusedValue(f"{where} is a table", "names with values", repr(values))
    for name, value in values.items():
        if name not in fields_by_name:
            raise RefusedValue(f"{where}: {unknown('setting', name, fields_by_name)}")
        check_value(fields_by_name[name], value, f"{where}: ")
    for name in needed:
        if not values.get(name):
            raise RefusedValue(f"{where} must say its {name}", f"{name} = …", "none")
    return values


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file."""
    place = as_path(path, "a configuration")
    try:
        text = read_bytes(place).decode()
    except OSError as error:
        raise RefusedValue(f"{place} must be readable", "a TOML file", error.strerror) from error
    except UnicodeDecodeError as error:
        raise RefusedValue(f"{place} must be TOML", "text in UTF-8", error) from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise RefusedValue(
                "TOML is read with tomli, not installed here: pip install 'pyg_outerconv[train]'"
            ) from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # no TOML, a number too long, nested too deep
        raise RefusedValue(f"{place} must be TOML", "such as: depth = 2", error) from error


def write_toml(values: dict[str, Any], remark: str = "") -> str:
    """Names and plain values as TOML, below a remark.

    >>> print(write_toml({"family": "gcn", "lr": 0.01, "peer": False}, "two layers"), end="")
    # two layers
    family = "gcn"
    lr = 0.01
    peer = false
    """
    lines = [f"# {line}".rstrip() for line in remark.splitlines()]
    for name, value in values.items():  # text, numbers and switches are written as in JSON
        lines.append(f"{name} = {json.dumps(value, ensure_ascii=False, allow_nan=False)}")
    return "\n".join(lines) + "\n"
