"""The commands that do something; those that print lists are in ``lists.py``.

Each declares its words here, and imports what it runs when it runs.
"""

from __future__ import annotations

from typing import Any

import click

from ..bench.command import Options
from ..search.plan import SHARED, Plan
from ..train.settings import Settings
from .options import IMPORTS, OWN_GRAPH, ROOT, Decorator, Sectioned, option, settings_of

# Training and what comes after it -----------------------------------------------------------------


@click.command(cls=Sectioned)
@click.argument("dataset", required=False)
@OWN_GRAPH
@settings_of(Settings)
@option(
    "--directed",
    is_flag=True,
    section="Model",
    help="Use the family twice: on the edges, and on the reversed edges.",
)
@option("--tensorboard", is_flag=True, help="Write curves for TensorBoard into the run folder.")
@option(
    "--config",
    metavar="TOML",
    help="A file of settings, such as winner.toml of outerconv search; options given beside it "
    "take the place of its own.",
)
@ROOT
@option("--out", help="Run folder; default runs/<dataset>-<family>-<number>.")
@option("--resume", is_flag=True, help="Go on with the run in --out.")
@IMPORTS
def train(**options: Any) -> int:
    """Train classifiers of nodes or of graphs; report mean ± deviation over seeds.

    DATASET is a name that 'outerconv datasets' lists; default: Cora, which comes with the package.
    For a graph of your own, use --edges, --features and --labels, or --data, instead. Some data
    sets have other defaults than those named here: 'outerconv datasets NAME' lists them.
    """
    from ..train.command import train as run

    return run(**options)


@click.command(cls=Sectioned)
@click.argument("run_dir")
@OWN_GRAPH
@option("--out", help="A file, or - for standard output; default RUN_DIR/predictions.csv.")
@option("--root", help="Folder of the data; default: where the run found it.")
@option("--device", help="Default: the device of the run.")
@IMPORTS
def predict(**options: Any) -> int:
    """Write the classes that the checkpoint of a run predicts, as CSV.

    RUN_DIR is a run folder of 'outerconv train'. A graph of your own is read from where the run
    found it or, if it was moved, from where the options say.
    """
    from ..train.command import write_predictions

    return write_predictions(**options)


@click.command(cls=Sectioned)
@click.argument("dataset", required=False)
@OWN_GRAPH
@option(
    "--peers",
    metavar="NAMES",
    section="Search",
    help="PyG's layers that are tuned with the same budget, with commas: mlp, gcn, gat, sage, "
    "dir-gcn; or none. Default: mlp,gcn,gat, and dir-gcn on a directed graph.",
)
@settings_of(Plan)
@settings_of(Settings, SHARED)
@ROOT
@option("--out", help="Folder of the search; default runs/search-<dataset>-<number>.")
@option("--resume", is_flag=True, help="Go on with the search in --out.")
@IMPORTS
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


@click.command()
@click.argument("table", required=False)
@option("--data", multiple=True, help="Only this data set; may be repeated.")
@option("--row", "rows", multiple=True, help="Only this row; may be repeated.")
@option(
    "--seeds",
    type=int,
    help="Number of seeds, instead of that of the table; needs a folder of its own.",
)
@settings_of(Settings, ["device"])
@ROOT
@option("--out", help="Folder of the runs and results; default runs/tables/<table>.")
@IMPORTS
def reproduce(**options: Any) -> int:
    """Run a table of results; write it beside the published figures.

    TABLE is a name, or a TOML file; without one, list the tables that come with the package. What
    is finished is read, and what is not goes on: run the same command again after an interruption.
    """
    from ..reproduce.run import reproduce as run

    return run(**options)


@click.command()
@click.argument("runs", nargs=-1, required=True)
@option(
    "--out",
    help="A folder for compare.md, compare.json and compare.png; without it nothing is written.",
)
@option(
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


# Pictures -----------------------------------------------------------------------------------------

_OF_A_BASIS = ("family", "shape", "dataset", "kind", "offsets", "cell", "reach", "channels")


@click.command()
@click.argument("run", required=False)
@option(
    "--family",
    help='A family with its options, such as "grid((3, 3), padding=1)"; see '
    "outerconv families; default grid with --shape, else gcn.",
)
@option("--shape", metavar="8x10", help="Draw on a grid with this number of cells per axis.")
@option(
    "--dataset",
    help="Draw on a graph that 'outerconv datasets' lists; default "
    "KarateClub, where there is no --shape.",
)
@ROOT
@option(
    "--kind",
    help="matrices, shift, flattenings, receptive-field or graph; default "
    "matrices (one panel for each A_k) on a grid, graph (one panel for each A_k, a part of a "
    "large graph) on a graph.",
)
@option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="2,4",
    help="A shift d of the family grid; may be repeated.",
)
@option(
    "--cell",
    metavar="3,4",
    help="The output of a receptive field, default the first; "
    "the input that the arrows of a shift follow, default the middle.",
)
@option(
    "--node",
    "nodes",
    multiple=True,
    help="On a grid, the number of the cell. On a graph, the node around which a part is drawn. Of "
    "a run, the node whose neighbours are drawn, by its name if it has one. May be repeated for "
    "graphs and runs.",
)
@option("--reach", type=int, help="Number of layers of a receptive field; default 1.")
@option("--label", "labels", type=int, multiple=True, help="Draw A_k for this k; may be repeated.")
@option("--channels", metavar="2x3", help="P and Q of the random Θ of flattenings.")
@option("--layout", help="Layout of a graph: spring (the default) or circle.")
@option("--seed", type=int, help="Seed of the random Θ and of the spring layout; default 0.")
@option(
    "--out",
    help="A PNG or SVG file, by its extension, default <family>-<kind>.svg; of a run a folder, "
    "default RUN/show.",
)
@option("--data", help="Where the graph of RUN is now, if it is your own and was moved.")
@IMPORTS
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


# Measuring, checking, generating ------------------------------------------------------------------


@click.command()
@settings_of(Options)
@option("--list", "only_list", is_flag=True, help="Only list the cases.")
def bench(only_list: bool, **options: Any) -> int:
    """Compare the times of layers with those of dense forms and of other libraries.

    Writes bench.json and one HTML page, bench.html.
    """
    from ..bench.command import list_cases, measure_cases

    given = {name: value for name, value in options.items() if value is not None}
    return (list_cases if only_list else measure_cases)(Options(**given))


@click.command()
@option("--device", default="auto", help="auto (CUDA where there is a GPU), cpu, cuda or cuda:1.")
def check(device: str) -> int:
    """Compare what this machine computes with the backend reference in float64.

    Every primitive of every backend that is here, in every type, and a few layers: value, first and
    second derivatives, forward mode, and whether the same bits come twice. Takes about a minute.
    The exit code is 1 if something differs by more than rounding; each failure is a line to report.
    """
    from ..check import check as run

    return run(device)


def _size(flag: str, default: int, help: str) -> Decorator:
    return option(flag, type=int, default=default, show_default=True, help=help)


@click.command()
@click.argument("name", metavar="NAME")
@click.argument("out", metavar="OUT")
@_size("--nodes", 10_000, "Number of nodes.")
@_size("--edges", 100_000, "Number of edges.")
@_size("--features", 64, "Features of a node.")
@_size("--classes", 16, "Number of classes.")
@_size("--seed", 0, "Seed of all random numbers.")
def generate(name: str, out: str, **sizes: Any) -> int:
    """Write a graph of any size into a folder, chunk by chunk.

    NAME is 'blocks', a degree-corrected stochastic block model in which the features of a
    node tell little about its class, and their mean over its neighbours much. OUT is a new folder;
    see docs/scale.md for its format.
    """
    from ...scale.generate import generate as run

    run(out, name, **sizes)
    click.echo(f"graph: {out}")
    return 0
