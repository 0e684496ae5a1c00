"""Runs on sparse features: the choice, and numbers equal to those on dense ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.train import Experiment, Settings, make_split, predict
from pyg_outerconv.lab.train.features import choose_features, settle_features
from pyg_outerconv.lab.train.loop import SeedRun
from pyg_outerconv.lab.train.model import ours
from pyg_outerconv.lab.train.peers import peer

SETTINGS = Settings(
    "KarateClub", "GCN()", "public", hidden=8, dropout=0.0, epochs=12, patience=0, seeds=2
)


def experiment(folder: Path, settings: Settings, resume: bool = False) -> Experiment:
    return Experiment(settings, folder, resume=resume, log=lambda line: None)


def test_sparse_and_dense_runs_agree_where_no_input_is_dropped() -> None:
    club = data.load("KarateClub")
    runs = []
    for kept in ("sparse", "dense"):
        settings = replace(SETTINGS, features=kept)
        contender = ours(club, settings)
        assert contender.inputs.x is not None
        assert (contender.inputs.x.layout == torch.sparse_csr) == (kept == "sparse")
        split = make_split(club.data, "public", 0)
        made = SeedRun(contender, club.data.y, club.num_classes, split, settings, 0)
        for _ in range(SETTINGS.epochs):
            made.step()
        runs.append(made.history)
    for name, values in runs[0].items():
        assert values == pytest.approx(runs[1][name], abs=1e-5), name


def test_a_small_graph_is_kept_dense_and_a_peer_has_what_we_have() -> None:
    club = data.load("KarateClub")
    choice = choose_features(club, SETTINGS)
    assert choice is not None
    assert (choice.kept, choice.shape, choice.num_entries) == ("dense", (34, 34), 34)
    assert settle_features(club, SETTINGS).features == "dense"
    for kept, layout in (("sparse", torch.sparse_csr), ("auto", torch.strided)):
        x = peer(club, replace(SETTINGS, features=kept)).inputs.x
        assert x is not None
        assert x.layout == layout


def test_the_choice_is_told() -> None:
    choice = choose_features(data.load("KarateClub"), replace(SETTINGS, features="sparse"))
    assert str(choice) == (
        "features: 2.9 % non-zero, stored sparse: X·Θ is predicted to take 15 % of the time of a "
        "dense product"
    )
    choice = choose_features(data.load("KarateClub"), SETTINGS)
    assert str(choice).startswith("features: 2.9 % non-zero, stored dense: 34 × 34 numbers are too")
    choice = choose_features(data.load("KarateClub"), replace(SETTINGS, device="mps"))
    assert str(choice).endswith("stored dense: torch has no sparse kernels on mps")


def test_sparse_is_refused_where_there_are_no_features() -> None:
    club = data.load("KarateClub")
    graph = club.data.clone()
    graph.x = None
    bare = replace(club, data=graph)
    assert choose_features(bare, SETTINGS) is None
    assert settle_features(bare, SETTINGS).features == "dense"
    with pytest.raises(ValueError, match="needs a graph with features.*KarateClub"):
        choose_features(bare, replace(SETTINGS, features="sparse"))


def test_an_unknown_way_to_keep_them_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown features 'spars' \(did you mean 'sparse'\?\)"):
        replace(SETTINGS, features="spars")


@pytest.mark.parametrize("kept", ["sparse", "dense"])
def test_a_run_is_recorded_resumed_and_predicted(kept: str, tmp_path: Path) -> None:
    settings = replace(SETTINGS, features=kept, input_dropout=0.3)
    whole = experiment(tmp_path / "whole", settings).run()
    experiment(tmp_path / "run", settings)
    resumed = experiment(tmp_path / "run", replace(settings, features="auto"), resume=True)
    assert resumed.settings.features == kept
    assert resumed.run()["outerconv"]["test_metric"] == whole["outerconv"]["test_metric"]
    said = predict(tmp_path / "run")
    assert said.settings.features == kept
    assert said.test_metric == said.recorded


def test_the_other_way_is_no_resumption(tmp_path: Path) -> None:
    experiment(tmp_path / "run", replace(SETTINGS, features="sparse"))
    with pytest.raises(ValueError, match="features='sparse', got features='dense'"):
        experiment(tmp_path / "run", replace(SETTINGS, features="dense"), resume=True)


def test_the_command_tells_its_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    flags = ["--epochs", "2", "--seeds", "1", "--feature-storage", "sparse", "--out", out]
    assert main(["train", "KarateClub", *flags]) == 0
    assert "features: 2.9 % non-zero, stored sparse" in capsys.readouterr().out
    assert main(["train", "--resume", "--out", out, "--feature-storage", "auto"]) == 0
    assert "stored sparse" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["features"] == (
        "sparse"
    )


def test_cora_is_kept_sparse_and_its_numbers_stay(shared_data: Path) -> None:
    cora = data.load("Cora", shared_data)
    settings = replace(SETTINGS, dataset="Cora", hidden=16, dropout=0.5)
    choice = choose_features(cora, settings)
    assert choice is not None
    assert choice.kept == "sparse"
    assert choice.num_entries / (choice.shape[0] * choice.shape[1]) == pytest.approx(
        0.0127, abs=1e-4
    )
    histories = []
    for kept in ("sparse", "dense"):
        wanted = replace(settings, features=kept)
        split = make_split(cora.data, "public", 0)
        made = SeedRun(ours(cora, wanted), cora.data.y, cora.num_classes, split, wanted, 0)
        for _ in range(10):
            made.step()
        histories.append(made.history)
    for name, values in histories[0].items():
        assert values == pytest.approx(histories[1][name], abs=2e-3), name
