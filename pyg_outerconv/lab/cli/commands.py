"""The commands: what they take, and what they print where that is a list.

Each declares its words here, and imports what it runs when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import RefusedValue
from ...files import data_root
from ..bench.command import Options
from ..fields import flag_of, setting
from ..search.plan import SHARED, Plan
from ..settings import Settings
from ..source import Source, moved
from .options import RUN, Imports, Place, Some, command

if TYPE_CHECKING:
    from ..data import Entry

OWN_GRAPH = (Some(Source), Some(Settings, ("undirected",)))
"""A graph of one's own, which ``data.source_of`` reads."""

# Training and what comes after it -----------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """Where a run or a search is, and whether it goes on."""

    dataset: str | None = setting(None, argument=True)
    out: str | None = setting(None, "Its folder", said="below runs, with a number")
    resume: bool = setting(False, "Go on with what is in --out", said="")


@dataclass(frozen=True)
class Training:
    """What ``outerconv train`` takes beside settings."""

    directed: bool = setting(
        False,
        "Use the family twice: on the edges, and on the reversed edges",
        said="",
        section="Model",
    )
    tensorboard: bool = setting(
        False, "Write curves for TensorBoard into the run folder", said="", section=RUN
    )
    config: str | None = setting(
        None,
        "A file of settings, such as winner.toml of outerconv search; options given beside it take "
        "the place of its own",
        metavar="TOML",
    )


@command(
    *OWN_GRAPH,
    Some(Settings, apart=("undirected",)),
    Training,
    Run,
    Place,
    Imports,
    work="train.command:train",
)
def train() -> None:
    """Train classifiers of nodes or of graphs; report mean ± deviation over seeds.

    DATASET is a name that 'outerconv datasets' lists; default: Cora, which comes with the package.
    For a graph of your own, use --edges, --features and --labels, or --data, instead. Some data
    sets have other defaults than those named here: 'outerconv datasets NAME' lists them.
    """


@dataclass(frozen=True)
class Prediction:
    """What ``outerconv predict`` takes."""

    run_dir: str = setting(argument=True)
    out: str | None = setting(
        None,
        "A file, or - for standard output",
        said="RUN_DIR/predictions.csv",
    )
    root: str | None = setting(
        None, "Folder of the data", said="where the run found it, else as outerconv train has it"
    )
    device: str | None = setting(None, "Device", said="that of the run")


@command(*OWN_GRAPH, Prediction, Imports, work="train.command:predict")
def predict() -> None:
    """Write the classes that the checkpoint of a run predicts, as CSV.

    RUN_DIR is a run folder of 'outerconv train'. A graph of your own is read from where the run
    found it or, if it was moved, from where the options say.
    """


@dataclass(frozen=True)
class Searching:
    """Where searches are, whether they go on, and who trains."""

    datasets: tuple[str, ...] = setting((), argument=True, metavar="DATASET")
    out: str | None = setting(None, "Its folder", said="below runs, with a number")
    resume: bool = setting(False, "Go on with what is in --out", said="")
    jobs: int = setting(
        0, "Processes that train", at_least=0, at_most=1024, said="one a core, or one on a GPU"
    )


@command(
    *OWN_GRAPH,
    Some(Plan),
    Some(Settings, SHARED),
    Searching,
    Place,
    Imports,
    work="search.command:search",
)
def search() -> None:
    """Search for a basis, and a model around it, on validation data alone.

    First trials are published models (--portfolio). Others draw stacks of terms (identity,
    neighbours up to some steps, high-pass, attention; along the edges and against them; those of
    --term), depth, width, skips, norms, dropout, learning rate, weight decay and whether rows of
    features are normalised, with Optuna. Each kind of model has as many trials, the best of all
    kinds are compared on seeds of their own, and one is the winner. The test nodes are read once,
    at the end. Writes tables, an HTML page, and winner.toml for outerconv train --config. Several
    DATASETs are searched one after another.
    """


@dataclass(frozen=True)
class Reproduction:
    """What ``outerconv reproduce`` takes."""

    table: str | None = setting(None, argument=True)
    data: tuple[str, ...] = setting((), "Only this data set", metavar="NAME")
    rows: tuple[str, ...] = setting((), "Only this row", option="row", metavar="NAME")
    seeds: int | None = setting(
        None, "Number of seeds; needs a folder of its own", said="that of the table"
    )
    out: str | None = setting(None, "Folder of the runs and results", said="runs/tables/<table>")
    jobs: int = setting(
        0,
        "Processes that train, of a table of searches",
        at_least=0,
        at_most=1024,
        said="one a core, or one on a GPU",
    )


@command(Reproduction, Some(Settings, ("device",)), Place, Imports, work="reproduce.run:reproduce")
def reproduce() -> None:
    """Run a table of results; write it beside the published figures.

    TABLE is a name, or a TOML file; without one, list the tables that come with the package. What
    is finished is read, and what is not goes on: run the same command again after an interruption.
    """


@dataclass(frozen=True)
class Comparison:
    """What ``outerconv compare`` takes."""

    runs: tuple[str, ...] = setting(argument=True)
    out: str | None = setting(
        None,
        "A folder for compare.md, compare.json and compare.png; without it nothing is written",
    )
    against: str = setting(
        "first",
        "What the other models of a table are compared with",
        words={"first": "the first one", "best": "the best on validation nodes"},
    )


@command(Comparison, work="report.compare:compare_runs")
def compare() -> None:
    """Compare RUNS of outerconv train: means, and differences paired by seed."""


# Pictures -----------------------------------------------------------------------------------------

_OF_A_BASIS = ("family", "shape", "dataset", "kind", "offset", "cell", "reach", "channels")


@dataclass(frozen=True)
class Picture:
    """What ``outerconv show`` takes."""

    run: str | None = setting(None, argument=True)
    family: str | None = setting(
        None,
        'A family with its options, such as "grid((3, 3), padding=1)"; see outerconv families',
        said="grid with --shape, else gcn",
    )
    shape: str | None = setting(
        None, "Draw on a grid with this number of cells per axis", metavar="8x10"
    )
    dataset: str | None = setting(
        None,
        "Draw on a graph that 'outerconv datasets' lists, where there is no --shape",
        said="KarateClub",
    )
    root: str | None = setting(None, "Folder of the data", said="as outerconv train has it")
    kind: str | None = setting(
        None,
        "matrices, shift, flattenings, receptive-field or graph; default matrices (one panel for "
        "each A_k) on a grid, graph (one panel for each A_k, a part of a large graph) on a graph",
    )
    offset: tuple[str, ...] = setting((), "A shift d of the family grid", metavar="2,4")
    cell: str | None = setting(
        None,
        "The output of a receptive field, default the first; the input that the arrows of a shift "
        "follow, default the middle",
        metavar="3,4",
    )
    node: tuple[str, ...] = setting(
        (),
        "On a grid, the number of the cell. On a graph, the node around which a part is drawn. Of "
        "a run, the node whose neighbours are drawn, by its name if it has one. Graphs and runs "
        "take several",
    )
    reach: int | None = setting(None, "Number of layers of a receptive field", said="1")
    label: tuple[int, ...] = setting((), "Draw A_k for this k")
    channels: str | None = setting(None, "P and Q of the random Θ of flattenings", metavar="2x3")
    layout: str | None = setting(None, "Layout of a graph: spring or circle", said="spring")
    seed: int | None = setting(
        None,
        "Seed of the random Θ and of the spring layout",
        at_least=0,
        below=2**32,
        said="0",
    )
    out: str | None = setting(
        None,
        "A PNG or SVG file, by its extension, default <family>-<kind>.svg; of a run a folder, "
        "default RUN/show",
    )


@command(*OWN_GRAPH, Picture, Imports)
def show(own: dict[str, Any], both_ways: dict[str, Any], asked: Picture) -> int:
    """Draw a basis: matrices, shifts, a receptive field, a graph. Or show RUN, a run folder of
    outerconv train: contributions of labels, learned values, confusion matrix, learning curves and
    basis, as pictures, numbers and a page. A graph of your own is read from where the run found it
    or, if it was moved, from where the options say.
    """
    if asked.run is None:
        if graph := [*own, *both_ways]:
            flag = "--" + graph[0].replace("_", "-")
            raise click.UsageError(f"{flag} is that of a RUN: expected RUN too, got none")
        for node in asked.node:
            if not node.removeprefix("-").isdecimal():
                rule = "nodes of the picture of a basis are numbers"
                raise click.BadParameter(f"{rule}: expected an integer, got {node!r}")
        from ..show import draw

        return draw(asked)
    for name in _OF_A_BASIS:
        if getattr(asked, name):
            raise click.UsageError(
                f"--{name} is of the picture of a basis: expected RUN alone, or no RUN, got both",
                click.get_current_context(),
            )
    from ...plot import check_matplotlib

    check_matplotlib()
    from ..report.show_run import show_run

    return show_run(asked, moved(own, both_ways))


# Measuring, checking, generating ------------------------------------------------------------------


@command(Options, work="bench.command:bench")
def bench() -> None:
    """Compare the times of layers with those of dense forms and of other libraries.

    Writes bench.json and one HTML page, bench.html.
    """


@dataclass(frozen=True)
class Check:
    """What ``outerconv check`` takes."""

    device: str = setting("auto", "auto (CUDA where there is a GPU), cpu, cuda or cuda:1")


@command(Check, work="check:check")
def check() -> None:
    """Compare what this machine computes with the backend reference in float64.

    Every primitive of every backend that is here, in every type, and a few layers: value, first and
    second derivatives, forward mode, and whether the same bits come twice. Takes about a minute.
    The exit code is 1 if something differs by more than rounding; each failure is a line to report.
    """


@dataclass(frozen=True)
class Generated:
    """What ``outerconv generate`` takes."""

    name: str = setting(argument=True)
    out: str = setting(argument=True)
    nodes: int = setting(10_000, "Number of nodes")
    edges: int = setting(100_000, "Number of edges")
    features: int = setting(64, "Features of a node")
    classes: int = setting(16, "Number of classes")
    seed: int = setting(0, "Seed of all random numbers")


@command(Generated)
def generate(asked: Generated) -> int:
    """Write a graph of any size into a folder, chunk by chunk.

    NAME is 'blocks', a degree-corrected stochastic block model in which the features of a
    node tell little about its class, and their mean over its neighbours much. OUT is a new folder;
    see docs/scale.md for its format.
    """
    from ...scale.generate import generate as work

    sizes = dict(vars(asked))
    work(sizes.pop("out"), **sizes)
    click.echo(f"graph: {asked.out}")
    return 0


# Lists --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listed:
    """What is listed: one by its name, or all."""

    name: str | None = setting(None, argument=True)


@dataclass(frozen=True)
class Verified:
    """Whether files are compared."""

    verify: bool = setting(False, "Compare the files with their checksums", said="")


@command(Listed, Place, Verified)
def datasets(listed: Listed, place: Place, verified: Verified) -> int:
    """List the datasets that can be read, and where they are. With NAME, print the source, licence
    and files of one, and the options that outerconv train uses for it by default.
    """
    from .. import data

    name, folder = listed.name, data_root(place.root)
    names = list(data.registry()) if name is None else [data.entry(name).name]
    if verified.verify:
        return _verify(folder, names)
    if name is not None:
        print(_columns(_facts(data.entry(name), folder)))
        return 0
    rows: list[tuple[str, ...]] = [
        ("name", "graphs", "nodes", "edges", "features", "classes", "relations", "splits", "here")
    ]
    for name, entry in data.registry().items():
        counts = [str(entry.counts.get(key) or "-") for key in rows[0][1:7]]
        rows.append((name, *counts, ", ".join(entry.splits), _place(entry, folder)))
    print(f"data root: {folder}\n\n{_columns(rows)}")
    return 0


def _place(entry: Entry, root: Path) -> str:
    """Where a dataset is read from: its folder below the root, or the copy in the package."""
    splits: dict[str, list[str]] = {}
    for split in entry.splits:
        reading = entry.for_split(split)
        there = reading.folder if reading.folder and not reading.missing(root) else None
        embedded = reading.folder is None or reading.embedded
        if place := there or (embedded and "embedded"):
            splits.setdefault(place, []).append(split)
    if [*splits.values()] == [[*entry.splits]]:
        return next(iter(splits))
    return "; ".join(f"{place}, for {', '.join(names)}" for place, names in splits.items()) or "no"


def _facts(entry: Entry, root: Path) -> list[tuple[str, str]]:
    """What the registry has of one dataset, line by line."""
    counts = (f"{number} {what}" for what, number in entry.counts.items() if number)
    facts = [
        ("name", f"{entry.name}: {entry.about}"),
        ("holds", ", ".join(counts)),
        ("source", ", ".join(entry.source)),
        ("licence", entry.licence),
        ("here", _place(entry, root)),
        ("folder", str(entry.home(root)) if entry.folder else "none"),
        ("files", ", ".join(entry.files) or "none"),
        ("note", entry.note),
    ]
    for number, split in enumerate(entry.splits):
        options = (_option(*pair) for pair in entry.for_split(split).defaults.items())
        said = f"split {split}" + ("" if number else ", the default")
        facts.append((said, " ".join(options) or "defaults of outerconv train"))
    return [(title, fact) for title, fact in facts if fact]


def _option(setting: str, value: object) -> str:
    """A setting as the option of ``outerconv train`` that gives it."""
    (name,) = (flag_of(one) for one in fields(Settings) if one.name == setting)
    if isinstance(value, bool):
        return name if value else f"--no-{name[2:]}"
    return f"{name} {value}"


def _verify(root: Path, names: Sequence[str]) -> int:
    """Print the state of every file of some datasets."""
    from .. import data

    differ = []
    for name in names:
        entry, states = data.entry(name), data.verify(name, root)
        counts = {state: list(states.values()).count(state) for state in states.values()}
        summary = ", ".join(f"{number} {state}" for state, number in counts.items())
        print(f"{name}: {summary or 'embedded'}{f' ({entry.note})' if entry.note else ''}")
        for file, state in states.items():
            if state in ("differs", "cannot be read"):
                differ.append(f"{entry.home(root) / file}")
    if differ:
        rule = "files must have the sha256 of the registry"
        expected = "none that differs or cannot be read"
        raise RefusedValue(rule, expected, ", ".join(differ))
    return 0


@command(Listed)
def explain(listed: Listed) -> int:
    """List PyG's convolutions with their equations, or explain one as Y = Σ_k A_kᵀ X Θ_k.

    With NAME, such as GATv2Conv: its matrices A_k and Θ_k by the names that PyG gives to its
    parameters, and what it computes beside the sum.
    """
    from ...pyg import explain as explained
    from ...pyg.table import entries, example

    if listed.name is None:
        print(_columns([(entry.name, entry.kind, entry.text) for entry in entries()]))
    else:
        print(explained(example(listed.name)))
    return 0


@command(Listed, Imports)
def families(listed: Listed) -> int:
    """List the families with their equations, or describe one.

    With NAME: its equation, its options with types, defaults and meaning, and an example.
    """
    from ..family_options import describe_family, list_families

    if listed.name is None:
        print(_columns(list_families()))
        print(
            "\nOptions are written as in Python: --family \"walk(3, norm='sym')\". Families stand "
            'in families:\n--family "stack(gcn, walk(2))". Meaning of the options of one: '
            "outerconv families walk"
        )
    else:
        print(describe_family(listed.name))
    return 0


@command()
def backends() -> int:
    """List the backends that compute here, and why the others do not."""
    from ...kernels.dispatch import backends as table

    print(table())
    return 0


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns; the last one is not padded."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )
