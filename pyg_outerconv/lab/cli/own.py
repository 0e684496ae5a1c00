"""Options by which a command reads a graph of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--edges",
        metavar="FILE",
        help="Edges of your own graph: CSV, TSV, text, Parquet, npz, MatrixMarket or GraphML.",
    ),
    click.option(
        "--features",
        "features_file",
        metavar="FILE",
        help="Features of its nodes, a row for each; without this option, nodes have none.",
    ),
    click.option("--labels", metavar="FILE", help="Classes of its nodes, and their split."),
    click.option(
        "--data",
        metavar="FILE.pt|FOLDER|MODULE:FUNCTION",
        help="Instead of files: a saved PyG Data; a folder of mapped files, such as outerconv "
        "generate writes; or a function that returns a Data.",
    ),
    click.option(
        "--undirected",
        is_flag=True,
        default=None,
        help="Edges go both ways: add the reverse of each edge that is listed one way only.",
    ),
    click.option(
        "--edge-weight", metavar="COLUMN", help="The column of edge weights; default weight."
    ),
    click.option("--edge-type", metavar="COLUMN", help="The column of edge types; default type."),
)


def own_graph(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with these options, which ``data.source_of`` reads."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
