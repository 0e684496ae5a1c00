"""Commands, made from dataclasses of settings: arguments, options, and help in sections.

Nothing here imports torch: commands import what they run when they run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from importlib import import_module
from typing import Any

import click

from ...files import ROOT_VARIABLE
from ..fields import check_settings, explained, flag_of, setting

RUN = "Run"
"""The section of options that name none."""


@dataclass(frozen=True)
class Some:
    """Settings that a command takes, of which it gets a dictionary of those that were given.

    Attributes:
        kind: a dataclass, whose fields :func:`~..fields.setting` made.
        names: of some of its fields, in this order; if empty, all that have help.
        apart: the names of those that are not taken then.
    """

    kind: type
    names: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def taken(self) -> list[Field[Any]]:
        """The fields that are taken."""
        told = ("help", "argument")
        fields_by_name = {
            one.name: one for one in fields(self.kind) if any(map(one.metadata.get, told))
        }
        return [
            fields_by_name[name] for name in self.names or fields_by_name if name not in self.apart
        ]

    def key(self, one: Field[Any]) -> str:
        """The name of a parameter: fields of several kinds may have one name."""
        return f"{self.kind.__name__}_{one.name}".lower()

    def of(self, values: dict[str, Any]) -> Any:
        """Those of some values that were given."""
        return {name: value for name, value in values.items() if value not in (None, ())}


@dataclass(frozen=True)
class All(Some):
    """Settings that a command takes as one object, with defaults for those that were not given."""

    def of(self, values: dict[str, Any]) -> Any:
        settings = self.kind(**super().of(values))
        check_settings(settings)
        return settings


@dataclass(frozen=True)
class Imports:
    """Modules of one's own, which are imported as the option is read."""

    imports: tuple[str, ...] = setting(
        (),
        "A module, or a file .py, whose families and scores then have names in text",
        option="import",
        metavar="MODULE",
    )


@dataclass(frozen=True)
class Place:
    """Where the data is."""

    root: str | None = setting(
        None, "Folder of the data", said=f"{ROOT_VARIABLE}, else a cache folder"
    )


def command(
    *kinds: type | Some, work: str = ""
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command of a function, whose docstring is its help.

    The function is called with a value for each kind but ``Imports``: of a :class:`Some` a
    dictionary, of a dataclass an object. ``work`` names another function that is called instead, as
    ``module:function`` of the lab, and is imported then.
    """
    taken = [kind if isinstance(kind, Some) else All(kind) for kind in kinds]

    def decorate(function: Callable[..., int | None]) -> click.Command:
        def run(**values: Any) -> int | None:
            arguments = (
                some.of({one.name: values[some.key(one)] for one in some.taken})
                for some in taken
                if some.kind is not Imports
            )
            if not work:
                return function(*arguments)
            module, _, name = work.partition(":")
            code: int = getattr(import_module(f"..{module}", __package__), name)(*arguments)
            return code

        parameters = []
        for some in taken:
            section, own = RUN, some.taken
            for one in fields(some.kind):  # a section begins with a field that names it
                section = one.metadata.get("section") or section
                if one in own:
                    parameters.append(_parameter(one, some.key(one), section))
        help = inspect.getdoc(function)
        click_command = Sectioned(function.__name__, callback=run, params=parameters, help=help)
        click_command.kinds = taken
        return click_command

    return decorate


def _parameter(one: Field[Any], key: str, section: str) -> click.Parameter:
    """The argument or the option for a field; it is None, or empty, where it is not given."""
    told, kind = one.metadata, str(one.type)
    is_list = kind.startswith("tuple")
    if told["argument"]:
        required = one.default is MISSING
        metavar = told["metavar"] or one.name.upper()
        metavar += "..." if is_list else ""
        metavar = metavar if required else f"[{metavar}]"
        return click.Argument([key], required=required, nargs=-1 if is_list else 1, metavar=metavar)
    details: dict[str, Any] = {"help": explained(one), "default": None}
    flag = flag_of(one)
    if kind == "bool" and told["said"] is None:  # a default that can be undone
        flag += f"/--no-{flag[2:]}"
    elif kind == "bool":
        details["is_flag"] = True
    else:
        first = kind.replace("tuple[", "").split()[0].rstrip(",")
        details["type"] = {"int": int, "float": float}.get(first, str)
        details["metavar"] = told["metavar"]
    if is_list:
        details["multiple"] = True
        details["help"] = f"{details['help'][:-1]}; may be repeated."
    if one.name == "imports":
        details |= {"is_eager": True, "expose_value": False, "callback": _import}
    return Option([flag, key], section=section, **details)


def _import(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> None:
    if names:
        from ..own_code import import_own

        import_own(names)


class Option(click.Option):
    """An option that stands in a section of the help."""

    def __init__(self, *flags: Any, section: str, **options: Any) -> None:
        super().__init__(*flags, **options)
        self.section = section


class Sectioned(click.Command):
    """A command whose help has its options by section, in the order in which sections begin.

    Attributes:
        kinds: the settings that it takes.
    """

    kinds: Sequence[Some] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section with its title."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if row is not None:
                sections.setdefault(getattr(parameter, "section", RUN), []).append(row)
        for title, rows in sections.items():
            with formatter.section(title if len(sections) > 1 else "Options"):
                formatter.write_dl(rows)
