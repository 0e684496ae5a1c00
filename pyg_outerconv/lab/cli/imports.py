"""The option ``--import``, by which a command knows families and scores of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def _import(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> None:
    if names:
        from ..own_code import import_own

        import_own(names)


def imports(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with the option ``--import``, whose modules are imported as it is read."""
    return click.option(
        "--import",
        multiple=True,
        metavar="MODULE",
        callback=_import,
        expose_value=False,
        is_eager=True,
        help="A module, or a file .py, whose families and scores then have names in text; may be "
        "repeated.",
    )(command)
