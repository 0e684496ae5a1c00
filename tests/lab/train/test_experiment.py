"""Runs: repeatable, kept as they go; what their epochs, seeds and labels are chosen by."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from run_folders import assert_same_end, results
from run_folders import seed_run as begun
from torch.nn import BatchNorm1d, Dropout, Module

from pyg_outerconv import OuterConv
from pyg_outerconv.lab import data
from pyg_outerconv.lab.train import (
    Experiment,
    NodeClassifier,
    Settings,
    contributions,
    load_trained,
    make_split,
)
from pyg_outerconv.lab.train import experiment as module
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


def run(folder, settings=SETTINGS):
    Experiment(settings, folder, log=lambda line: None).run()
    return results(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run, with a peer."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, replace(SETTINGS, peer=True))
    return folder


def test_equal_seeds_give_equal_numbers_and_others_do_not(whole, tmp_path):
    run(tmp_path / "again", replace(SETTINGS, peer=True))
    found = results(whole)
    histories = [record["history"] for record in found]
    assert_same_end(tmp_path / "again", whole)
    assert [(record["model"], record["seed"]) for record in found] == [
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
    settled = replace(SETTINGS, peer=True, features="dense")  # the graph is too small to gain
    assert config["settings"] == settled.as_dict()
    assert config["data"]["num_nodes"] == 34
    assert (whole / "curves.png").read_bytes().startswith(b"\x89PNG")
    metrics = json.loads((whole / "metrics.json").read_text())
    assert metrics["summary"]["backends"] == ["small"]
    values = [r["test_metric"] for r in metrics["runs"] if r["model"] == "outerconv"]
    mean = metrics["summary"]["outerconv"]["test_metric"]["mean"]
    assert mean == pytest.approx(sum(values) / len(values))


def test_the_epoch_that_counts_is_that_of_the_lowest_validation_loss(whole):
    for record in results(whole):
        losses = record["history"]["val_loss"]
        best = min(range(len(losses)), key=losses.__getitem__)
        assert record["best_epoch"] == best + 1
        assert record["val_loss"] == losses[best]
        assert record["val_metric"] == record["history"]["val_metric"][best]


def test_the_checkpoint_is_of_the_seed_with_the_lowest_validation_loss(whole):
    found = [record for record in results(whole) if record["model"] == "outerconv"]
    best = min(found, key=lambda record: record["val_loss"])
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
    made = seed_run(epochs=100, patience=3, lr=0.01)
    while not made.finished:
        made.step()
    losses = made.history["val_loss"]
    best = losses.index(min(losses)) + 1
    assert (made.best.epoch, made.epoch) == (best, min(best + 3, 100))
    unbounded = seed_run(epochs=made.epoch + 5, patience=0, lr=0.01)
    while not unbounded.finished:
        unbounded.step()
    assert unbounded.epoch == made.epoch + 5


def test_the_best_metric_may_select_the_epoch():
    made = seed_run(epochs=30, patience=0, select="metric")
    while not made.finished:
        made.step()
    metrics, losses = made.history["val_metric"], made.history["val_loss"]
    order = sorted(range(30), key=lambda epoch: (-metrics[epoch], losses[epoch]))
    assert made.best.epoch == order[0] + 1


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
        made = SeedRun(ours(club, settings), y, 4, split, settings, 0)
        assert bool((made.y[split.test] == -1).all())
        while not made.finished:
            made.step()
        runs.append(made)
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
    made = seed_run(class_weights="balanced")
    weights = made.class_weights
    counts = torch.bincount(made.wanted["train"], minlength=4)
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
    found = run(tmp_path / "run", settings)
    assert sum(record["test_metric"] for record in found) / 3 > 0.65  # of four classes
    assert all(record["history"]["train_metric"][-1] == 1.0 for record in found)
    assert all(record["history"]["train_loss"][-1] < 0.2 for record in found)


def test_a_diverged_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="training diverged in epoch"):
        run(tmp_path / "run", replace(SETTINGS, lr=1e30, layer_norm="none"))


def test_without_matplotlib_a_line_says_so(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(module, "can_draw", lambda: False)
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
    made = seed_run()
    numbers = dict.fromkeys(made.history, 1.0)
    made._record(1, numbers)
    kept = {name: value.clone() for name, value in made.best.parameters.items()}
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(1.0)
    made._record(2, numbers)
    assert made.best.epoch == 1
    assert all(torch.equal(made.best.parameters[name], value) for name, value in kept.items())


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
    found = contributions(model, x, EDGES, Y, MASK)
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
    before, at = (accuracy(whole, Y[MASK]), F.cross_entropy(whole, Y[MASK])), iter(found)
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
    found = contributions(model, X, EDGES, Y, MASK, lambda logits, y: float(logits[:, 0].sum()))
    whole = model(X, EDGES)[MASK][:, 0].sum()
    model.convs[1].theta.weight[0] = 0
    without = model(X, EDGES)[MASK][:, 0].sum()
    assert found[1].change == pytest.approx(float(without - whole), rel=1e-4, abs=1e-4)


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
