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
from ..fields import flag_of
from ..own_code import flags_for
from ..pages import text_table
from ..train import Interrupted, Settings, check_protocol, next_folder
from ..train.experiment import Console
from ..train.model import new_settings
from .plan import Plan

if TYPE_CHECKING:
    from ..cli.commands import Run
    from ..cli.options import Place
    from .search import Search

EXTRAS = ("optuna", "sqlalchemy", "filelock", "jinja2", "matplotlib")
CONSOLE = Console("search")


def search(
    own: dict[str, Any],
    both_ways: dict[str, Any],
    chosen: dict[str, Any],
    settings: dict[str, Any],
    run: Run,
    place: Place,
) -> int:
    """Run ``outerconv search``, by a plan as it was chosen, and return its exit code."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise RefusedValue(
            f"outerconv search needs {' and '.join(missing)}, not installed here: "
            "pip install 'pyg_outerconv[search]'"
        )
    from .search import Search, SearchFolder

    source = data.source_of(own, both_ways if own else {})
    settings |= {} if own else both_ways
    dataset, out, root = run.dataset, run.out, place.root
    with ExitStack() as held:
        if run.resume:
            _check_resumed(dataset, chosen | settings, out)
            folder, plan = Path(str(out)), None
            graph = SearchFolder(folder).own_graph(source, CONSOLE.say)
        else:
            graph = _read(dataset, source, settings, root)
            plan = _new_plan(graph, chosen, settings)
            stem = f"search-{plan.base.dataset}".lower()
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


def _check_resumed(dataset: str | None, asked: dict[str, Any], out: str | None) -> None:
    if not out:
        raise RefusedValue("--resume needs a search to go on with", "--out DIR", "none")
    options = (one for kind in (Settings, Plan) for one in fields(kind))
    given = ["DATASET"] if dataset else []
    given += [flag_of(one) for one in options if one.metadata and one.name in asked]
    if given:
        raise RefusedValue(
            "--resume goes on with the plan of the search", "no other options", ", ".join(given)
        )


def _read(
    name: str | None, source: data.Source | None, asked: dict[str, Any], root: str | None
) -> data.Dataset:
    """The data of a new search, as its split protocol reads it."""
    if (name is None) == (source is None):
        wanted = "outerconv search DATASET, or --edges and --labels, or --data"
        raise RefusedValue("a search needs data", wanted, f"{name} and {source}")
    if source is not None:
        graph = data.load_own(source, CONSOLE.say)
        graph.require_memory("a search", "a graph in other files, or outerconv train")
        return graph
    entry = data.entry(str(name))
    protocol = check_protocol(entry, asked.get("split") or entry.splits[0])
    both_ways = asked.get("undirected", False)
    return data.load(entry.name, root, protocol, CONSOLE.say, both_ways)


def _new_plan(graph: data.Dataset, chosen: dict[str, Any], asked: dict[str, Any]) -> Plan:
    """The plan of a new search."""
    from .contestants import default_peers, without_labels
    from .space import read_terms

    if asked.get("backend", "auto") != "auto":
        get_backend(asked["backend"])
    base = new_settings(graph.entry, {**asked, "family": "identity"})
    base = replace(base, seeds=chosen.get("test_seeds", 10))
    peers = default_peers(without_labels(graph).is_directed)
    trials = {"trials": 0} if "budget" in chosen else {}
    terms = read_terms(chosen.pop("terms", ()), graph.num_relations)
    return Plan(base, **{"peers": peers, **trials, **chosen, "terms": terms})
