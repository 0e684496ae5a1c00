"""Classes as features, and Correct & Smooth, read the classes of training nodes alone."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import CorrectAndSmooth
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pyg_outerconv.files import load_json
from pyg_outerconv.lab import data
from pyg_outerconv.lab.train import Experiment, Settings, load_trained, make_split
from pyg_outerconv.lab.train.inputs import WithClasses
from pyg_outerconv.lab.train.loop import SeedRun, smoothing_on
from pyg_outerconv.lab.train.model import ours
from pyg_outerconv.lab.train.results import table
from pyg_outerconv.testing import assert_near

SETTINGS = Settings(
    "KarateClub", "GCN()", "random-50-25-25", hidden=8, epochs=8, patience=0, seeds=2
)
WITH = replace(SETTINGS, labels_as_features=0.5)
SMOOTHED = replace(SETTINGS, correct_and_smooth="20,0.7,10,0.4")


def parts(seed=0):
    club = data.load("KarateClub")
    split = make_split(club.data, SETTINGS.split, seed)
    nodes = split.train.nonzero().view(-1)
    return club, split, nodes, club.data.y[nodes]


def inputs(kept="dense", share=0.5):
    club, _, nodes, classes = parts()
    settings = replace(WITH, features=kept, labels_as_features=share)
    return ours(club, settings).inputs.with_classes(nodes, classes, 4)


def run_with(y, settings, seed=0):
    """One seed, with classes that are not those of the data set."""
    club, split, _, _ = parts(seed)
    contender = ours(club, settings)
    smoothing = smoothing_on(club.data, settings)
    run = SeedRun(contender, y, 4, split, settings, seed, smoothing=smoothing)
    while not run.finished:
        run.step()
    return run, split


def scrambled(y, mask):
    """Other classes for the nodes of a mask."""
    return torch.where(mask, (y + 1) % 4, y)


# Classes as features ------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", ["dense", "sparse"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_a_training_node_shows_its_class_or_is_predicted(kept, share):
    label_inputs, (_, _, nodes, classes) = inputs(kept, share), parts()
    seen = set()
    for epoch in range(5):
        (batch,) = label_inputs.batches(nodes, 3, epoch)
        columns = batch.x.to_dense()[:, -4:]
        shown = columns.sum(1).nonzero().view(-1)
        assert torch.equal(torch.cat([shown, batch.rows]).sort().values, nodes.sort().values)
        assert shown.numel() == min(round(share * nodes.numel()), nodes.numel() - 1)
        wanted = F.one_hot(parts()[0].data.y[shown], 4).float()
        assert torch.equal(columns[shown], wanted)
        assert torch.equal(batch.rows, batch.nodes)
        assert torch.equal(batch.x.to_dense()[:, :-4], parts()[0].data.x)
        (again,) = label_inputs.batches(nodes, 3, epoch)
        assert torch.equal(again.rows, batch.rows)
        seen.add(tuple(batch.rows.tolist()))
    assert len(seen) > 1
    everywhere = label_inputs.x.to_dense()[:, -4:]
    assert torch.equal(everywhere[nodes], F.one_hot(classes, 4).float())
    assert int(everywhere.sum()) == nodes.numel()


@pytest.mark.parametrize("kept", ["dense", "sparse"])
def test_no_node_is_predicted_from_its_own_class(kept):
    """And others are: a class that changes leaves its node's logits, but not those of all."""
    label_inputs, (_, _, nodes, classes) = inputs(kept), parts()
    torch.manual_seed(0)
    model = ours(parts()[0], replace(WITH, features=kept)).model(4, WITH)
    before = label_inputs.predicted(model)
    for place, node in enumerate(nodes.tolist()):
        other = classes.clone()
        other[place] = (other[place] + 1) % 4
        base = ours(parts()[0], replace(WITH, features=kept)).inputs
        after = base.with_classes(nodes, other, 4).predicted(model)
        assert torch.equal(after[node], before[node])
        assert not torch.equal(after, before)
    some = torch.cat([nodes[:3], torch.tensor([node for node in range(34) if node not in nodes])])
    assert_near(label_inputs.predicted(model, some), before[some])


@pytest.mark.parametrize("kept", ["dense", "sparse"])
def test_classes_of_validation_and_test_nodes_change_no_parameter(kept):
    y = parts()[0].data.y
    settings = replace(WITH, features=kept)
    run, split = run_with(y, settings)
    other, _ = run_with(scrambled(y, ~split.train), settings)
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name])
    assert run.history["train_loss"] == other.history["train_loss"]
    assert run.history["val_loss"] != other.history["val_loss"]
    same, _ = run_with(scrambled(y, split.test), settings)
    assert same.result()["history"] == run.result()["history"]
    assert torch.equal(same.inputs.predicted(same.model), run.inputs.predicted(run.model))
    wrong, _ = run_with(scrambled(y, split.train), settings)
    assert wrong.history != run.history


def test_classes_are_features_beside_others():
    club = data.load("KarateClub")
    graph = club.data.clone()
    graph.x, graph.num_nodes = None, 34
    with pytest.raises(ValueError, match="features beside others: expected a graph with features"):
        ours(replace(club, data=graph), replace(WITH, features="dense"))


# Correct & Smooth ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["30,0.8,20,0.6", "1,1.0,0,0.5", "5,0.3,5,0.3,0"])
@pytest.mark.parametrize("weighted", [False, True])
def test_smoothing_is_pygs_along_the_edges_as_they_are_given(text, weighted):
    """Parallel edges count each, and nodes without any stay numbers, as perfect predictions do."""
    generator = torch.Generator().manual_seed(1)
    edges, nodes = torch.randint(18, (2, 70), generator=generator), torch.tensor([0, 4, 5, 11, 17])
    graph = Data(edge_index=edges, y=torch.randint(3, (20,), generator=generator), num_nodes=20)
    weight = torch.rand(70, generator=generator) if weighted else torch.ones(70)
    graph.edge_weight = weight if weighted else None
    one, first, other, second, *scale = map(float, text.split(","))
    options = {"autoscale": not scale, "scale": scale[0] if scale else 1.0}
    theirs = CorrectAndSmooth(int(one), first, int(other), second, **options)
    normed = gcn_norm(edges, weight, 20, add_self_loops=False)
    logits = torch.randn(20, 3, generator=generator)
    wanted = theirs(logits.softmax(-1), graph.y[nodes], nodes, *normed)
    ours = smoothing_on(graph, replace(SETTINGS, correct_and_smooth=text))
    assert_near(ours(logits, nodes, graph.y[nodes]).exp(), wanted.clamp(min=1e-12))
    perfect = 200.0 * F.one_hot(graph.y, 3).float()
    assert bool(torch.isfinite(ours(perfect, nodes, graph.y[nodes])).all())


def test_smoothing_reads_no_class_of_validation_and_test_nodes():
    y = parts()[0].data.y
    run, split = run_with(y, SMOOTHED)
    honest = run.test(y, split.test)
    calls, smoothing = [], run.smoothing
    run.smoothing = lambda logits, *seen: (calls.append(seen), smoothing(logits, *seen))[1]
    other = run.test(scrambled(y, split.test), split.test)
    ((nodes, classes),) = calls
    assert torch.equal(nodes, split.train.nonzero().view(-1))
    assert torch.equal(classes, y[nodes])
    assert other["smoothed_val_metric"] == honest["smoothed_val_metric"]
    assert other["smoothed_test_metric"] != honest["smoothed_test_metric"]
    poisoned, _ = run_with(scrambled(y, split.test), SMOOTHED)
    logits = run.inputs.predicted(run.model)
    mine = run.smoothing(logits, *(run.nodes["train"], run.wanted["train"]))
    theirs = poisoned.smoothing(logits, *(poisoned.nodes["train"], poisoned.wanted["train"]))
    assert torch.equal(mine, theirs)


# Runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_smoothed", [False, True])
def test_a_run_keeps_both_metrics_and_uses_them(is_smoothed, tmp_path):
    settings = replace(WITH, correct_and_smooth="5,0.9,5,0.5" if is_smoothed else "", peer=True)
    summary = Experiment(settings, tmp_path / "run", log=lambda line: None).run()
    trained = load_trained(tmp_path / "run")
    assert trained.predictions().test_metric == pytest.approx(trained.recorded, abs=1e-6)
    runs = load_json(tmp_path / "run" / "metrics.json")["runs"]
    for run in runs:
        assert ("smoothed_test_metric" in run) == ("smoothed_val_metric" in run) == is_smoothed
    assert ("corrected and smoothed" in table(summary)) == is_smoothed
    if is_smoothed:
        own = [run for run in runs if run["model"] == "outerconv"]
        best = sum(run["smoothed_val_metric"] for run in own) / len(own)
        assert summary["outerconv"]["smoothed_val_metric"]["mean"] == pytest.approx(best)
    assert isinstance(trained.inputs, WithClasses)
    assert len(trained.contributions()) == 2
