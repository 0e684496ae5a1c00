"""The command ``outerconv search``."""

from __future__ import annotations

import importlib.util
import shlex
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RefusedValue
from ...files import STOPPED, as_path
from ...kernels import get_backend
from .. import data
from ..own_code import flags_for
from ..train import Interrupted, Settings, check_protocol, next_folder, resolve
from ..train.experiment import Console
from ..train.model import check_device
from ..train.results import text_table
from ..train.settings import flag_of
from .plan import Plan

if TYPE_CHECKING:
    from .search import Search

EXTRAS = ("optuna", "sqlalchemy", "filelock", "jinja2", "matplotlib")
CONSOLE = Console("search")


def search(
    dataset: str | None,
    peers: str | None,
    root: str | None,
    out: str | None,
    resume: bool,
    **options: Any,
) -> int:
    """Run ``outerconv search`` and return its exit code."""
    check_extras()
    from .finals import SearchFolder
    from .search import Search

    source = data.source_of(options)
    asked = {name: value for name, value in options.items() if value not in (None, ())}
    plan: Plan | None = None
    graph: data.Dataset | None = None
    if resume:
        _check_resumed(dataset, peers, asked, out)
        folder = Path(str(out))
        graph = SearchFolder(folder).own_graph(source, CONSOLE.say)
    else:
        if (dataset is None) == (source is None):
            wanted = "outerconv search DATASET, or --edges and --labels, or --data"
            raise RefusedValue("a search needs data", wanted, f"{dataset} and {source}")
        entry, graph = _read(dataset, source, asked, root)
        plan = _new_plan(entry, graph, peers, asked)
        stem = f"search-{plan.base.dataset}".lower()
    with ExitStack() as held:
        if not resume:
            folder = as_path(out, "--out") if out else next_folder(Path("runs"), stem, held)
        return _run(Search(plan, folder, root, CONSOLE.say, graph))


def _run(found: Search) -> int:
    """Run a search, and say what it came to; return the exit code."""
    folder = found.folder.path
    try:
        report = found.run()
    except Interrupted as interrupted:
        command = ["outerconv", "search", "--resume", "--out", str(folder)]
        command += flags_for(found.plan.base.imports)
        CONSOLE.complain(f"{interrupted}; go on by: {shlex.join(command)}")
        return STOPPED + interrupted.number
    finally:
        found.close()
    CONSOLE.say(
        f"\n{text_table(report.result_rows())}\n\nwinner: {report.winner_settings()['family']}"
    )
    for line in report.findings():
        CONSOLE.say(line)
    CONSOLE.say(f"\npage: {folder / 'search.html'}")
    command = ["outerconv", "train", "--config", str(folder / "winner.toml")]
    CONSOLE.say(f"train it: {shlex.join(command + flags_for(found.plan.base.imports))}")
    return 0


def check_extras() -> None:
    """Refuse to run where a module of the extra ``search`` is not installed."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise RefusedValue(
            f"outerconv search needs {' and '.join(missing)}, not installed here: "
            "pip install 'pyg_outerconv[search]'"
        )


def _check_resumed(
    dataset: str | None, peers: str | None, asked: dict[str, Any], out: str | None
) -> None:
    if not out:
        raise RefusedValue("--resume needs a search to go on with", "--out DIR", "none")
    given = [*(["DATASET"] if dataset else []), *(["--peers"] if peers else [])]
    options = [one for kind in (Settings, Plan) for one in fields(kind) if one.metadata.get("help")]
    flags = {one.name: flag_of(one) for one in options}
    given += [flags[name] for name in asked]
    if given:
        raise RefusedValue(
            "--resume goes on with the plan of the search", "no other options", ", ".join(given)
        )


def _read(
    name: str | None, source: data.Source | None, asked: dict[str, Any], root: str | None
) -> tuple[data.Entry, data.Dataset]:
    """The data of a new search, and its entry for the split protocol."""
    split = asked.get("split")
    if source is not None:
        graph = data.load_own(source, CONSOLE.say)
        graph.require_memory("a search", "a graph in other files, or outerconv train")
        protocol = check_protocol(graph.entry, split or graph.entry.splits[0])
        return graph.entry.for_split(protocol), graph
    entry = data.entry(str(name))
    protocol = check_protocol(entry, split or entry.splits[0])
    undirected = asked.get("undirected", False)
    return entry.for_split(protocol), data.load(entry.name, root, protocol, CONSOLE.say, undirected)


def _new_plan(
    entry: data.Entry, graph: data.Dataset, peers: str | None, asked: dict[str, Any]
) -> Plan:
    """The plan of a new search."""
    from .contestants import default_peers, without_labels
    from .space import read_terms

    chosen = {one.name: asked.pop(one.name) for one in fields(Plan) if one.name in asked}
    split = check_protocol(entry, asked.get("split") or entry.splits[0])
    if asked.get("backend", "auto") != "auto":
        get_backend(asked["backend"])
    device = check_device(asked.get("device", "auto"))
    named = {"dataset": entry.name, "family": "identity", "split": split, "device": device}
    base: Settings = resolve(entry, {**asked, **named})
    if peers is None:
        names = default_peers(without_labels(graph).is_directed)
    else:
        names = [] if peers == "none" else [name.strip() for name in peers.split(",")]
    if "budget" in chosen and "trials" not in chosen:
        chosen["trials"] = 0
    base = replace(base, seeds=chosen.get("test_seeds", 10))
    chosen["terms"] = read_terms(chosen.get("terms", ()), graph.num_relations)
    return Plan(base, tuple(names), **chosen)
