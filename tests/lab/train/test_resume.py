"""Runs that were stopped, killed, or left without disk go on to the end of an unbroken one."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import mapped_graphs
import pytest
import torch
from run_folders import assert_same_end, results, stopping
from small_graphs import GIN, dataset

from pyg_outerconv import files
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.data import Source, load_own
from pyg_outerconv.lab.train import Experiment, RunFolder, Settings, experiment, load_trained
from pyg_outerconv.lab.train.loop import SeedRun

SETTINGS = Settings(
    "KarateClub",
    "Walk(length=2)",
    "public",
    hidden=8,
    dropout=0.5,
    input_dropout=0.2,
    layer_norm="batch",
    epochs=12,
    patience=0,
    seeds=2,
    peer=True,
)
SHORT = {"family": "stack(gcn, identity)", "epochs": 6, "peer": False, "input_dropout": 0.0}
PARTS = {**SHORT, "batches": "random-nodes", "parts": 4, "layer_norm": "none"}
CLUSTERS = {**PARTS, "batches": "clusters", "parts": 3}
MAPPED = {**PARTS, "family": "GCN()", "features": "dense", "epochs": 4}
GRAPHS = {"family": GIN, "split": "ten-fold", "pool": "sum", "update": "mlp", "batch_size": 5}

# A way to train, after how many epochs it is stopped, and which graph it is of.
WAYS = {
    "at once": ({}, 0, ""),
    "in the first seed": ({}, 7, ""),
    "between two models": ({}, 12, ""),
    "in the last seed": ({}, 47, ""),
    "random nodes": (PARTS, 4, ""),
    "accumulated": ({**PARTS, "accumulate": 3}, 4, ""),
    "clusters": ({**CLUSTERS, "parts": 5, "parts_per_batch": 2}, 4, ""),
    "bfloat16": ({**PARTS, "precision": "bfloat16"}, 4, ""),
    "sparse features": ({**PARTS, "features": "sparse"}, 4, ""),
    "batch norm": ({**PARTS, "layer_norm": "batch"}, 4, ""),
    "heads": ({**CLUSTERS, "family": "gat(heads=2)"}, 4, ""),
    "blocks": ({**PARTS, "architecture": "blocks"}, 4, ""),
    "classes": ({**SHORT, "labels_as_features": 0.5, "features": "sparse"}, 5, ""),
    "smoothed": ({**SHORT, "correct_and_smooth": "5,0.9,5,0.5"}, 7, ""),
    "sparse, whole": ({**SHORT, "features": "sparse"}, 5, ""),
    "mapped": ({**MAPPED, "parts": 6}, 2, "mapped"),
    "mapped heads": ({**MAPPED, "family": "gat(heads=2)", "parts": 6}, 2, "mapped"),
    "now and then": ({**MAPPED, "evaluate_every": 3, "parts": 6}, 2, "mapped"),
    "graphs": ({**GRAPHS, "epochs": 4, "input_dropout": 0.0}, 6, "graphs"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An unbroken run, with a peer."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, SETTINGS)
    return folder


def run(folder, settings, resume=False, graph=None):
    Experiment(settings, folder, resume=resume, log=lambda line: None, dataset=graph).run()


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("way", WAYS)
def test_a_stopped_run_ends_as_an_unbroken_one(way, whole, tmp_path, monkeypatch):
    (changes, stop, kind), graph = WAYS[way], None
    settings = replace(SETTINGS, **changes)
    if kind == "mapped":
        place = mapped_graphs.write(tmp_path / "graph")
        graph = load_own(Source(data=str(place)))
        settings = replace(settings, dataset="graph")
    if kind == "graphs":
        graph, settings = dataset(30), replace(settings, dataset="MUTAG")
        for where in ("experiment", "folder"):
            module = import_module(f"pyg_outerconv.lab.train.{where}")
            monkeypatch.setattr(module, "load", lambda *args, made=graph, **kwargs: made)
    if changes:
        whole = tmp_path / "whole"
        run(whole, settings, graph=graph)
    folder = tmp_path / "run"
    with stopping(monkeypatch, stop):
        run(folder, settings, graph=graph)
    done = stop // settings.epochs
    if done:
        assert results(folder) == results(whole)[:done]
    torch.manual_seed(99)  # whatever happened in between
    run(folder, replace(settings, features="auto"), resume=True, graph=graph)
    assert_same_end(folder, whole)
    made = load_trained(folder).predictions()
    assert made.trained.settings.features == RunFolder(folder).settings().features
    assert made.test_metric == pytest.approx(made.trained.recorded, abs=1e-6)


def test_a_run_that_was_killed_goes_on_from_its_last_snapshot(whole, tmp_path, monkeypatch):
    step = SeedRun.step

    def killed(self):
        if self.seed == 1 and self.epoch == 5:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patched:
        patched.setattr(SeedRun, "step", killed)
        patched.setattr(experiment, "SNAPSHOT_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run", SETTINGS)
    state = torch.load(tmp_path / "run" / "partial.pt", weights_only=True)
    assert (state["seed"], len(state["history"]["val_loss"])) == (1, 5)
    run(tmp_path / "run", SETTINGS, resume=True)
    assert_same_end(tmp_path / "run", whole)


def test_a_finished_run_resumes_to_itself_and_to_nothing_else(whole, tmp_path):
    before, found = (whole / "checkpoint.pt").read_bytes(), results(whole)
    run(whole, SETTINGS, resume=True)
    assert (results(whole), (whole / "checkpoint.pt").read_bytes()) == (found, before)
    for changes, words in (
        ({"hidden": 9, "lr": 0.5}, r"hidden=8, lr=0.01, got hidden=9, lr=0.5"),
        ({"features": "sparse"}, "features='dense', got features='sparse'"),
    ):
        with pytest.raises(ValueError, match=words):
            run(whole, replace(SETTINGS, **changes), resume=True)
    with pytest.raises(ValueError, match="not a run folder"):
        run(tmp_path, SETTINGS, resume=True)
    config = files.load_json(whole / "config.json")
    config["data"]["fingerprint"] = "0" * 64
    files.save_json(tmp_path / "config.json", config)
    with pytest.raises(ValueError, match="another graph of that name"):
        run(tmp_path, SETTINGS, resume=True)


# By the command line ------------------------------------------------------------------------------

LINE = ["KarateClub", "--epochs", "15", "--seeds", "2", "--hidden", "8"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", *LINE, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def no_picture(monkeypatch):
    """Drawing takes longer than these runs."""
    monkeypatch.setattr(experiment, "can_draw", lambda: False)


def goes_on(finished):
    """The run goes on, or begins if nothing of it is there, and ends as the finished one did."""
    begun = ["--resume"] if Path("run/config.json").exists() else LINE
    assert main(["train", *begun, "--out", "run"]) == 0
    assert_same_end(Path("run"), finished)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("epoch", [0, 7, 14, 20])
def test_a_signal_saves_and_stops(number, code, epoch, no_picture, finished, monkeypatch, capsys):
    step, done = SeedRun.step, 0

    def stopped(self):
        nonlocal done
        if done == epoch:
            os.kill(os.getpid(), number)
        done += 1
        step(self)

    with monkeypatch.context() as patched:
        patched.setattr(SeedRun, "step", stopped)
        assert main(["train", *LINE, "--out", "run"]) == code
    assert "go on by: outerconv train --resume --out run" in capsys.readouterr().err
    assert signal.getsignal(number) is not None
    goes_on(finished)


def test_a_second_signal_stops_at_once_unless_torchrun_passes_it_on():
    with experiment.StopOnInterrupt() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with experiment.StopOnInterrupt(patient=True) as stop:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        assert stop.number == signal.SIGINT


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("nth", range(6))
def test_a_full_disk_is_said_and_loses_nothing(nth, no_picture, finished, monkeypatch, capsys):
    sync, written = os.fsync, 0

    def full(descriptor):
        nonlocal written
        if written == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += 1
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        code = main(["train", *LINE, "--out", "run"])
    said = capsys.readouterr().err
    assert code == (2 if "No space left" in said else 0)
    assert said.count("\n") == (code == 2)
    assert not list(Path().glob("run/.*"))
    goes_on(finished)


def test_a_folder_with_a_configuration_alone_goes_on(no_picture, finished):
    Path("run").mkdir()
    shutil.copy(finished / "config.json", "run")
    goes_on(finished)


def test_what_a_killed_process_left_is_swept(no_picture, finished):
    ended = subprocess.Popen(["true"])
    ended.wait()
    Path("run").mkdir()
    names = [(name, end) for name in ("config.json", "partial.pt") for end in ("", ".0123abcd")]
    gone, living = (
        [Path(f"run/.{name}.{number}{end}") for name, end in names]
        for number in (ended.pid, os.getppid())
    )
    for resume in (LINE, ["--resume"]):
        for path in (*gone, *living):
            path.write_text("half")
        assert main(["train", *resume, "--out", "run"]) == 0
        assert not any(path.exists() for path in gone)
        assert all(path.exists() for path in living)
    assert results(Path("run")) == results(finished)


def test_a_seed_that_was_finished_is_not_under_way(no_picture, finished):
    """Killed between the metrics and the removal."""
    home = RunFolder(shutil.copytree(finished, "run"))
    parts = {key: {} for key in ("parameters", "optimizer", "history", "best", "random")}
    home.save_state({"model": "outerconv", "seed": 1, "epoch": 0, "seconds": 0.0, **parts})
    goes_on(finished)
