"""Options of ``outerconv generate``."""

from __future__ import annotations

import click


@click.command()
@click.argument("name", metavar="NAME")
@click.argument("out", metavar="OUT")
@click.option("--nodes", type=int, default=10_000, show_default=True, help="Number of nodes.")
@click.option("--edges", type=int, default=100_000, show_default=True, help="Number of edges.")
@click.option("--features", type=int, default=64, show_default=True, help="Features of a node.")
@click.option("--classes", type=int, default=16, show_default=True, help="Number of classes.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random numbers.")
def generate(
    name: str, out: str, nodes: int, edges: int, features: int, classes: int, seed: int
) -> int:
    """Write a graph of any size into a folder, chunk by chunk.

    NAME is 'blocks', a degree-corrected stochastic block model in which the features of a
    node tell little about its class, and their mean over its neighbours much. OUT is a new folder;
    see docs/scale.md for its format.
    """
    from ...scale.generate import generate as run

    run(out, name, nodes, edges, features, classes, seed)
    click.echo(f"graph: {out}")
    return 0
