"""Pages in Markdown say names as text: whatever a file, a class or a row is called."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyg_outerconv.lab.report.compare import Comparison, Group, Model
from pyg_outerconv.lab.report.compare_page import markdown as page_of_comparison
from pyg_outerconv.lab.report.run_page import page as page_of_run
from pyg_outerconv.lab.reproduce.results import page as page_of_table
from pyg_outerconv.lab.reproduce.table import Published, Row, Table
from pyg_outerconv.lab.search.report import markdown as page_of_search
from pyg_outerconv.lab.train.results import code, plain

NAMES = [
    "<script>alert(1)</script>",
    "a & b",
    "&lt;b&gt;",
    "a | b",
    "two\nlines",
    "# a\n\n<b>",
    "`<i>` ``<u>``",
]


def of_run(name: str) -> str:
    label = {"layer": name, "name": name, "norm": 1.0, "metric": 0.5, "change": 0.1}
    seen = {"layer": name, "node": 3, "node_name": name, "picture": "a.png", "labels": [name]}
    seen |= {"num_sources": 1, "sources": [1], "source_names": [name], "values": [[0.5]]}
    settings = {"dataset": name, "family": name, "depth": 2, "hidden": 8, "split": name}
    scores = {"nodes": 1, "precision": 1.0, "recall": 1.0, "f1": None}
    facts: dict[str, Any] = {
        "model": name,
        "settings": {**settings, "metric": name},
        "seed": 0,
        "nodes": {"train": 1, "validation": 1, "test": 1},
        "metric": {"validation": 0.5, "test": 0.5},
        "recorded": 0.5,
        "contributions": [{**label, "loss_change": 0.1}],
        "neighbourhoods": [seen],
        "class_names": [name],
        "classes": [{"class": 0, **scores}],
        "basis": {"layer": name, "learned": True},
        "shown_nodes": [3],
        "node_names": [name],
    }
    return page_of_run(facts, ["basis.png", "contributions.png"])


def of_comparison(name: str) -> str:
    differing = {"family": name, "theta": name}
    model = Model(name, "outerconv", name, differing, 1, {0: 0.5}, [0.5], [1.0])
    group = Group(name, name, name, "", [model], 0, 0.5)
    return page_of_comparison(Comparison("first", [group], [f"{name} is alone"]), has_picture=True)


def of_table(name: str) -> str:
    published = {"Cora": Published(50.0, name)}
    row = Row(name, {}, {}, published, peer=True, note=name)
    table = Table(Path("t.toml"), name, {"Cora": {}}, (row,), seeds=1, about=name)
    peer = {"name": name, "seeds": 1, "mean": 60.0, "std": None, "seconds": 1.0, "gap": -10.0}
    record = {"dataset": "Cora", "row": name, "metric": name, "split": name, "seeds": 1}
    record |= {"mean": 50.0, "std": None, "seconds": 1.0, "majority": 20.0}
    record |= {"peer": {**peer, "gap_error": None}, "published": vars(published["Cora"])}
    record |= {"at_peer": False, "at_published": False}
    facts = {"versions": {"torch": "2", "torch_geometric": "2"}, "threads": 1, "machine": "a CPU"}
    return page_of_table(table, [record], {**facts, "command": f"outerconv reproduce {name}"})


def of_search(name: str) -> str:
    rows = ("result", "model", "marginal", "term", "label", "best")
    found: Any = {f"{kind}_rows": lambda: [("head", name), (name, "1")] for kind in rows}
    base = SimpleNamespace(dataset=name)
    report = SimpleNamespace(plan=SimpleNamespace(base=base), facts=name, metric="f1", **found)
    report.findings = lambda: [name]
    return page_of_search(report)  # type: ignore[arg-type]


PAGES: dict[str, Callable[[str], str]] = {
    "run": of_run,
    "comparison": of_comparison,
    "table": of_table,
    "search": of_search,
}


def columns(page: str) -> list[int]:
    """How many cells each row of a table has."""
    rows = [row for row in page.splitlines() if row.startswith("|")]
    return [len(re.findall(r"(?<!\\)\|", row)) for row in rows]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("page", PAGES)
def test_names_are_text_on_every_page(page: str, name: str) -> None:
    written, usual = PAGES[page](name), PAGES[page]("name")
    outside = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", written.replace(plain(name), "name"))
    assert "<" not in outside
    assert written.count("\n") == usual.count("\n")
    assert columns(written) == columns(usual)
    assert plain(name) in written or plain(name).replace("|", "\\|") in written


@pytest.mark.parametrize("text", ["a", "a`b", "``", "`a` <b>", "two\nlines", "<b>"])
def test_a_span_of_code_ends_where_its_text_ends(text: str) -> None:
    fence = re.match("`+", code(text))
    assert fence
    inside = code(text)[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside)
    assert inside.strip() == " ".join(text.split())
