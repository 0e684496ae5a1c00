"""The command ``outerconv search``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RefusedValue
from ...files import STOPPED, as_path, load_json
from ...kernels import get_backend
from .. import data
from ..fields import flag_of, require_modules
from ..own_code import flags_for
from ..pages import markdown_table, text_table
from ..train import Interrupted, Settings, check_protocol, next_folder
from ..train.experiment import Console
from ..train.folder import CONFIG, LOCK, alone_in, write_files
from ..train.model import new_settings
from .plan import Plan

if TYPE_CHECKING:
    from ..cli.commands import Searching
    from ..cli.options import Place
    from .report import Report
    from .search import Search

EXTRAS = ("optuna", "sqlalchemy", "filelock", "jinja2", "matplotlib")
CONSOLE = Console("search")


def require_extras() -> None:
    """Refuse to search without what searches need."""
    require_modules("outerconv search needs", EXTRAS, "'pyg_outerconv[search]'")


def search(
    own: dict[str, Any],
    both_ways: dict[str, Any],
    chosen: dict[str, Any],
    settings: dict[str, Any],
    asked: Searching,
    place: Place,
) -> int:
    """Run ``outerconv search``, by a plan as it was chosen, and return its exit code."""
    require_extras()
    from .search import Search, SearchFolder

    source = data.source_of(own, both_ways if own else {})
    settings |= {} if own else both_ways
    if asked.resume:
        _check_resumed(asked.datasets, chosen | settings, asked.out)
        if (as_path(str(asked.out), "--out") / SEVERAL).exists():
            return _several(None, asked, place)
        folder, plan = Path(str(asked.out)), None
        graph = SearchFolder(folder).own_graph(source, CONSOLE.say)
        return _run(Search(plan, folder, place.root, CONSOLE.say, graph, asked.jobs))
    if len(asked.datasets) > 1 and source is None:
        begun = {"datasets": list(asked.datasets), "plan": chosen, "settings": settings}
        return _several(begun, asked, place)
    with ExitStack() as exit_stack:
        graph = _read(asked.datasets, source, settings, place.root)
        plan = _new_plan(graph, chosen, settings)
        stem = f"search-{plan.base.dataset}".lower()
        folder = (
            as_path(asked.out, "--out")
            if asked.out
            else next_folder(Path("runs"), stem, exit_stack)
        )
        return _run(Search(plan, folder, place.root, CONSOLE.say, graph, asked.jobs))


def _run(search_run: Search) -> int:
    """Run a search, and say what it came to; return the exit code."""
    folder = search_run.folder.path
    try:
        report = search_run.run()
    except Interrupted as interrupted:
        return _interrupted(interrupted, folder, search_run.plan.base.imports)
    finally:
        search_run.close()
    CONSOLE.say(f"\n{text_table(report.result_rows())}\n")
    for line in [*report.verdict(), *report.findings()]:
        CONSOLE.say(line)
    CONSOLE.say(f"\npage: {folder / 'search.html'}")
    command = ["outerconv", "train", "--config", str(folder / "winner.toml")]
    CONSOLE.say(f"train it: {shlex.join(command + flags_for(search_run.plan.base.imports))}")
    return 0


def _interrupted(interrupted: Interrupted, folder: Path, imports: str) -> int:
    command = ["outerconv", "search", "--resume", "--out", str(folder), *flags_for(imports)]
    CONSOLE.complain(f"{interrupted}; go on by: {shlex.join(command)}")
    return STOPPED + interrupted.number


# Several data sets --------------------------------------------------------------------------------

SEVERAL, TABLE = "searches.json", "searches.md"


def _several(begun: dict[str, Any] | None, asked: Searching, place: Place) -> int:
    """Search on several data sets, one after another, each in a folder below one; or go on."""
    folder = as_path(asked.out, "--out") if asked.out else next_folder(Path("runs"), "searches")
    with alone_in(folder, begin=lambda: write_files(folder, {})):
        if begun is not None:
            if any(path.name != LOCK for path in folder.iterdir()):
                rule = "searches need a folder of their own"
                raise RefusedValue(rule, "a new or empty folder, or --resume", folder)
            chosen, asked_of = {**begun["plan"], "terms": ()}, begun["settings"]
            entries = map(data.entry, begun["datasets"])  # whose plans are refused before all
            plans = [plan_of(entry, chosen, asked_of) for entry in entries]
            names = [plan.base.dataset for plan in plans]
            if len(set(names)) < len(names):
                raise RefusedValue("a data set is searched once", "different data sets", names)
            write_files(folder, {SEVERAL: {**begun, "datasets": names}})
        kept = begun or load_json(folder / SEVERAL)
        reports: dict[str, Report] = {}
        for name in kept["datasets"]:
            CONSOLE.say(f"\n{name} ({len(reports) + 1} of {len(kept['datasets'])})")
            with closing(_one_of(name, kept, folder / name.lower(), asked, place)) as search_run:
                try:
                    reports[name] = search_run.run()
                except Interrupted as interrupted:
                    return _interrupted(interrupted, folder, search_run.plan.base.imports)
            write_files(folder, {TABLE: markdown_table(summary(reports), "---").encode()})
    CONSOLE.say(f"\n{text_table(summary(reports))}\n\ntable: {folder / TABLE}")
    return 0


def _one_of(
    name: str, kept: dict[str, Any], folder: Path, asked: Searching, place: Place
) -> Search:
    from .search import Search

    if (folder / CONFIG).exists():
        return Search(None, folder, place.root, CONSOLE.say, jobs=asked.jobs)
    graph = _read((name,), None, kept["settings"], place.root)
    plan = _new_plan(graph, dict(kept["plan"]), kept["settings"])
    return Search(plan, folder, place.root, CONSOLE.say, graph, asked.jobs)


def summary(reports: dict[str, Report]) -> list[tuple[str, ...]]:
    """A row for each data set: the winner, its test, and the best of the other kinds."""
    rows: list[tuple[str, ...]] = [
        ("data", "winner", "family", "test %", "best other", "winner − it, points")
    ]
    for name, report in reports.items():
        (_, own, *others) = report.result_rows()
        other = (others[0][0], others[0][3]) if others else ("", "")
        family = report.winner_settings()["family"]
        rows.append((name, report.titles[report.first[0]], family, own[2], *other))
    return rows


# What is asked ------------------------------------------------------------------------------------


def _check_resumed(datasets: Sequence[str], asked: dict[str, Any], out: str | None) -> None:
    if not out:
        raise RefusedValue("--resume needs a search to go on with", "--out DIR", "none")
    options = (one for kind in (Settings, Plan) for one in fields(kind))
    flags = ["DATASET"] if datasets else []
    flags += [flag_of(one) for one in options if one.metadata and one.name in asked]
    if flags:
        raise RefusedValue(
            "--resume goes on with the plan of the search", "no other options", ", ".join(flags)
        )


def _read(
    names: Sequence[str], source: data.Source | None, asked: dict[str, Any], root: str | None
) -> data.Dataset:
    """The data of a new search, as its split protocol reads it."""
    if (not names) == (source is None):
        wanted = "outerconv search DATASET, or --edges and --labels, or --data"
        got = f"{', '.join(names) or None} and {source}"
        raise RefusedValue("a search needs data", wanted, got)
    if source is not None:
        graph = data.load_own(source, CONSOLE.say)
        graph.require_memory("a search", "a graph in other files, or outerconv train")
        return graph
    entry = data.entry(names[0])
    protocol = check_protocol(entry, asked.get("split") or entry.splits[0])
    both_ways = asked.get("undirected", False)
    return data.load(entry.name, root, protocol, CONSOLE.say, both_ways)


def _new_plan(graph: data.Dataset, chosen: dict[str, Any], asked: dict[str, Any]) -> Plan:
    """The plan of a new search."""
    from .space import read_terms

    terms = read_terms(chosen.pop("terms", ()), graph.num_relations)
    return plan_of(graph.entry, {**chosen, "terms": terms}, asked)


def plan_of(entry: data.Entry, chosen: dict[str, Any], asked: dict[str, Any]) -> Plan:
    """A plan for a data set: what was chosen of it, and settings that all trials share."""
    from .space import check_portfolio

    if asked.get("backend", "auto") != "auto":
        get_backend(asked["backend"])
    base = new_settings(entry, {**asked, "family": "identity"})
    base = replace(base, seeds=chosen.get("test_seeds", 10))
    trials = {"trials": 0} if "budget" in chosen and "trials" not in chosen else {}
    check_portfolio(chosen.get("portfolio", "all"))
    return Plan(base, **{**trials, **chosen})
