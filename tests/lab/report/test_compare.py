"""Comparisons of runs: pairing by seed, groups that are apart, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.report import compare as module
from pyg_outerconv.lab.report.compare import compare
from pyg_outerconv.lab.train import Experiment, RunFolder, Settings
from pyg_outerconv.plot import runs as drawing

pytestmark = pytest.mark.pages

SETTINGS = Settings("KarateClub", "GCN()", "random-30-30-40", hidden=4, epochs=3, seeds=3)


def train(folder, **changes):
    Experiment(replace(SETTINGS, **changes), folder, log=lambda line: None).run()
    return str(folder)


def metrics_of(folder, model="outerconv"):
    records = RunFolder(folder).read_runs()
    return {str(one["seed"]): one["test_metric"] for one in records if one["model"] == model}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    changes = {
        "gcn": {"peer": True},
        "wide": {"hidden": 32, "epochs": 30, "lr": 0.05},
        "more": {"seeds": 5, "family": "Identity()"},
        "f1": {"metric": "f1", "seeds": 1},
        "split": {"split": "public", "seeds": 2},
    }
    return {name: train(base / name, **options) for name, options in changes.items()}


def test_differences_are_paired_by_seed_with_their_standard_error(runs):
    (group,) = compare([runs["gcn"], runs["wide"], runs["more"]])["groups"]
    said = [group[key] for key in ("dataset", "split", "metric")]
    assert said == ["KarateClub", "random-30-30-40", "accuracy"]
    first = metrics_of(runs["gcn"])
    models = {(Path(model["run"]).name, model["key"]): model for model in group["models"]}
    assert list(models) == [
        ("gcn", "outerconv"),
        ("gcn", "peer"),
        ("wide", "outerconv"),
        ("more", "outerconv"),
    ]
    for (name, key), model in models.items():
        own = metrics_of(runs[name], key)
        assert model["test"] == own
        assert model["mean"] == pytest.approx(mean(own.values()))
        assert model["std"] == pytest.approx(stdev(own.values()))
        assert model["standard_error"] == pytest.approx(stdev(own.values()) / len(own) ** 0.5)
        if (name, key) == ("gcn", "outerconv"):
            assert model["difference"] is None
            continue
        gaps = [own[seed] - first[seed] for seed in "012"]
        assert model["difference"] == {
            "seeds": 3,
            "mean": pytest.approx(mean(gaps)),
            "standard_error": pytest.approx(stdev(gaps) / 3**0.5),
        }
    assert models["wide", "outerconv"]["differing"] == {
        "family": "GCN()",
        "hidden": 32,
        "lr": 0.05,
        "epochs": 30,
    }
    majorities = {one["seed"]: one["majority"] for one in RunFolder(runs["more"]).read_runs()}
    assert group["majority"] == pytest.approx(mean(majorities.values()))


def test_the_best_is_chosen_by_validation_nodes(runs):
    (group,) = compare([runs["gcn"], runs["wide"], runs["more"]], "best")["groups"]
    validation = [mean(model["validation"]) for model in group["models"]]
    assert group["reference"] == validation.index(max(validation))
    assert group["models"][group["reference"]]["difference"] is None


def test_runs_that_differ_in_metric_or_split_are_apart_and_said_to_be(runs):
    comparison = compare([runs["gcn"], runs["f1"], runs["split"]])
    assert [(group["metric"], group["split"]) for group in comparison["groups"]] == [
        ("accuracy", "random-30-30-40"),
        ("f1", "random-30-30-40"),
        ("accuracy", "public"),
    ]
    assert all(
        model["difference"] is None
        for group in comparison["groups"][1:]
        for model in group["models"]
    )
    one, two, three = (
        "{dataset}, split {split}, {metric}".format(**group) for group in comparison["groups"]
    )
    assert comparison["notes"] == [
        f"{two} is not compared with {one}: another metric",
        f"{three} is not compared with {one}: another split",
        f"{three} is not compared with {two}: another split, another metric",
    ]


def test_another_graph_of_one_name_is_apart(runs, tmp_path, monkeypatch):
    loaded = data.load("KarateClub")
    changed = replace(loaded, fingerprint="0" * 64)
    monkeypatch.setattr("pyg_outerconv.lab.train.experiment.load", lambda *arguments: changed)
    other = train(tmp_path / "other", seeds=1)
    comparison = compare([runs["gcn"], other])
    assert len(comparison["groups"]) == 2
    assert comparison["notes"][0].endswith("another graph of that name")


def test_runs_under_way_are_compared_by_what_they_have(runs, tmp_path, capsys):
    experiment = Experiment(replace(SETTINGS, seeds=4), tmp_path / "half", log=lambda line: None)
    records = RunFolder(runs["gcn"]).read_runs()
    experiment.runs.extend(
        one for one in records if one["model"] == "outerconv" and one["seed"] < 2
    )
    experiment.folder.write_metrics(experiment.runs, experiment.summary())
    Experiment(SETTINGS, tmp_path / "empty", log=lambda line: None)
    assert main(["compare", runs["more"], str(tmp_path / "half"), str(tmp_path / "empty")]) == 0
    said = capsys.readouterr().out
    assert "2 of 4" in said
    assert f"{tmp_path / 'empty'} has no finished seed yet" in said


def test_the_command_writes_a_table_numbers_and_a_picture(runs, tmp_path, monkeypatch, capsys):
    drawn = []
    intervals = drawing.intervals
    monkeypatch.setattr(
        drawing, "intervals", lambda groups: drawn.append(groups) or intervals(groups)
    )
    out = tmp_path / "compared"
    command = ["compare", runs["gcn"], runs["wide"], runs["more"], runs["f1"]]
    assert main([*command, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == [
        "compare.json",
        "compare.md",
        "compare.png",
    ]
    content = json.loads((out / "compare.json").read_text())
    wide = content["groups"][0]["models"][2]
    assert wide["test"] == metrics_of(runs["wide"])
    difference = wide["difference"]
    row = next(line for line in (out / "compare.md").read_text().splitlines() if "/wide |" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3] == f"{100 * wide['mean']:.2f} ± {100 * wide['std']:.2f}"
    points = f"{100 * difference['mean']:+.2f}".replace("+0.00", "0.00")
    assert cells[4] == f"{points} ± {100 * difference['standard_error']:.2f}"
    assert cells[-1] == "hidden=32, lr=0.05, epochs=30"
    assert "(3 seeds)" in said  # of the five that one run has
    (groups,) = drawn
    assert [list(row.values) for row in groups[0][2]] == [
        list(metrics_of(runs[name], key).values())
        for name, key in (
            ("gcn", "outerconv"),
            ("gcn", "peer"),
            ("wide", "outerconv"),
            ("more", "outerconv"),
        )
    ]
    assert [row.is_reference for row in groups[0][2]] == [True, False, False, False]


def test_without_matplotlib_the_picture_alone_is_missing(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "can_draw", lambda: False)
    assert main(["compare", runs["f1"], "--out", str(tmp_path / "out")]) == 0
    assert "pip install 'pyg_outerconv[plot]'" in capsys.readouterr().out
    assert not (tmp_path / "out" / "compare.png").exists()
    assert ".png" not in (tmp_path / "out" / "compare.md").read_text()


def test_bad_runs_are_one_line_and_nothing_is_written(runs, tmp_path, refused):
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for name in ("config.json", "metrics.json"):
        text = (Path(runs["f1"]) / name).read_text()
        (damaged / name).write_text(text if name == "config.json" else text.replace("0.", "1.", 1))
    (tmp_path / "file").write_text("")
    for arguments, says in (
        ([str(tmp_path)], "is not a run folder: expected config.json, got no such file"),
        ([str(damaged)], "metrics.json must be as outerconv wrote it"),
        ([runs["f1"], runs["f1"] + "/"], "a run is compared once"),
        ([runs["f1"], "--against", "frist"], "did you mean 'first'"),
        ([runs["f1"], "--out", str(tmp_path / "file")], "--out must be a folder"),
        ([], "Missing argument 'RUNS...'"),
    ):
        refused(["compare", *arguments], says)
