"""Options of commands: those made from settings, those that several commands have, help in parts.

Nothing here imports torch: commands import what they run when they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import click

from ...files import ROOT_VARIABLE
from ..train.settings import Settings, explained, flag_of

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
OF_A_GRAPH, OF_A_RUN = "A graph of your own", "Run"


class Option(click.Option):
    """An option that stands in a section of the help."""

    def __init__(self, *flags: Any, section: str = OF_A_RUN, **options: Any) -> None:
        super().__init__(*flags, **options)
        self.section = section


class Sectioned(click.Command):
    """A command whose help has its options by section, in the order in which sections begin."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section with its title."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if row is not None:
                section = getattr(parameter, "section", OF_A_RUN)
                sections.setdefault(section, []).append(row)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in their order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def option(*flags: str, **details: Any) -> Decorator:
    """An :class:`Option`."""
    return click.option(*flags, cls=Option, **details)


def settings_of(kind: type, names: Sequence[str] = ()) -> Decorator:
    """The options for the fields of a dataclass of settings; each is None where it is not given.

    Args:
        kind: the dataclass, whose fields :func:`~..train.settings.setting` made.
        names: of some of its fields, in this order; if empty, all that have help, and are not of
            ``OWN_GRAPH``.
    """
    made, section = {}, OF_A_RUN
    for one in fields(kind):
        if one.metadata.get("help") and (names or one.metadata["section"] != OF_A_GRAPH):
            section = one.metadata["section"] or section
            flag = flag_of(one)
            details: dict[str, Any] = {"help": explained(one), "section": section}
            if one.type == "bool" and one.metadata["said"] is None:  # a default that can be undone
                flag += f"/--no-{flag[2:]}"
            elif one.type == "bool":
                details["is_flag"] = True
            else:
                words = str(one.type).replace("tuple[", "").split()
                details["type"] = {"int": int, "float": float}.get(words[0].rstrip(","), str)
                details["metavar"] = one.metadata["metavar"]
            if str(one.type).startswith("tuple"):
                details["multiple"] = True
                details["help"] = f"{details['help'][:-1]}; may be repeated."
            made[one.name] = option(flag, one.name, default=None, **details)
    return together(*(made[name] for name in names or made))


# Options of several commands ----------------------------------------------------------------------

ROOT = option("--root", help=f"Folder of the data; default {ROOT_VARIABLE}, else a cache folder.")


def _import(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> None:
    if names:
        from ..own_code import import_own

        import_own(names)


IMPORTS = option(
    "--import",
    multiple=True,
    metavar="MODULE",
    callback=_import,
    expose_value=False,
    is_eager=True,
    help="A module, or a file .py, whose families and scores then have names in text; may be "
    "repeated.",
)
"""Modules of one's own, imported as the option is read."""


def _of_a_graph(*flags: str, help: str, metavar: str | None = "FILE") -> Decorator:
    return option(*flags, section=OF_A_GRAPH, metavar=metavar, help=help)


OWN_GRAPH = together(
    _of_a_graph(
        "--edges",
        help="Edges of your own graph: CSV, TSV, text, Parquet, npz, MatrixMarket or GraphML.",
    ),
    _of_a_graph(
        "--features",
        "features_file",
        help="Features of its nodes, a row for each; without this option, nodes have none.",
    ),
    _of_a_graph("--labels", help="Classes of its nodes, and their split."),
    _of_a_graph(
        "--data",
        metavar="FILE.pt|FOLDER|MODULE:FUNCTION",
        help="Instead of files: a saved PyG Data; a folder of mapped files, such as outerconv "
        "generate writes; or a function that returns a Data.",
    ),
    settings_of(Settings, ["undirected"]),
    _of_a_graph(
        "--edge-weight", metavar="COLUMN", help="The column of edge weights; default weight."
    ),
    _of_a_graph("--edge-type", metavar="COLUMN", help="The column of edge types; default type."),
)
"""A graph of one's own, which ``data.source_of`` reads."""
