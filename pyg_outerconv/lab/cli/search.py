"""Options of ``outerconv search``."""

from __future__ import annotations

from typing import Any

import click

from ...files import ROOT_VARIABLE
from .imports import imports
from .own import own_graph


@click.command()
@click.argument("dataset", required=False)
@own_graph
@click.option("--trials", type=int, help="Trials of each contestant; default 40.")
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="Instead of --trials: seconds of training, shared equally by the contestants.",
)
@click.option(
    "--peers",
    metavar="NAMES",
    help="PyG's layers that are tuned with the same budget, with commas: mlp, gcn, gat, sage, "
    "dir-gcn; or none. Default: mlp,gcn,gat, and dir-gcn on a directed graph.",
)
@click.option(
    "--term",
    "terms",
    multiple=True,
    metavar="FAMILY",
    help="A family that may be in a basis beside what the search draws by itself, such as "
    '"diffusion(ppr, alpha=0.1)", or one of --import; may be repeated.',
)
@click.option("--seeds", type=int, help="Seeds of a trial, each with its own split; default 3.")
@click.option(
    "--test-seeds",
    type=int,
    help="Seeds on which finalists are validated and winners tested; default 10.",
)
@click.option("--finalists", type=int, help="Best trials validated on all seeds; default 5.")
@click.option("--seed", type=int, help="Seed of what is drawn; default 0.")
@click.option("--max-depth", type=int, help="Most convolutions; default 4.")
@click.option("--max-hidden", type=int, help="Most channels between them; default 128.")
@click.option("--epochs", type=int, help="Largest number of epochs of a seed.")
@click.option("--patience", type=int, help="Epochs of early stopping; see outerconv train.")
@click.option("--metric", help="accuracy, auroc or f1: what is searched for, on validation nodes.")
@click.option("--select", help="The epoch that counts: by validation loss, or metric.")
@click.option("--class-weights", help="balanced or none; see outerconv train.")
@click.option(
    "--normalize-features/--no-normalize-features",
    default=None,
    help="Divide each row of features by its sum.",
)
@click.option("--split", help="The split protocol; see outerconv train.")
@click.option("--device", help="auto, cpu, cuda, cuda:1 or mps.")
@click.option("--backend", help="Kernel backend; see outerconv backends.")
@click.option("--root", help=f"Folder of the data; default {ROOT_VARIABLE}, else a cache folder.")
@click.option("--out", help="Folder of the search; default runs/search-<dataset>-<number>.")
@click.option("--resume", is_flag=True, help="Go on with the search in --out.")
@imports
def search(**options: Any) -> int:
    """Search for a basis, and a model around it, on validation data alone.

    Draws stacks of terms (identity, neighbours up to some steps, high-pass, attention; along the
    edges and against them; those of --term), depth, width, skips, norms, dropout, learning rate,
    weight decay and whether rows of features are normalised, with Optuna. Layers of PyG are tuned
    with the same budget. The test nodes are read once, at the end, for the winners. Writes tables,
    an HTML page, and winner.toml for outerconv train --config.
    """
    from ..search.command import search as run

    return run(**options)
