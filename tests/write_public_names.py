"""``python tests/write_public_names.py`` writes tests/public_names.txt: what a version promises.

A line for each name that a public room lists, with its arguments and their defaults, and for each
public method of a class. Names that are new are added. Once a version is released, a line that is
gone or changed must be told to users first: CHANGELOG.md must have its name in the section on top.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from public_names import ROOMS, public_names

import pyg_outerconv
from pyg_outerconv.pyg import DropIn

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "public_names.txt"
CHANGELOG = ROOT / "CHANGELOG.md"
PACKAGE = Path(pyg_outerconv.__file__).parent
DEFAULTS = inspect.Parameter.empty
NO_SIGNATURE = (ValueError, TypeError)
"""Of protocols, and of classes whose constructor is written in C."""


def current() -> list[str]:
    """The lines of today's code."""
    first = public_names()
    names = {id(one): name for name, one in first.items()}
    lines: list[str] = []
    for room in ROOMS:
        module = import_module(room)
        for listed in sorted(module.__all__):
            name, one = f"{room}.{listed}".removeprefix("pyg_outerconv."), getattr(module, listed)
            again = names.get(id(one), name)
            lines += of_name(name, one, first) if again == name else [f"{name} = {again}"]
    return lines


def of_name(name: str, one: Any, public: dict[str, Any]) -> list[str]:
    """The line of a name, and below it those of a class's methods."""
    if not inspect.isclass(one):
        return [name + (arguments(one) if inspect.isroutine(one) else "")]
    if issubclass(one, DropIn) and one is not DropIn:
        return [name]  # its arguments are those of PyG's version, its methods DropIn's
    bases = [base for base in public.values() if inspect.isclass(base) and base is not one]
    return [name + arguments(one), *(f"    .{method}" for method in methods(one, bases))]


def methods(one: type, public: list[type]) -> list[str]:
    """The public methods and properties of a class, but for what its public bases say alike."""
    told: dict[str, str] = {}
    method_lines: dict[str, str] = {}
    for base in reversed(one.__mro__):
        fields = vars(base).get("__dataclass_fields__", {})  # arguments of the constructor
        ours = base.__module__.startswith("pyg_outerconv") and base not in public
        for name, value in vars(base).items():
            is_called = hasattr(type(value), "__get__")  # or read through a property
            if is_called and not name.startswith("_") and name not in fields:
                plain = getattr(value, "__func__", value)
                if ours and inspect.isfunction(plain) and not is_own(plain):
                    continue
                line = name + (arguments(plain) if inspect.isfunction(plain) else "")
                (method_lines if ours else told)[name] = line
    return [line for name, line in sorted(method_lines.items()) if told.get(name) != line]


def is_own(function: FunctionType) -> bool:
    """Whether a file of the package has it; PyG writes methods of layers as it makes them."""
    return Path(function.__code__.co_filename).is_relative_to(PACKAGE)


def arguments(one: Any) -> str:
    """What can be given: names, defaults, and the marks of what is given by place or by name."""
    try:
        parameters = inspect.signature(one).parameters.values()
    except NO_SIGNATURE:
        return "(...)"
    kept = [one for one in parameters if one.name not in ("self", "cls")]
    plain = [one.replace(annotation=DEFAULTS, default=default_of(one)) for one in kept]
    return str(inspect.Signature(plain))


class _Shown:
    """A default as a text that is the same in every process."""

    def __init__(self, value: Any) -> None:
        shown = getattr(value, "__name__", None) or repr(value)
        self._text = re.sub(r" at 0x[0-9a-f]+", "", shown)

    def __repr__(self) -> str:
        return self._text


def default_of(one: inspect.Parameter) -> Any:
    """The default, or that there is none."""
    return one.default if one.default is DEFAULTS else _Shown(one.default)


def named(lines: list[str]) -> dict[str, str]:
    """Lines by their names, those of methods by class and method."""
    lines_by_name, owner = {}, ""
    for line in lines:
        name = line.partition("(")[0]
        owner = owner if name.startswith(" ") else name
        lines_by_name[f"{owner}{name.strip()}" if name.startswith(" ") else name] = line
    return lines_by_name


def recorded() -> list[str]:
    """The lines of the file."""
    return FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []


def untold(before: list[str], now: list[str], changelog: str) -> list[str]:
    """Names that are gone or changed without a word in the top section of the changelog.

    Before the first release, whose section has a date, nothing has been promised.
    """
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    if not any(re.match(r"\S+ \(\d{4}-\d\d-\d\d\)", section) for section in sections):
        return []
    old, new = named(before), named(now)
    lost = [name for name, line in old.items() if new.get(name) != line]
    words = set(re.findall(r"[\w.]+", " ".join(re.findall(r"`([^`]*)`", sections[0]))))
    return [name for name in lost if not any(f".{name}".endswith(f".{word}") for word in words)]


def main() -> int:
    """Write the file, unless something would go in silence."""
    lines = current()
    silent = untold(recorded(), lines, CHANGELOG.read_text(encoding="utf-8"))
    if silent:
        print(f"gone or changed, and not named on top of {CHANGELOG.name}: {', '.join(silent)}")
        return 1
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
