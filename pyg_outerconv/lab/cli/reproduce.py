"""Options of ``outerconv reproduce``."""

from __future__ import annotations

from typing import Any

import click

from ...files import ROOT_VARIABLE
from .imports import imports


@click.command()
@click.argument("table", required=False)
@click.option("--data", multiple=True, help="Only this data set; may be repeated.")
@click.option("--row", "rows", multiple=True, help="Only this row; may be repeated.")
@click.option(
    "--seeds",
    type=int,
    help="Number of seeds, instead of that of the table; needs a folder of its own.",
)
@click.option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps.")
@click.option("--root", help=f"Folder of the data; default {ROOT_VARIABLE}, else a cache folder.")
@click.option("--out", help="Folder of the runs and results; default runs/tables/<table>.")
@imports
def reproduce(**options: Any) -> int:
    """Run a table of results; write it beside the published figures.

    TABLE is a name, or a TOML file; without one, list the tables that come with the package. What
    is finished is read, and what is not goes on: run the same command again after an interruption.
    """
    from ..reproduce.run import reproduce as run

    return run(**options)
