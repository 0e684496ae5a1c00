"""Short searches on the karate club, and what two of them have in common."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from pyg_outerconv.lab import data
from pyg_outerconv.lab.search.plan import Plan
from pyg_outerconv.lab.search.search import Search, SearchFolder
from pyg_outerconv.lab.search.space import OURS
from pyg_outerconv.lab.train import resolve

LINE = ["KarateClub", "--trials", "4", "--final-seeds", "2", "--test-seeds", "2"]
LINE += ["--finalists", "2", "--epochs", "6", "--max-depth", "2", "--max-hidden", "16"]
LINE += ["--portfolio", "none", "--jobs", "1"]
CLOCKS = {"seconds", "wall"}


def plan(**changed: Any) -> Plan:
    entry = data.entry("KarateClub")
    named = {"family": "identity", "split": entry.splits[0], "epochs": 6, "device": "cpu"}
    values = {"trials": 4, "final_seeds": 2, "test_seeds": 2, "finalists": 2, "portfolio": "mlp"}
    values |= {"max_depth": 2, "max_hidden": 16} | changed
    return Plan(resolve(entry, {**named, "seeds": values["test_seeds"]}), **values)


def searched(folder: Any, chosen: Plan | None = None, jobs: int = 1) -> Search:
    """A search that ran, or went on, to its end."""
    with closing(Search(chosen, folder, log=lambda line: None, jobs=jobs)) as search:
        search.run()
    return search


def timeless(value: Any) -> Any:
    """The same without what a clock has measured."""
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if key not in CLOCKS}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def numbers(folder: Any) -> tuple[Any, ...]:
    """All that a search found: trials, finals, winner."""
    trials, finals = found_in(folder)
    return timeless(trials), timeless(finals), (folder / "winner.toml").read_text()


def found_in(folder: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The trials of each kind, and what came after them, as the storage has them now."""
    home = SearchFolder(folder)
    names = names_in(home)
    studies = home.studies(home.plan, names)
    stages = ("final", "winner", "without", "seen", "tests")
    finals = {what: studies.kept(OURS, what, None) for what in stages}
    finals["rungs"] = {name: studies.kept(name, "rungs", None) for name in names}
    return {name: studies.finished(name) for name in names}, finals


def names_in(home: SearchFolder) -> list[str]:
    """The kinds of a search whose portfolio is named."""
    asked = home.plan.portfolio
    return [OURS, *([] if asked == "none" else asked.split(","))]
