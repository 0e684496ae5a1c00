"""Options of ``outerconv show``."""

from __future__ import annotations

from typing import Any

import click

from ...files import ROOT_VARIABLE
from .imports import imports

_OF_A_BASIS = ("family", "shape", "dataset", "kind", "offsets", "cell", "reach", "channels")


@click.command()
@click.argument("run", required=False)
@click.option(
    "--family",
    help='A family with its options, such as "grid((3, 3), padding=1)"; see '
    "outerconv families; default grid with --shape, else gcn.",
)
@click.option("--shape", metavar="8x10", help="Draw on a grid with this number of cells per axis.")
@click.option(
    "--dataset",
    help="Draw on a graph that 'outerconv datasets' lists; default "
    "KarateClub, where there is no --shape.",
)
@click.option("--root", help=f"Folder of the data; default {ROOT_VARIABLE}, else a cache folder.")
@click.option(
    "--kind",
    help="matrices, shift, flattenings, receptive-field or graph; default "
    "matrices (one panel for each A_k) on a grid, graph (one panel for each A_k, a part of a "
    "large graph) on a graph.",
)
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="2,4",
    help="A shift d of the family grid; may be repeated.",
)
@click.option(
    "--cell",
    metavar="3,4",
    help="The output of a receptive field, default the first; "
    "the input that the arrows of a shift follow, default the middle.",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    help="On a grid, the number of the cell. On a graph, the node around which a part is drawn. Of "
    "a run, the node whose neighbours are drawn, by its name if it has one. May be repeated for "
    "graphs and runs.",
)
@click.option("--reach", type=int, help="Number of layers of a receptive field; default 1.")
@click.option(
    "--label", "labels", type=int, multiple=True, help="Draw A_k for this k; may be repeated."
)
@click.option("--channels", metavar="2x3", help="P and Q of the random Θ of flattenings.")
@click.option("--layout", help="Layout of a graph: spring (the default) or circle.")
@click.option("--seed", type=int, help="Seed of the random Θ and of the spring layout; default 0.")
@click.option(
    "--out",
    help="A PNG or SVG file, by its extension, default <family>-<kind>.svg; of a run a folder, "
    "default RUN/show.",
)
@click.option("--data", help="Where the graph of RUN is now, if it is your own and was moved.")
@imports
def show(run: str | None, **options: Any) -> int:
    """Draw a basis: matrices, shifts, a receptive field, a graph. Or show RUN, a run folder of
    outerconv train: contributions of labels, learned values, confusion matrix, learning curves and
    basis, as pictures, numbers and a page.
    """
    own = options.pop("data")
    if run is None:
        if own:
            raise click.UsageError("--data is that of a RUN: expected RUN too, got none")
        from ..show import draw

        return draw(nodes=_numbers(options.pop("nodes")), **options)
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in _OF_A_BASIS and options.pop(name):
            raise click.UsageError(
                f"{parameter.opts[0]} is of the picture of a basis: expected RUN alone, or no RUN, "
                f"got both",
                context,
            )
    from ..report import show_run

    return show_run(run, data=own, **options)


def _numbers(nodes: tuple[str, ...]) -> tuple[int, ...]:
    """The cells of a picture of a basis."""
    for node in nodes:
        if not node.removeprefix("-").isdecimal():
            rule = "nodes of the picture of a basis are numbers"
            raise click.BadParameter(f"{rule}: expected an integer, got {node!r}")
    return tuple(map(int, nodes))
