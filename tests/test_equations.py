"""The page of equations names every option there is."""

import importlib
import re
from pathlib import Path

import pytest
from write_equations import NAMED, said, written

import pyg_outerconv.nn.attention
from pyg_outerconv.attention import NORMALISERS, SCORES
from pyg_outerconv.equations import ROWS, row
from pyg_outerconv.families import FAMILIES

PAGE = (Path(__file__).resolve().parents[1] / "EQUATIONS.md").read_text()
SUPPORTS = [kind.__name__ for kind in FAMILIES.values() if ".support." in kind.__module__]
HELPERS = {"FeedForward", "Skip", "GraphAttention", "TransformerConv"}
READY = [name for name in pyg_outerconv.nn.attention.__all__ if name not in HELPERS]
POSITIONS = [
    "ALiBi",
    "GraphPositions",
    "LearnedPositions",
    "RelativeBias",
    "Rotary",
    "SinusoidalPositions",
    "sinusoidal",
]


def test_every_option_has_a_row():
    begun = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| ")]
    named = {word for cell in begun for word in re.findall(r"[\w+-]+", cell)}
    assert {*SCORES, *NORMALISERS, *SUPPORTS, *READY, *POSITIONS} <= named, (
        "`python tests/write_equations.py` writes their rows"
    )


def test_tables_are_what_classes_and_functions_say():
    assert written(PAGE) == PAGE, "`python tests/write_equations.py` writes them"


def in_table(heading):
    """The classes that first cells of a table name."""
    (table,) = (part for part in PAGE.split("\n## ") if part.startswith(heading))
    cells = re.findall(r"^\| (.*?) \| ", table, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([A-Z]\w+)", cell)} - {"None"}


PLACES = re.findall(r"^- `([\w.]+)`: (.*)$", PAGE, re.MULTILINE)
NAMED_THERE = {name for _, things in PLACES for name in re.findall(r"`(\w+)`", things)}
THINGS = {
    "alignments": in_table("Alignment") - NAMED_THERE,
    "supports": SUPPORTS,
    "filters": in_table("Filters"),
    "positions": POSITIONS,
    "ready-made layers": {*READY, *in_table("Ready-made layers")} - NAMED_THERE,
    **{
        what: {kind.__name__ for kind in kinds.values() if "pyg_outerconv" in kind.__module__}
        for what, kinds in ((name.lower(), NAMED[name]) for name in ("Scores", "Normalisers"))
    },
}


def test_everything_is_imported_from_where_the_page_says():
    told = [thing for _, things in PLACES for thing in things.split(", ")]
    assert set(THINGS) <= set(told)
    for place, things in PLACES:
        module = importlib.import_module(place)
        for thing in things.split(", "):
            names = THINGS.get(thing, [thing.strip("`")])
            assert names
            missing = [name for name in names if not hasattr(module, name)]
            assert missing == [], f"{thing}: to be named in {place.replace('.', '/')}/__init__.py"


def test_every_table_is_written():
    tables = [part.partition("\n")[0] for part in PAGE.split("\n## ")[1:] if "\n|" in part]
    assert sorted(tables) == sorted(
        heading for heading in tables if any(heading.startswith(table) for table in said())
    )


@pytest.mark.parametrize("kinds", NAMED.values(), ids=NAMED)
def test_every_class_says_its_row(kinds):
    ours = [kind for kind in kinds.values() if kind.__module__.startswith("pyg_outerconv.")]
    assert ours
    for kind in ours:
        if kind.__name__ != "Part":  # an alignment
            formula, source = kind.page
            assert formula
            assert isinstance(source, str)


def test_a_new_class_gets_a_row_by_the_command(monkeypatch):
    class Cube:
        page = "x³", "nowhere"

    monkeypatch.setitem(NAMED["Feature maps"], "cube", Cube)
    assert "| `cube` | x³ | nowhere |\n" in written(PAGE)
    assert written(written(PAGE)) == written(PAGE)


@pytest.mark.parametrize("table", ["Alignment", "Positions", "Ready-made layers"])
def test_what_is_said_above_a_class_or_function_gets_a_row_by_the_command(monkeypatch, table):
    monkeypatch.setitem(ROWS, table, dict(ROWS[table]))

    @row(table, "where it is", "nowhere")
    def new_one(): ...

    assert "| `new_one` | where it is | nowhere |\n" in written(PAGE)
    del ROWS[table]["`new_one`"]
    assert written(written(PAGE)) == PAGE, "a row that nothing says any more goes"


def test_a_row_of_no_table_is_refused(monkeypatch):
    monkeypatch.setitem(ROWS, "Nothing", {"`x`": ("y", "z")})
    with pytest.raises(ValueError, match="no table of Nothing"):
        written(PAGE)
