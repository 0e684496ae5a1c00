"""A table of searches: what it asks for, what it skips, that it goes on, what it refuses."""

import json
from pathlib import Path

import pytest

from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.reproduce.searches import page, read_search_table
from pyg_outerconv.lab.reproduce.table import find_table, shipped_tables
from pyg_outerconv.lab.train.experiment import Interrupted

pytest.importorskip("optuna")

TABLE = """
title = "Karate"
about = "a protocol"
[plan]
trials = 2
portfolio = "mlp"
finalists = 2
final_seeds = 2
max_depth = 2
max_hidden = 16
epochs = 4
[[search]]
data = "Texas"
split = "geom-gcn"
[[search]]
data = "KarateClub"
split = "public"
test_seeds = 2
[[published]]
data = "KarateClub"
model = "nobody's"
value = 99.9
source = "Nobody, table 0"
protocol = "one split, chosen on the test"
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "karate.toml"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize("path", shipped_tables("search"), ids=lambda path: path.stem)
def test_every_set_of_a_table_that_comes_with_the_package_is_one(path):
    table = read_search_table(path)
    assert find_table(path.stem) == path
    assert len({one.folder for one in table.searches}) == len(table.searches) > 0
    for one in table.searches:
        assert one.data == data.entry(one.data).name
        assert one.test_seeds >= 10
    assert {one.data for one in table.published} <= {one.data for one in table.searches}
    assert "before any test was read" in path.read_text()


def test_a_set_is_searched_kept_and_another_skipped_by_name(table, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PYG_OUTERCONV_DATA", str(tmp_path / "none"))
    out = tmp_path / "out"
    line = ["reproduce", str(table), "--out", str(out), "--jobs", "1", "--root", str(tmp_path)]
    assert main([*line, "--data", "KarateClub"]) == 0
    first = json.loads((out / "karate.json").read_text())["records"]["karateclub-public"]
    assert first["facts"].endswith("device cpu. Intervals of the test are over seeds.")
    assert (out / "karateclub-public" / "search.html").exists()
    text = (out / "karate.md").read_text()
    assert "- Texas, geom-gcn: not run yet" in text
    assert (
        "| KarateClub | nobody's | 99.9 | one split, chosen on the test | Nobody, table 0 |" in text
    )
    monkeypatch.setattr("pyg_outerconv.lab.train.loop.SeedRun.step", None)  # nothing is trained
    monkeypatch.setattr("pyg_outerconv.lab.reproduce.searches.load", _without_texas)
    assert main(line) == 0
    assert "skipped: no files of Texas" in capsys.readouterr().err
    records = json.loads((out / "karate.json").read_text())["records"]
    assert records["karateclub-public"] == first
    assert records["texas-geom-gcn"] == {"skipped": "its files could not be read"}
    assert "- Texas, geom-gcn: its files could not be read" in (out / "karate.md").read_text()


def test_a_set_may_have_a_plan_of_its_own(table, tmp_path):
    table.write_text(TABLE.replace("test_seeds = 2", "test_seeds = 2\ntrials = 1\nmax_hidden = 8"))
    out = tmp_path / "out"
    line = ["reproduce", str(table), "--data", "KarateClub", "--jobs", "1", "--out", str(out)]
    assert main(line) == 0
    plan = json.loads((out / "karateclub-public" / "config.json").read_text())["plan"]
    assert (plan["trials"], plan["max_hidden"], plan["max_depth"]) == (1, 8, 2)
    assert [one.plan for one in read_search_table(table).searches] == [
        {},
        {"trials": 1, "max_hidden": 8},
    ]


def _without_texas(name, *rest):
    if name == "Texas":
        raise data.DataUnavailable("no files of Texas")
    return data.load(name, *rest)


def test_an_interrupted_table_says_how_to_go_on(table, capsys, monkeypatch, tmp_path):
    from pyg_outerconv.lab.search.search import Search

    def interrupt(search):
        raise Interrupted("stopped")

    monkeypatch.setattr(Search, "run", interrupt)
    line = ["reproduce", str(table), "--data", "KarateClub", "--out", str(tmp_path / "out")]
    assert main(line) == 130
    assert f"go on by: outerconv {' '.join(line)}\n" in capsys.readouterr().err


def test_what_is_no_such_table_is_refused(table, refused, tmp_path):
    line = ["reproduce", table, "--out", tmp_path / "out"]
    refused([*line, "--row", "MLP"], "the rows and seeds of its protocol: expected --data alone")
    refused([*line, "--seeds", "3"], "expected --data alone, got --seeds")
    refused([*line, "--data", "Cora"], "unknown data set of the table 'Cora'")
    refused([*line, "--jobs", "-1"], "jobs has a minimum")
    for wrong, said in (
        (TABLE.replace("trials = 2", "trails = 2"), "unknown setting 'trails'"),
        (TABLE.replace("test_seeds = 2", "trails = 2"), "search 2: unknown setting 'trails'"),
        (TABLE.replace("test_seeds = 2", "trials = -1"), "trials has a minimum"),
        (TABLE.replace('"public"', '"geom-gcn"'), "unknown split"),
        (TABLE.replace("[plan]", "[plans]"), "is a table of searches"),
        (TABLE.replace('model = "nobody', 'moddel = "nobody'), "unknown setting 'moddel'"),
    ):
        table.write_text(wrong)
        refused(line, said)
    assert not (tmp_path / "out").exists()


def test_another_plan_in_a_folder_is_refused(table, refused, tmp_path):
    out = tmp_path / "out"
    line = ["reproduce", str(table), "--data", "KarateClub", "--jobs", "1", "--out", str(out)]
    assert main(line) == 0
    table.write_text(TABLE.replace("trials = 2", "trials = 3"))
    refused(line, "holds this set with another plan (give another --out, or remove it)")


def test_kinds_that_are_better_than_the_winner_stand_in_the_first_table():
    table = read_search_table(find_table("basis_search"))
    row = {"kind": "GCN", "winner_minus_it": -2.0, "half_interval": 1.0}
    even = {"kind": "GAT", "winner_minus_it": -2.0, "half_interval": 3.0}
    search_record = {
        "winner": "MLP",
        "settings": {"family": "identity"},
        "facts": "",
        "verdict": [],
    }
    rows = [["kind", "final", "test %"], ["MLP (winner)", "", "80.0"]]
    records = {"cora-public": {**search_record, "rows": rows, "differences": [row, even]}}
    text = page(table, records, "outerconv reproduce basis_search")
    assert "| Cora | public | MLP | identity | 80.0 | GCN |" in text
    assert "- Cornell, geom-gcn: not run yet" in text
    assert Path(table.path).name == "basis_search.toml"
