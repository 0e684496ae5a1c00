"""A graph of one's own from the command line: trained, gone on with, and predicted by its names."""

import csv
import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from raw_layouts import write
from run_folders import results
from torch_geometric.datasets import KarateClub

from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.train import RunFolder

QUICK = ["--epochs", "15", "--seeds", "2", "--hidden", "8"]
OWN = ["--edges", "edges.csv", "--features", "features.csv", "--labels", "labels.csv"]
WORDS = ("red", "green", "blue", "yellow")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow reads tables"
)


@pytest.fixture(autouse=True)
def _here():
    """The karate club as tables whose nodes and classes are words."""
    club = KarateClub()[0]
    edges = [f"p{m},p{n}" for m, n in club.edge_index.T.tolist()]
    rows = [f"p{node},{node % 3},{node / 7}" for node in range(34)]
    parts = ["train" if node % 2 else "test" if node % 3 else "val" for node in range(34)]
    labels = [f"p{n},{WORDS[y]},{parts[n]}" for n, y in enumerate(club.y.tolist())]
    labels[5] = "p5,,"
    Path("edges.csv").write_text("\n".join(["source,target", *edges, ""]))
    Path("features.csv").write_text("\n".join(["node,f,g", *rows, ""]))
    Path("labels.csv").write_text("\n".join(["node,label,split", *labels, ""]))


def test_it_is_trained_and_predicted_by_its_names(capsys):
    assert main(["train", *OWN, *QUICK]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "edges: 34 nodes, 156 edges, 4 classes, split public" in said.out
    assert "1 of 34 nodes have no label" in said.out
    folder = Path("runs/edges-gcn-001")
    assert main(["predict", str(folder)]) == 0
    with (folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == [f"p{node}" for node in range(34)]
    assert {row["class"] for row in rows} <= set(WORDS)
    source = RunFolder(folder).source()
    assert source.edges == str(Path("edges.csv").resolve())


def test_data_by_name_is_made_undirected(tmp_path, capsys, refused):
    write(data.entry("texas"), tmp_path / "root")
    train = ["train", "texas", "--root", "root", "--out", "run", *QUICK, "--split", "geom-gcn"]
    assert main([*train, "--undirected"]) == 0
    assert "Texas: 6 nodes, 12 edges" in capsys.readouterr().out
    before = results(Path("run"))
    assert main(["predict", "run"]) == 0
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert main(["train", "--resume", "--out", "run", "--undirected"]) == 0
    assert results(Path("run")) == before
    assert "--undirected alone" in refused(["predict", "run", "--undirected"])
    assert main([*train[:4], "--out", "directed", *train[6:]]) == 0
    said = refused(["train", "--resume", "--out", "directed", "--undirected"])
    assert "undirected" in said


def test_a_file_of_settings_makes_an_own_graph_undirected():
    rows = Path("edges.csv").read_text().splitlines()
    one_way = [row for row in rows[1:] if row.split(",")[0] < row.split(",")[1]]
    Path("edges.csv").write_text("\n".join([rows[0], *one_way, ""]))
    Path("both.toml").write_text("undirected = true\n")
    assert main(["train", *OWN, *QUICK, "--config", "both.toml", "--out", "run"]) == 0
    source = RunFolder("run").source()
    assert source.undirected
    assert json.loads(Path("run", "config.json").read_text())["data"]["num_edges"] == 156
    assert main(["predict", "run"]) == 0


def test_a_run_goes_on_and_refuses_another_graph(refused):
    assert main(["train", *OWN, *QUICK, "--out", "whole"]) == 0
    shutil.copytree("whole", "run")
    folder = RunFolder("run")
    folder.write_metrics(folder.read_runs()[:1], {})
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert results(Path("run")) == results(Path("whole"))
    text = Path("labels.csv").read_text()
    Path("labels.csv").write_text(text.replace("p8,", "p7,", 1))
    assert "'p7' again" in refused(["train", "--resume", "--out", "run"])
    Path("labels.csv").write_text(text.replace(",train", ",test", 1))
    said = refused(["train", "--resume", "--out", "run"])
    assert "another graph of that name" in said
    assert "edges.csv" in said
    assert "must be of this graph" in refused(["predict", "run"])
    Path("labels.csv").write_text(text)
    Path("edges.csv").write_text(Path("edges.csv").read_text() + "p0,p0\n")
    assert "another graph of that name" in refused(["train", "--resume", "--out", "run"])


def test_a_graph_without_a_split_is_split_by_shares(capsys, refused):
    lines = Path("labels.csv").read_text().splitlines()
    Path("labels.csv").write_text("".join(line.rpartition(",")[0] + "\n" for line in lines))
    assert main(["train", *OWN, *QUICK, "--family", "identity", "--out", "run"]) == 0
    assert "split random-60-20-20" in capsys.readouterr().out
    said = refused(["train", *OWN, "--split", "public", "--out", "other"])
    assert "unknown split of edges 'public'" in said
    assert not Path("other").exists()


def test_edge_types_make_relations(capsys):
    lines = Path("edges.csv").read_text().splitlines()
    kinds = ["type", *("ab"[place % 2] for place in range(len(lines) - 1))]
    rows = [f"{line},{kind}\n" for line, kind in zip(lines, kinds, strict=True)]
    Path("edges.csv").write_text("".join(rows))
    assert main(["train", *OWN, *QUICK, "--out", "run"]) == 0
    assert "Relation(num_relations=2" in capsys.readouterr().out
    assert main(["train", "--resume", "--out", "run", "--family", "relation"]) == 0


def test_a_class_that_nobody_trains_is_said_by_its_name(capsys):
    text = Path("labels.csv").read_text()
    Path("labels.csv").write_text(text.replace("yellow,train", "yellow,test"))
    assert main(["train", *OWN, *QUICK, "--out", "run"]) == 0
    assert "seed 0: no training node has class yellow" in capsys.readouterr().out


def test_data_whose_root_was_moved_is_below_the_default_one(tmp_path, monkeypatch):
    write(data.entry("texas"), tmp_path / "root")
    line = ["train", "texas", "--root", "root", "--out", "run", *QUICK, "--split", "geom-gcn"]
    assert main(line) == 0
    Path("root").rename("other")
    monkeypatch.setenv(data.ROOT_VARIABLE, str(tmp_path / "other"))
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert main(["predict", "run"]) == 0
    monkeypatch.delenv(data.ROOT_VARIABLE)
    assert main(["predict", "run", "--root", "other"]) == 0


def test_files_are_found_from_elsewhere_or_named_and_all_else_is_known(monkeypatch, refused):
    assert main(["train", *OWN, *QUICK, "--undirected", "--out", "run"]) == 0
    Path("moved").mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir("moved")
        assert main(["predict", "../run"]) == 0
    for name in OWN[1::2]:
        shutil.move(name, "moved")
    assert "edges.csv must be readable" in refused(["predict", "run"])
    there = [word if word.startswith("-") else f"moved/{word}" for word in OWN]
    assert main(["predict", "run", *there]) == 0
    assert main(["show", "run", *there]) == 0
    assert main(["train", "--resume", "--out", "run", *there]) == 0
    for name in OWN[3::2]:
        shutil.move(f"moved/{name}", name)
    assert main(["predict", "run", *there[:2]]) == 0


def test_code_runs_only_where_it_is_named(refused):
    Path("club_for_a_test.py").write_text(
        "from torch_geometric.datasets import KarateClub\n"
        "def club():\n"
        "    data = KarateClub()[0]\n"
        "    return data\n"
    )
    named = ["--data", "club_for_a_test:club"]
    assert main(["train", *named, *QUICK, "--split", "random-60-20-20", "--out", "run"]) == 0
    assert "named: expected --data club_for_a_test:club" in refused(["predict", "run"])
    assert "expected --data" in refused(["train", "--resume", "--out", "run"])
    assert main(["predict", "run", *named]) == 0
    assert main(["train", "--resume", "--out", "run", *named]) == 0
    torch.save(KarateClub()[0], "club.pt")
    assert main(["predict", "run", "--data", "club.pt"]) == 0, "the same graph"


def test_a_run_of_a_name_takes_no_files(refused):
    assert "a name or files, got Cora and edges" in refused(["train", "Cora", *OWN])
    assert main(["train", "KarateClub", *QUICK, "--out", "run"]) == 0
    assert "dataset by name" in refused(["predict", "run", *OWN])
    assert "dataset by name" in refused(["train", "--resume", "--out", "run", *OWN])


def test_a_split_says_what_is_drawn(capsys):
    text = Path("labels.csv").read_text()
    for number, (others, said) in enumerate(
        (
            ({",val": ",train"}, "the split has no val nodes: a fifth of the train nodes"),
            ({",val": ",", ",test": ","}, "the split has train nodes alone: of the other nodes"),
        )
    ):
        for there, instead in others.items():
            Path("labels.csv").write_text(text := text.replace(there, instead))
        assert main(["train", *OWN, *QUICK, "--out", f"run{number}"]) == 0
        assert said in capsys.readouterr().out


def test_a_run_is_shown_around_a_node_by_its_name(refused, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(
        "pyg_outerconv.plot.canvas.Figure.savefig", lambda *arguments, **options: None
    )
    gat = ["--family", "gat(heads=2)", "--out", "run"]
    assert main(["train", *OWN, *QUICK, *gat]) == 0
    assert main(["show", "run", "--node", "p7", "--node", "p0"]) == 0
    facts = json.loads(Path("run/show/show.json").read_text())
    assert (facts["shown_nodes"], facts["node_names"]) == ([7, 0], ["p7", "p0"])
    first = facts["neighbourhoods"][0]
    assert first["source_names"] == [f"p{source}" for source in first["sources"]]
    page = Path("run/show/README.md").read_text()
    assert "node 7 (p7)" in page
    assert "| 0 (p0) |" in page
    said = refused(["show", "run", "--node", "7"])
    assert "a node of edges has a name: expected one of 34 names, such as 'p0'" in said
