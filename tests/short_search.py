"""Short searches on the karate club, and what two of them have in common."""

from __future__ import annotations

from typing import Any

from pyg_outerconv import files
from pyg_outerconv.lab import data
from pyg_outerconv.lab.search.plan import Plan
from pyg_outerconv.lab.search.search import Search
from pyg_outerconv.lab.train import resolve

LINE = ["KarateClub", "--trials", "5", "--seeds", "1", "--test-seeds", "2", "--finalists", "2"]
LINE += ["--epochs", "6", "--max-depth", "2", "--max-hidden", "16", "--peers", "none"]
CLOCKS = {"seconds", "wall"}


def plan(**changed: Any) -> Plan:
    entry = data.entry("KarateClub")
    named = {"family": "identity", "split": entry.splits[0], "epochs": 6, "device": "cpu"}
    values = {"trials": 5, "seeds": 1, "test_seeds": 2, "finalists": 2, "peers": ("mlp",)}
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
    """All that a search found."""
    parts = [files.load_json(folder / name) for name in ("trials.json", "finals.json")]
    for part in parts:
        del part["checksum" if "checksum" in part else "config"]
    return (*map(timeless, parts), (folder / "winner.toml").read_text())
