"""Options of ``outerconv compare``."""

from __future__ import annotations

import click


@click.command()
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "--out",
    help="A folder for compare.md, compare.json and compare.png; without it nothing is written.",
)
@click.option(
    "--against",
    default="first",
    show_default=True,
    help="What the other models of a table are compared with: the first one, or the best on "
    "validation nodes.",
)
def compare(runs: tuple[str, ...], out: str | None, against: str) -> int:
    """Compare RUNS of outerconv train: means, and differences paired by seed."""
    from ..report import compare_runs

    return compare_runs(runs, out, against)
