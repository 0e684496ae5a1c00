"""Tables of results: cells, settings, resuming, verdicts and the page."""

import json
from pathlib import Path

import pytest

from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.fields import read_toml
from pyg_outerconv.lab.reproduce.run import page, read_report, record
from pyg_outerconv.lab.reproduce.table import find_table, read_table, shipped_tables
from pyg_outerconv.lab.train.experiment import Experiment, Interrupted

TABLE = """
title = "Karate"
seeds = 2

[defaults]
epochs = 6
patience = 0
hidden = 4

[data.KarateClub]
dropout = 0.0

[[row]]
name = "GCN"
family = "gcn"
peer = true
[row.published]
KarateClub = { value = 99.9, std = 0.1, source = "Nobody, table 0" }

[[row]]
name = "two hops"
family = "walk(2)"
note = "no peer"
[row.on.KarateClub]
hidden = 8
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "karate.toml"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize("path", shipped_tables(), ids=lambda path: path.stem)
def test_every_table_that_comes_with_the_package_is_one(path):
    table = read_table(path)
    cells = list(table.cells())
    assert table.seeds >= 10
    assert len({cell.folder for cell in cells}) == len(cells) > 0
    for cell in cells:
        assert cell.settings.seeds == table.seeds
        assert cell.dataset == data.entry(cell.dataset).name
    assert find_table(path.stem) == path


def test_settings_of_a_row_go_before_those_of_data_and_defaults(table):
    gcn, hops = (cell.settings for cell in read_table(table).cells())
    assert (gcn.hidden, gcn.dropout, gcn.peer, gcn.epochs) == (4, 0.0, True, 6)
    assert (hops.hidden, hops.family[:13], hops.peer) == (8, "Walk(length=2", False)


def test_a_row_of_the_defaults_alone_is_run(table):
    table.write_text(TABLE + '\n[[row]]\nname = "defaults"\npeer = true\n')
    assert [cell.row.name for cell in read_table(table).cells()] == ["GCN", "two hops", "defaults"]


def test_a_table_is_run_resumed_and_written(table, capsys):
    out = table.parent / "out"
    line = ["reproduce", str(table), "--out", str(out)]
    assert main([*line, "--row", "GCN"]) == 0
    first = json.loads((out / "karate.json").read_text())["records"]
    before = (out / "karateclub-gcn" / "metrics.json").read_bytes()
    assert main(line) == 0
    assert (out / "karateclub-gcn" / "metrics.json").read_bytes() == before
    records = json.loads((out / "karate.json").read_text())["records"]
    assert records[0] == first[0]
    assert [one["row"] for one in records] == ["GCN", "two hops"]
    runs = json.loads(before)["runs"]
    ours = [100 * run["test_metric"] for run in runs if run["model"] == "outerconv"]
    assert records[0]["mean"] == pytest.approx(sum(ours) / 2)
    assert records[0]["at_peer"] is True
    assert records[0]["at_published"] is False
    text = (out / "karate.md").read_text()
    assert "| GCN | 2 |" in text
    assert f"GCN is {99.9 - records[0]['mean']:.1f} below the paper." in text
    assert "- Nobody, table 0" in text
    assert "- two hops: no peer" in text
    assert f"Written by `outerconv reproduce {table}`" in text
    assert "karate.md" in capsys.readouterr().out
    whole = (out / "karate.json").read_bytes(), text
    assert main([*line, "--row", "two hops"]) == 0, "a part leaves the rest"
    assert ((out / "karate.json").read_bytes(), (out / "karate.md").read_text()) == whole
    table.write_text(TABLE.replace("hidden = 8", "hidden = 6").replace("walk(2)", "walk(1)"))
    (out / "karateclub-gcn").rename(out / "elsewhere")
    assert main([*line, "--row", "GCN", "--seeds", "1"]) == 0
    records = json.loads((out / "karate.json").read_text())["records"]
    assert [(one["row"], one["seeds"]) for one in records] == [("GCN", 1)]  # the other row changed


@pytest.mark.pages
@pytest.mark.slow(cases=0)
def test_a_row_of_a_shipped_table_is_reproduced_to_the_digit(shared_data):
    """To the digits that its page shows, with which another machine may differ in the last bits."""
    line = ["reproduce", "geom_gcn", "--data", "Cornell", "--row", "GCN", "--device", "cpu"]
    assert main([*line, "--root", str(shared_data), "--out", "out"]) == 0
    (row_record,) = read_report(Path("out/geom_gcn.json"))
    shipped_records = read_report(find_table("geom_gcn").with_suffix(".json"))
    (wanted,) = (
        one for one in shipped_records if (one["dataset"], one["row"]) == ("Cornell", "GCN")
    )
    for ours, theirs in ((row_record, wanted), (row_record["peer"], wanted["peer"])):
        for key in ("seeds", "mean", "std"):
            assert round(ours[key], 1) == round(theirs[key], 1), key
    assert round(row_record["peer"]["gap"], 2) == round(wanted["peer"]["gap"], 2)


def test_a_cell_with_other_settings_is_refused(table, refused):
    out = table.parent / "out"
    line = ["reproduce", str(table), "--row", "GCN", "--out", str(out)]
    assert main([*line, "--seeds", "1"]) == 0
    before = (out / "karate.json").read_bytes()
    assert "expected seeds=2, got seeds=1" in refused(line, "give another --out, or remove it")
    assert (out / "karate.json").read_bytes() == before


def test_an_interrupted_table_says_the_whole_command(table, capsys, monkeypatch):
    def interrupt(experiment):
        raise Interrupted("stopped in epoch 3")

    monkeypatch.setattr(Experiment, "run", interrupt)
    out = str(table.parent / "out")
    line = ["reproduce", str(table), "--row", "GCN", "--row", "two hops", "--out", out]
    assert main(line) == 130
    words = "--row GCN --row 'two hops' --out "
    assert f"go on by: outerconv reproduce {table} {words}{out}" in capsys.readouterr().err


def test_the_peer_may_have_fewer_seeds(table):
    table.write_text(table.read_text().replace("peer = true", "peer = true\npeer_seeds = 1"))
    out = table.parent / "out"
    line = ["reproduce", str(table), "--row", "GCN", "--out", str(out)]
    assert main(line) == 0
    row_record = json.loads((out / "karate.json").read_text())["records"][0]
    assert (row_record["seeds"], row_record["peer"]["seeds"], row_record["peer"]["gap_error"]) == (
        2,
        1,
        None,
    )
    runs = json.loads((out / "karateclub-gcn" / "metrics.json").read_text())["runs"]
    assert [(run["model"], run["seed"]) for run in runs] == [
        ("outerconv", 0), ("peer", 0), ("outerconv", 1)
    ]  # fmt: skip
    assert "| GCN | 2, PyG's 1 |" in (out / "karate.md").read_text()
    assert main(line) == 0
    again = ["--seeds", "1", "--out", str(table.parent / "one")]
    assert main([*line[:-2], *again]) == 0


def summary(gap, error):
    model = {key: {"mean": 0.5, "std": None} for key in ("test_metric", "val_metric", "seconds")}
    return {
        "metric": "accuracy",
        "outerconv": {"name": "ours", "seeds": 2, **model},
        "peer": {"name": "PyG GCNConv", "seeds": 2, **model},
        "difference": {"seeds": 2, "mean": gap, "standard_error": error},
        "majority": {"mean": 0.25, "std": 0.0},
    }


@pytest.mark.parametrize(
    ("gap", "error", "verdict"),
    [(0.01, 0.0, True), (-0.01, 0.02, True), (-0.03, 0.02, False), (0.0, None, True)],
)
def test_at_the_peer_is_within_one_standard_error(gap, error, verdict, table):
    read = read_table(table)
    row_record = record(next(read.cells()), summary(gap, error))
    assert row_record["at_peer"] is verdict
    facts = {"versions": {"torch": "1", "torch_geometric": "2"}, "threads": 1, "machine": "a CPU"}
    facts["command"] = "outerconv reproduce karate"
    assert ("below PyG's layer" in page(read, [row_record], facts)) is not verdict


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "must be TOML"),
        (
            TABLE.replace("hidden = 8", "hiden = 8"),
            "unknown setting 'hiden' (did you mean 'hidden'?)",
        ),
        (
            TABLE.replace("hidden = 8", "hidden = '8'"),
            "karate.toml, row 2, KarateClub: hidden has a type: expected int, got '8'",
        ),
        (
            TABLE.replace("hidden = 8", "hidden = 0"),
            "karate.toml, row 2, KarateClub: hidden has a minimum: expected >= 1",
        ),
        (TABLE.replace("two hops", "GCN"), "rows have names of their own"),
        (TABLE.replace("data.KarateClub", "data.Karat"), "karate.toml, data: unknown dataset"),
        ("data = 3\nrow = []\ntitle = 't'\nseeds = 1", "data has a type: expected dict, got 3"),
        (TABLE.partition("[[row]]")[0] + "[row]\nname = 'a'", "each under [[row]], got [row]"),
        (TABLE.replace("row.on.KarateClub", "row.on.Cora"), "row 2 is on data sets of the table"),
        (TABLE.replace("seeds = 2", "seeds = 0"), "seeds has a minimum: expected >= 1"),
        (
            TABLE.replace("value = 99.9", "value = 999"),
            "value has a maximum: expected <= 100, got 999",
        ),
        (TABLE.replace('title = "Karate"', ""), "title"),
        (TABLE.replace('name = "two hops"', ""), "row 2 must say its name"),
        (TABLE.replace('"no peer"', "3"), "row 2: note has a type: expected str, got 3"),
        (TABLE.replace('"Karate"', "[1]"), "title has a type: expected str, got [1]"),
        (TABLE.replace("dropout = 0.0", "split = [1]"), "KarateClub: split has a type"),
        (TABLE.replace(', source = "Nobody, table 0"', ""), "KarateClub must say its source"),
        (TABLE.replace("value = 99.9", 'value = "99.9"'), "value has a type: expected float"),
        (TABLE.replace("std = 0.1", 'std = "x"'), "std has a type: expected float | None"),
    ],
)
def test_what_is_no_table_is_refused(text, words, table, refused):
    table.write_text(text)
    refused(["reproduce", table, "--out", table.parent / "out"], words)


def test_the_wheel_has_every_table():
    project = Path(__file__).parents[3] / "pyproject.toml"
    included = read_toml(project)["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for path in shipped_tables():
        assert included[f"examples/tables/{path.name}"] == f"pyg_outerconv/_tables/{path.name}"


def test_tables_are_listed_and_unknown_ones_refused(capsys, refused):
    assert main(["reproduce"]) == 0
    assert "planetoid" in capsys.readouterr().out
    refused(["reproduce", "planetoids"], "did you mean 'planetoid'")
    refused(["reproduce", "planetoid", "--row", "GCNN"], "did you mean 'GCN'")
