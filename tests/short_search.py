"""Short searches on the karate club, and what two of them have in common."""

from __future__ import annotations

from typing import Any

from pyg_outerconv.lab import data
from pyg_outerconv.lab.search.contestants import contestants
from pyg_outerconv.lab.search.plan import Plan
from pyg_outerconv.lab.search.search import Search, SearchFolder
from pyg_outerconv.lab.train import resolve

LINE = ["KarateClub", "--trials", "5", "--seeds", "1", "--test-seeds", "2", "--finalists", "2"]
LINE += ["--epochs", "6", "--max-depth", "2", "--max-hidden", "16", "--peers", "none"]
CLOCKS = {"seconds", "wall"}


def plan(**changed: Any) -> Plan:
    entry = data.entry("KarateClub")
    named = {"family": "identity", "split": entry.splits[0], "epochs": 6, "device": "cpu"}
    values = {"trials": 5, "seeds": 1, "test_seeds": 2, "finalists": 2, "peers": "mlp"}
    values |= {"max_depth": 2, "max_hidden": 16} | changed
    return Plan(resolve(entry, {**named, "seeds": values["test_seeds"]}), **values)


def searched(folder: Any, chosen: Plan | None = None) -> Search:
    """A search that ran, or went on, to its end."""
    found = Search(chosen, folder, log=lambda line: None)
    try:
        found.run()
    finally:
        found.close()
    return found


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
    """The trials of each contestant, and what came after them, as the storage has them now."""
    home = SearchFolder(folder)
    names = [one.name for one in contestants(home.plan.peers)]
    studies = home.studies(home.plan, names)
    stages = ("validation", "winner", "without", "labels", "tests")
    finals = {what: {name: studies.kept(name, what, None) for name in names} for what in stages}
    return {name: studies.finished(name) for name in names}, finals
