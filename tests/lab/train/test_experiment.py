"""Runs: repeatable, kept as they go; what their epochs, seeds and labels are chosen by; that those
which were stopped, killed, or left without disk go on to the end of an unbroken one.
"""

from __future__ import annotations

import copy
import errno
import json
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
import torch.nn.functional as F
from run_folders import assert_same_end, results, stopping
from run_folders import seed_run as begun
from small_graphs import GIN, dataset
from torch.nn import BatchNorm1d, Dropout, Module

from pyg_outerconv import OuterConv, files
from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.data import Source, load_own
from pyg_outerconv.lab.train import (
    Experiment,
    NodeClassifier,
    RunFolder,
    Settings,
    contributions,
    experiment,
    load_trained,
    make_split,
)
from pyg_outerconv.lab.train.inputs import WholeGraph
from pyg_outerconv.lab.train.loop import SeedRun
from pyg_outerconv.lab.train.model import ours
from pyg_outerconv.lab.train.results import accuracy
from pyg_outerconv.nn import gat_conv

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
)
PEER = replace(SETTINGS, peer=True)


def run(folder, settings=SETTINGS, resume=False, graph=None):
    Experiment(settings, folder, resume=resume, log=lambda line: None, dataset=graph).run()
    return results(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An unbroken run, with a peer."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, PEER)
    return folder


def test_equal_seeds_give_equal_numbers_and_others_do_not(whole, tmp_path):
    run(tmp_path / "again", PEER)
    records = results(whole)
    histories = [record["history"] for record in records]
    assert_same_end(tmp_path / "again", whole)
    assert [(record["model"], record["seed"]) for record in records] == [
        ("outerconv", 0),
        ("peer", 0),
        ("outerconv", 1),
        ("peer", 1),
    ]
    assert all(a != b for i, a in enumerate(histories) for b in histories[:i])


def test_the_files_of_a_run(whole):
    assert sorted(path.name for path in whole.iterdir()) == [
        "checkpoint.pt",
        "config.json",
        "curves.png",
        "metrics.json",
    ]
    config = json.loads((whole / "config.json").read_text())
    settled = replace(PEER, features="dense")  # the graph is too small to gain
    assert config["settings"] == settled.as_dict()
    assert config["data"]["num_nodes"] == 34
    assert (whole / "curves.png").read_bytes().startswith(b"\x89PNG")
    metrics = json.loads((whole / "metrics.json").read_text())
    assert metrics["summary"]["backends"] == ["small"]
    values = [r["test_metric"] for r in metrics["runs"] if r["model"] == "outerconv"]
    mean = metrics["summary"]["outerconv"]["test_metric"]["mean"]
    assert mean == pytest.approx(sum(values) / len(values))


def test_the_checkpoint_is_of_the_seed_with_the_lowest_validation_loss(whole):
    records = [record for record in results(whole) if record["model"] == "outerconv"]
    best = min(records, key=lambda record: record["val_loss"])
    loaded = torch.load(whole / "checkpoint.pt", weights_only=True)
    assert (loaded["seed"], loaded["best_epoch"]) == (best["seed"], best["best_epoch"])
    said = load_trained(whole).predictions()
    assert said.test_metric == best["test_metric"] == said.trained.recorded
    club = data.load("KarateClub").data
    test = make_split(club, "public", best["seed"]).test
    assert float((said.classes == club.y)[test].double().mean()) == pytest.approx(
        best["test_metric"]
    )


def seed_run(**options):
    return begun(replace(SETTINGS, **options))


def test_training_stops_after_so_many_epochs_without_a_better_one():
    training_run = seed_run(epochs=100, patience=3, lr=0.01)
    while not training_run.finished:
        training_run.step()
    losses = training_run.history["val_loss"]
    best = losses.index(min(losses)) + 1
    assert (training_run.best.epoch, training_run.epoch) == (best, min(best + 3, 100))
    unbounded = seed_run(epochs=training_run.epoch + 5, patience=0, lr=0.01)
    while not unbounded.finished:
        unbounded.step()
    assert unbounded.epoch == training_run.epoch + 5


@pytest.mark.parametrize("select", ["loss", "metric"])
def test_the_epoch_that_counts_is_the_first_of_the_best_by_validation(select):
    training_run = seed_run(epochs=30, patience=0, select=select)
    while not training_run.finished:
        training_run.step()
    record = training_run.result()
    losses, metrics = (record["history"][f"val_{name}"] for name in ("loss", "metric"))
    order = {"loss": lambda at: losses[at], "metric": lambda at: (-metrics[at], losses[at])}
    best = min(range(30), key=order[select])
    actual = record["best_epoch"], record["val_loss"], record["val_metric"]
    assert actual == (best + 1, losses[best], metrics[best])


@pytest.mark.parametrize("select", ["loss", "metric"])
def test_the_classes_of_test_nodes_change_nothing_but_the_test(select):
    """Training is the same to the bit, and the test, read afterwards, is not."""
    club = data.load("KarateClub")
    settings = replace(SETTINGS, select=select, class_weights="balanced")
    split = make_split(club.data, "public", 0)
    shuffled = club.data.y.clone()
    shuffled[split.test] = (shuffled[split.test] + 1) % 4
    runs = []
    for y in (club.data.y, shuffled):
        training_run = SeedRun(ours(club, settings), y, 4, split, settings, 0)
        assert bool((training_run.y[split.test] == -1).all())
        while not training_run.finished:
            training_run.step()
        runs.append(training_run)
    first, second = runs
    assert first.history == second.history
    assert first.best.epoch == second.best.epoch
    for name, value in first.best.parameters.items():
        assert torch.equal(value, second.best.parameters[name])
    assert (
        first.test(club.data.y, split.test)["test_metric"]
        != second.test(shuffled, split.test)["test_metric"]
    )


def test_test_nodes_are_evaluated_once(tmp_path, monkeypatch):
    asked = []
    logits = WholeGraph.logits

    def watched(self, model, nodes=None):
        asked.append(() if nodes is None else tuple(nodes.tolist()))
        return logits(self, model, nodes)

    monkeypatch.setattr(WholeGraph, "logits", watched)
    run(tmp_path / "run", replace(SETTINGS, seeds=1, peer=False, patience=0))
    club = data.load("KarateClub").data
    test = tuple(make_split(club, "public", 0).test.nonzero().view(-1).tolist())
    assert asked[1 : SETTINGS.epochs + 1] == [asked[1]] * SETTINGS.epochs  # after the trial call
    assert not set(asked[1]) & set(test)
    assert asked[SETTINGS.epochs + 1 :] == [test]


def test_balanced_classes_weigh_alike_in_the_loss():
    training_run = seed_run(class_weights="balanced")
    weights = training_run.class_weights
    counts = torch.bincount(training_run.wanted["train"], minlength=4)
    assert torch.allclose(weights * counts, (weights * counts).max().expand(4))


def test_training_learns(tmp_path):
    settings = replace(
        SETTINGS,
        family="GCN()",
        epochs=150,
        dropout=0.0,
        input_dropout=0.0,
        layer_norm="none",
        seeds=3,
        weight_decay=0.0,
    )
    records = run(tmp_path / "run", settings)
    assert sum(record["test_metric"] for record in records) / 3 > 0.65  # of four classes
    assert all(record["history"]["train_metric"][-1] == 1.0 for record in records)
    assert all(record["history"]["train_loss"][-1] < 0.2 for record in records)


def test_a_diverged_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="training diverged in epoch"):
        run(tmp_path / "run", replace(SETTINGS, lr=1e30, layer_norm="none"))


def test_without_matplotlib_a_line_says_so(tmp_path):
    lines = []
    Experiment(SETTINGS, tmp_path / "run", log=lines.append).run()
    assert "matplotlib is not installed" in lines[-1]
    assert not (tmp_path / "run" / "curves.png").exists()


def test_contenders_of_one_seed_share_their_dropout():
    draws = []
    for hidden in (8, 16):  # parameters of other sizes take other amounts of randomness
        seed_run(hidden=hidden)
        draws.append(torch.rand(3))
    assert torch.equal(*draws)


def test_the_first_of_equal_epochs_is_kept_as_it_was():
    training_run = seed_run()
    numbers = dict.fromkeys(training_run.history, 1.0)
    training_run._record(1, numbers)
    kept = {name: value.clone() for name, value in training_run.best.parameters.items()}
    with torch.no_grad():
        for parameter in training_run.model.parameters():
            parameter.add_(1.0)
    training_run._record(2, numbers)
    assert training_run.best.epoch == 1
    assert all(
        torch.equal(training_run.best.parameters[name], value) for name, value in kept.items()
    )


# Contributions of labels equal those of models in which a label's matrix is set to zero -----------


N, P, C = 30, 5, 3
RANDOM = torch.Generator().manual_seed(0)
EDGES = torch.randint(N, (2, 120), generator=RANDOM)
TYPES = torch.randint(3, (120,), generator=RANDOM)
X = torch.randn(N, P, generator=RANDOM)
Y = torch.randint(C, (N,), generator=RANDOM)
MASK = torch.rand(N, generator=RANDOM) < 0.6


def classifier(family, in_channels=P, **changes):
    options = {"dataset": "d", "family": family, "split": "s", "hidden": 7, **changes}
    torch.manual_seed(1)
    return NodeClassifier(in_channels, C, lambda p, q: OuterConv(p, q, family), Settings(**options))


class Attends(Module):
    """A layer of attention with dropout, called twice, and a layer that is never called."""

    def __init__(self):
        super().__init__()
        self.conv = gat_conv(P, P, heads=2, concat=False, dropout=0.5, bias=False)
        self.dropout = Dropout(0.5)
        self.unused = OuterConv(P, P, "gcn")

    def forward(self, x, structure):
        out, _ = self.conv(x, structure, return_attention_weights=True)
        return self.conv(self.dropout(out.relu()), structure)


DEEP = {"depth": 3, "skip": "residual", "layer_norm": "batch"}
MODELS = {
    "stack": lambda: classifier("stack(gcn, identity, walk(2))"),
    "chebyshev": lambda: classifier("chebyshev(3)", **DEEP),
    "directed": lambda: classifier("directed(gcn)", skip="concat"),
    "attention, called twice": Attends,
    "without features": lambda: classifier("walk(1)", in_channels=N),
}


@torch.no_grad()
@pytest.mark.parametrize("case", MODELS)
def test_a_label_is_taken_out_of_one_layer(case):
    torch.manual_seed(2)
    model, x = MODELS[case](), None if case == "without features" else X
    model.apply(lambda part: isinstance(part, BatchNorm1d) and part.running_var.fill_(0.3))
    label_contributions = contributions(model, x, EDGES, Y, MASK)
    assert model.training
    model.eval()
    layers = {name: one for name, one in model.named_modules() if isinstance(one, OuterConv)}
    calls = {name: [] for name in layers}
    handles = [
        conv.register_forward_pre_hook(lambda conv, args, name=name: calls[name].append(args))
        for name, conv in layers.items()
    ]
    whole = model(x, EDGES)[MASK]
    for handle in handles:
        handle.remove()
    before, at = (
        (accuracy(whole, Y[MASK]), F.cross_entropy(whole, Y[MASK])),
        iter(label_contributions),
    )
    for name, conv in layers.items():
        for k, title in enumerate(conv.family.labels if calls[name] else ()):
            one, changed = next(at), copy.deepcopy(model)
            assert (one.layer, one.label, one.name) == (name, k, title)
            changed.get_submodule(name).theta.weight[k] = 0
            terms = [conv(*args) - changed.get_submodule(name)(*args) for args in calls[name]]
            assert one.norm == pytest.approx(float(torch.stack(terms).norm()), rel=1e-4)
            logits = changed(x, EDGES)[MASK]
            assert one.metric == pytest.approx(accuracy(logits, Y[MASK]), abs=1e-6)
            assert one.change == pytest.approx(one.metric - before[0], abs=1e-6)
            loss = F.cross_entropy(logits, Y[MASK])
            assert one.loss == pytest.approx(float(loss), rel=1e-4)
            assert one.loss_change == pytest.approx(float(loss - before[1]), rel=1e-3, abs=1e-5)
    assert next(at, None) is None


@torch.no_grad()
def test_a_metric_of_ones_own():
    model = classifier("gcn").eval()
    label_contributions = contributions(
        model, X, EDGES, Y, MASK, lambda logits, y: float(logits[:, 0].sum())
    )
    whole = model(X, EDGES)[MASK][:, 0].sum()
    model.convs[1].theta.weight[0] = 0
    without = model(X, EDGES)[MASK][:, 0].sum()
    assert label_contributions[1].change == pytest.approx(
        float(without - whole), rel=1e-4, abs=1e-4
    )


def test_modes_come_back_and_hooks_go():
    model = classifier("gcn")
    model.convs[0].eval()
    model.train()
    model.convs[1].training = False
    before = [part.training for part in model.modules()]

    def fails(logits, y):
        raise RuntimeError("of the metric")

    with pytest.raises(RuntimeError, match="of the metric"):
        contributions(model, X, EDGES, Y, MASK, fails)
    assert [part.training for part in model.modules()] == before
    assert not any(part._forward_hooks for part in model.modules())


def test_no_node_is_refused():
    with pytest.raises(ValueError, match="measured on nodes: expected at least one, got none"):
        contributions(classifier("gcn"), X, EDGES, Y, torch.zeros(N, dtype=torch.bool))


# Going on -----------------------------------------------------------------------------------------


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


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("way", WAYS)
def test_a_stopped_run_ends_as_an_unbroken_one(way, whole, tmp_path, monkeypatch):
    (changes, stop, kind), graph = WAYS[way], None
    settings = replace(PEER, **changes)
    if kind == "mapped":
        place = mapped_graphs.write(tmp_path / "graph")
        graph = load_own(Source(data=str(place)))
        settings = replace(settings, dataset="graph")
    if kind == "graphs":
        graph, settings = dataset(30), replace(settings, dataset="MUTAG")
        for where in ("experiment", "folder"):
            module = import_module(f"pyg_outerconv.lab.train.{where}")
            monkeypatch.setattr(module, "load", lambda *args, loaded=graph, **kwargs: loaded)
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
    predictions = load_trained(folder).predictions()
    assert predictions.trained.settings.features == RunFolder(folder).settings().features
    assert predictions.test_metric == pytest.approx(predictions.trained.recorded, abs=1e-6)


def test_a_finished_run_resumes_to_itself_and_to_nothing_else(whole, tmp_path):
    before, records = (whole / "checkpoint.pt").read_bytes(), results(whole)
    run(whole, PEER, resume=True)
    assert (results(whole), (whole / "checkpoint.pt").read_bytes()) == (records, before)
    for changes, words in (
        ({"hidden": 9, "lr": 0.5}, r"hidden=8, lr=0.01, got hidden=9, lr=0.5"),
        ({"features": "sparse"}, "features='dense', got features='sparse'"),
    ):
        with pytest.raises(ValueError, match=words):
            run(whole, replace(PEER, **changes), resume=True)
    with pytest.raises(ValueError, match="not a run folder"):
        run(tmp_path, PEER, resume=True)
    config = files.load_json(whole / "config.json")
    config["data"]["fingerprint"] = "0" * 64
    files.save_json(tmp_path / "config.json", config)
    with pytest.raises(ValueError, match="another graph of that name"):
        run(tmp_path, PEER, resume=True)


# By the command line ------------------------------------------------------------------------------

LINE = ["KarateClub", "--epochs", "15", "--seeds", "2", "--hidden", "8"]


def goes_on(finished):
    """The run goes on, or begins if nothing of it is there, and ends as the finished one did."""
    begun = ["--resume"] if Path("run/config.json").exists() else LINE
    assert main(["train", *begun, "--out", "run"]) == 0
    assert_same_end(Path("run"), finished)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("epoch", [0, 7, 14, 20])
def test_a_signal_saves_and_stops(number, code, epoch, finished, monkeypatch, capsys):
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
def test_a_full_disk_is_said_and_loses_nothing(nth, finished, monkeypatch, capsys):
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


def test_a_folder_with_a_configuration_alone_goes_on(finished):
    Path("run").mkdir()
    shutil.copy(finished / "config.json", "run")
    goes_on(finished)


def test_what_a_killed_process_left_is_swept(finished):
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


def test_a_seed_that_was_finished_is_not_under_way(finished):
    """Killed between the metrics and the removal."""
    home = RunFolder(shutil.copytree(finished, "run"))
    parts = {key: {} for key in ("parameters", "optimizer", "history", "best", "random")}
    home.write("partial.pt", {"model": "outerconv", "seed": 1, "epoch": 0, "seconds": 0.0, **parts})
    goes_on(finished)
