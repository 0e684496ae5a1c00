"""Models compute what their options say, at once and layer by layer, and decay what they say.

Those of papers are settings: with the same parameters they are PyG's, or what a formula says.
"""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from run_folders import seed_run
from torch.profiler import ProfilerActivity, profile
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import to_dense_adj

from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.data import Dataset, entry, load
from pyg_outerconv.lab.settings import read_settings
from pyg_outerconv.lab.train import Settings
from pyg_outerconv.lab.train.classifiers import KNOWLEDGE, logits_by_layers
from pyg_outerconv.lab.train.inputs import choose_features, settle_features
from pyg_outerconv.lab.train.model import new_settings, ours
from pyg_outerconv.lab.train.peers import peer
from pyg_outerconv.testing import assert_near

ROOT = Path(__file__).resolve().parents[3]
N, P, C = 14, 5, 3


# Dropout, weight decay, residual blocks, heads ----------------------------------------------------


def graph(with_features=True):
    """A symmetric graph of N nodes with P features and C classes."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(N, (2, 50), generator=generator)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    edges = torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)
    graph_data = Data(edge_index=edges, y=torch.arange(N) % C, num_nodes=N)
    if with_features:
        graph_data.x = torch.randn(N, P, generator=generator)
    return Dataset(entry("KarateClub"), graph_data, None, "")


def model_and_contender(dataset, family, **options):
    settings = Settings("KarateClub", family, "public", **{"hidden": 8, **options})
    contender = ours(dataset, settings)
    torch.manual_seed(0)
    return contender.model(C, settings).eval(), contender


def logits(model, contender):
    return contender.inputs.logits(model, torch.arange(N))


@pytest.mark.parametrize("name", ["dropout", "input_dropout"])
def test_dropouts_act_in_training_alone(name):
    model, contender = model_and_contender(graph(), "gcn", **{"dropout": 0.0, name: 0.5})
    assert torch.equal(logits(model, contender), logits(model, contender))
    model.train()
    outputs = torch.stack([logits(model, contender) for _ in range(8)])
    assert bool((outputs != outputs[0]).any())


@pytest.mark.parametrize(("decay", "others"), [("all", 0.3), ("first", 0.0)])
def test_weight_decay_groups(decay, others):
    settings = Settings("d", "gcn", "s", decay=decay, weight_decay=0.3)
    model, _ = model_and_contender(graph(), "gcn", depth=3)
    first, rest = model.parameter_groups(settings)
    for group, convs in ((first, model.convs[:1]), (rest, model.convs[1:])):
        assert {id(p) for p in group["params"]} == {id(p) for p in convs.parameters()}
    assert (first["weight_decay"], rest["weight_decay"]) == (0.3, others)


def test_blocks_add_what_is_between_two_linear_layers():
    dataset = graph()
    x, edges = dataset.data.x, dataset.data.edge_index
    model, contender = model_and_contender(
        dataset,
        "gcn(norm=target)",
        architecture="blocks",
        layer_norm="layer",
        activation="gelu",
        depth=2,
    )
    adjacency = to_dense_adj(edges, max_num_nodes=N)[0] + torch.eye(N)
    mean = adjacency / adjacency.sum(0)
    with torch.no_grad():
        out = F.gelu(model.first(x))
        for conv, linear, norm in zip(model.convs, model.linears, model.norms, strict=False):
            inner = mean.t() @ norm(out) @ conv.theta.weight[0] + conv.bias
            out = out + linear(F.gelu(inner))
        wanted = model.head(model.norms[-1](out))
    assert_near(logits(model, contender), wanted)
    by_layers = logits_by_layers(model, x, contender.inputs.structure, most_edges=7)
    assert_near(by_layers, wanted)


@pytest.mark.parametrize("options", [{}, {"architecture": "blocks"}, {"propagation": "gcn"}])
@pytest.mark.parametrize(
    "family", ["stack(gat(heads=2), gcn)", "gat(heads=2)", "linear_attention(2, 4)", "high_pass"]
)
def test_every_architecture_trains_every_kind_of_family(family, options):
    dataset = graph()
    model, contender = model_and_contender(dataset, family, hidden=4, **options)
    before = F.cross_entropy(logits(model, contender), dataset.data.y)
    groups = model.parameter_groups(Settings("KarateClub", family, "public"))
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    optimizer = torch.optim.Adam(groups, lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(model, contender), dataset.data.y)
        loss.backward()
        optimizer.step()
    assert loss < before


def test_blocks_read_sparse_features_and_none():
    dataset = graph()
    dense = model_and_contender(dataset, "gcn", architecture="blocks", features="dense")
    sparse = model_and_contender(dataset, "gcn", architecture="blocks", features="sparse")
    assert_near(logits(*sparse), logits(*dense))
    bare = graph(with_features=False)
    model, contender = model_and_contender(bare, "gcn", architecture="blocks")
    bare.data.x = torch.eye(N)
    wanted, other = model_and_contender(bare, "gcn", architecture="blocks", features="dense")
    wanted.load_state_dict(model.state_dict())
    assert_near(logits(model, contender), logits(wanted, other))


@pytest.mark.parametrize(
    ("family", "options", "told"),
    [
        ("gcn", {"out_heads": 2}, "out_heads is the number of heads of the last layer"),
        ("gcn", {"propagation": "walk(2)"}, "predictions are propagated by one matrix"),
        ("gcn", {"propagation": "gat"}, "predictions are propagated by one matrix"),
        ("gat(heads=3)", {}, "heads side by side share out_channels evenly"),
    ],
)
def test_what_does_not_fit_is_refused(family, options, told):
    with pytest.raises(ValueError) as refused:
        model_and_contender(graph(), family, **options)
    assert told in str(refused.value)


# Layer by layer -----------------------------------------------------------------------------------


MODELS = [
    ("gcn", {}),
    ("walk(2)", {"depth": 3, "skip": "residual"}),
    ("stack(gcn, identity)", {"skip": "concat", "layer_norm": "layer"}),
    ("directed(gcn)", {"layer_norm": "batch", "depth": 4, "skip": "residual"}),
    ("gat(heads=2)", {"activation": "elu"}),
    ("chebyshev(3)", {"architecture": "blocks", "layer_norm": "layer"}),
    ("gcn", {"skip": "max", "depth": 3, "input_layer": "activated"}),
    ("gcn", {"skip": "last", "input_layer": "linear", "root_weight": True}),
    ("identity", {"propagation": "diffusion(ppr, alpha=0.1)"}),
]


@pytest.mark.parametrize(("family", "options"), MODELS, ids=[name for name, _ in MODELS])
def test_layers_one_by_one_are_the_model(family, options):
    dataset = load("KarateClub")
    settings = Settings(
        dataset="KarateClub", family=family, split="random", hidden=8, **{"depth": 2, **options}
    )
    torch.manual_seed(0)
    contender = ours(dataset, settings)
    model, x, structure = (
        contender.model(4, settings),
        contender.inputs.x,
        contender.inputs.structure,
    )
    model(x, structure)  # statistics of batch norms
    with pytest.raises(ValueError, match="training mode"):
        logits_by_layers(model, x, structure)
    model.eval()
    for most in (7, 1000):
        by_layers = logits_by_layers(model, x, structure, most_edges=most)
        torch.testing.assert_close(by_layers, model(x, structure), rtol=1e-5, atol=1e-6)


# Runs on sparse features: the choice, and numbers equal to those on dense ones --------------------


SETTINGS = Settings(
    "KarateClub", "GCN()", "public", hidden=8, dropout=0.0, epochs=12, patience=0, seeds=2
)


@pytest.mark.parametrize(
    ("name", "changes", "gap"),
    [
        ("KarateClub", {}, 1e-5),
        ("KarateClub", {"labels_as_features": 0.5, "split": "random-50-25-25"}, 1e-5),
        ("Cora", {"hidden": 16, "dropout": 0.5}, 2e-3),
        ("Cora", {"hidden": 16, "dropout": 0.5, "input_layer": "activated"}, 2e-3),
    ],
)
def test_sparse_and_dense_runs_agree_where_no_input_is_dropped(name, changes, gap):
    settings, runs = replace(SETTINGS, dataset=name, **changes), []
    for kept in ("sparse", "dense"):
        training_run = seed_run(replace(settings, features=kept))
        assert (training_run.inputs.x.layout == torch.sparse_csr) == (kept == "sparse")
        for _ in range(10):
            training_run.step()
        runs.append(training_run.history)
    for curve, values in runs[0].items():
        assert values == pytest.approx(runs[1][curve], abs=gap), curve


@pytest.mark.parametrize(
    "changes",
    [{}, {"input_layer": "activated"}, {"labels_as_features": 0.5}],
    ids=["a convolution", "a linear layer", "beside classes"],
)
def test_no_epoch_sorts_the_entries_of_sparse_features_again(changes):
    changes = {**changes, "features": "sparse", "input_dropout": 0.5}
    training_run = seed_run(replace(SETTINGS, dataset="Cora", **changes))
    num_entries = training_run.inputs.x.values().numel()
    training_run.step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        training_run.step()
    sizes = [one.input_shapes[0] for one in recorded.events() if one.name == "aten::sort"]
    assert [size for size in sizes if max(size) >= num_entries] == []
    assert "aten::_to_sparse_csr" not in {one.name for one in recorded.events()}


def test_a_large_graph_is_kept_sparse_a_small_one_dense_and_a_peer_has_what_we_have():
    cora, club = data.load("Cora", log=str), data.load("KarateClub")
    choice = choose_features(cora, replace(SETTINGS, dataset="Cora"))
    assert (choice.kept, choice.shape) == ("sparse", (2708, 1433))
    assert choice.num_entries / (2708 * 1433) == pytest.approx(0.0127, abs=1e-4)
    choice = choose_features(club, SETTINGS)
    assert (choice.kept, choice.shape, choice.num_entries) == ("dense", (34, 34), 34)
    assert settle_features(club, SETTINGS).features == "dense"
    for kept, layout in (("sparse", torch.sparse_csr), ("auto", torch.strided)):
        x = peer(club, replace(SETTINGS, features=kept)).inputs.x
        assert x.layout == layout
    for changes, said in (
        (
            {"features": "sparse"},
            "sparse: X·Θ is predicted to take 15 % of the time of a",
        ),
        ({}, "dense: 34 × 34 numbers are too few for a sparse product to pay"),
        ({"device": "mps"}, "dense: torch has no sparse kernels on mps"),
    ):
        told = str(choose_features(club, replace(SETTINGS, **changes)))
        assert told.startswith(f"features: 2.9 % non-zero, stored {said}")


def test_sparse_is_refused_where_there_are_no_features():
    club = data.load("KarateClub")
    graph = club.data.clone()
    graph.x = None
    bare = replace(club, data=graph)
    assert choose_features(bare, SETTINGS) is None
    assert settle_features(bare, SETTINGS).features == "dense"
    with pytest.raises(ValueError, match="needs a graph with features.*KarateClub"):
        choose_features(bare, replace(SETTINGS, features="sparse"))


def test_the_command_tells_its_choice(tmp_path, capsys):
    out = str(tmp_path / "run")
    flags = ["--epochs", "2", "--seeds", "1", "--feature-storage", "sparse", "--out", out]
    assert main(["train", "KarateClub", *flags]) == 0
    assert "features: 2.9 % non-zero, stored sparse" in capsys.readouterr().out
    assert main(["train", "--resume", "--out", out, "--feature-storage", "auto"]) == 0
    assert "stored sparse" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["features"] == (
        "sparse"
    )


# Models of papers ---------------------------------------------------------------------------------


def model_of(dataset, family, **options):
    """A model with parameters that are drawn, all of them."""
    model, contender = model_and_contender(dataset, family, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return model, contender


def copied(theirs, mine, transposed=False):
    """Give a parameter of PyG's our numbers."""
    with torch.no_grad():
        theirs.copy_(mine.t() if transposed else mine)


def copy_linear(theirs, mine):
    copied(theirs.weight, mine.weight)
    copied(theirs.bias, mine.bias)


# Jumping knowledge and the layer before -----------------------------------------------------------


@pytest.mark.parametrize("skip", ["concat", "max", "last"])
def test_jumping_knowledge_is_pygs(skip):
    dataset = graph()
    mine, contender = model_of(dataset, "gcn", depth=3, skip=skip)
    jk = "cat" if skip == "concat" else skip
    theirs = pyg.GCN(P, 8, 3, C, jk=jk).eval()
    for one, other in zip(theirs.convs, mine.convs, strict=True):
        copied(one.lin.weight, other.theta.weight[0], transposed=True)
        copied(one.bias, other.bias)
    copy_linear(theirs.lin, mine.head)
    wanted = theirs(dataset.data.x, dataset.data.edge_index)
    assert_near(contender.inputs.logits(mine), wanted)


def test_words_of_jumping_knowledge_are_pygs_functions():
    outputs = list(torch.randn(4, 9, 6))
    for name, mode in (("concat", "cat"), ("max", "max")):
        assert torch.equal(KNOWLEDGE[name](outputs), pyg.JumpingKnowledge(mode)(outputs))
    assert_near(KNOWLEDGE["sum"](outputs), sum(outputs))
    assert torch.equal(KNOWLEDGE["last"](outputs), outputs[-1])


@pytest.mark.parametrize("skip", ["none", "sum", "residual"])
@pytest.mark.parametrize("kind", ["linear", "activated"])
@pytest.mark.parametrize("features", ["dense", "sparse", "none"])
def test_a_layer_before_convolutions_is_linear_or_has_an_activation(skip, kind, features):
    dataset = graph(features != "none")
    stored = "dense" if features == "none" else features
    options = {"input_layer": kind, "skip": skip, "depth": 2, "features": stored}
    mine, contender = model_of(dataset, "gcn", layer_norm="layer", **options)
    x = torch.eye(N) if features == "none" else dataset.data.x
    hidden = x @ mine.first.weight.t() + mine.first.bias
    hidden = F.relu(hidden) if kind == "activated" else hidden
    outputs = []
    structure = contender.inputs.structure
    for conv, norm in zip(mine.convs, mine.norms, strict=False):
        after = F.relu(norm(conv(hidden, structure)))
        hidden = after + hidden if skip == "residual" else after
        outputs.append(hidden)
    wanted = mine.head(sum(outputs)) if skip == "sum" else mine.convs[-1](hidden, structure)
    assert_near(contender.inputs.logits(mine), wanted)
    input_features = contender.inputs.x
    assert_near(logits_by_layers(mine, input_features, structure, most_edges=7), wanted)
    first, rest = mine.parameter_groups(Settings("d", "gcn", "s", decay="first"))
    assert {id(one) for one in first["params"]} == {id(one) for one in mine.first.parameters()}
    assert (first["weight_decay"], rest["weight_decay"]) == (5e-4, 0.0)


def test_dropout_acts_after_the_first_layer():
    mine, contender = model_of(graph(), "gcn", depth=1, input_layer="linear", dropout=0.5)
    mine.train()
    outputs = torch.stack([contender.inputs.logits(mine) for _ in range(4)])
    assert bool((outputs != outputs[0]).any())


# GCNII and LINKX ----------------------------------------------------------------------------------


@pytest.mark.parametrize("features", ["dense", "sparse"])
def test_gcnii_is_pygs_layers_between_two_linear_ones(features):
    dataset = graph()
    options = {"initial_residual": 0.2, "identity_mapping": 0.7, "depth": 4, "features": features}
    mine, contender = model_of(dataset, "gcn", architecture="gcnii", **options)
    first = hidden = F.relu(F.linear(dataset.data.x, mine.first.weight, mine.first.bias))
    for number, linear in enumerate(mine.linears, start=1):
        layer = pyg.GCN2Conv(8, alpha=0.2, theta=0.7, layer=number)
        copied(layer.weight1, linear.weight, transposed=True)
        hidden = F.relu(layer(hidden, first, dataset.data.edge_index))
    wanted, inputs = mine.head(hidden), contender.inputs
    assert_near(inputs.logits(mine), wanted)
    assert_near(logits_by_layers(mine, inputs.x, inputs.structure, most_edges=7), wanted)


def step_of(dataset):
    """GCN's matrix, which is symmetric."""
    step = pyg.GCNConv(N, N, bias=False)
    copied(step.lin.weight, torch.eye(N))
    with torch.no_grad():
        return step(torch.eye(N), dataset.data.edge_index)


def test_gcnii_weighs_the_channels_of_several_labels_with_numbers_that_learn():
    dataset = graph()
    options = {"architecture": "gcnii", "depth": 1}
    mine, contender = model_of(dataset, "stack(gcn, identity)", **options)
    (weights,) = mine.mixes[0].parameters()
    one, other = weights.view(2, 8)
    first, beta = F.relu(mine.first(dataset.data.x)), mine.betas[0]
    mixed = 0.9 * (step_of(dataset) @ first * one + first * other) + 0.1 * first
    hidden = F.relu((1 - beta) * mixed + beta * mine.linears[0](mixed))
    assert_near(contender.inputs.logits(mine), mine.head(hidden))
    settings = Settings("KarateClub", "stack(gcn, identity)", "public", **options)
    (weights,) = ours(dataset, settings).model(C, settings).mixes[0].parameters()
    assert weights.requires_grad
    assert bool((weights == 0.5).all())


@pytest.mark.parametrize("features", ["dense", "sparse", "none"])
def test_linkx_is_pygs(features):
    dataset = graph(features != "none")
    stored = "dense" if features == "none" else features
    adjacency = "gcn(norm=None, add_self_loops=False)"
    options = {"architecture": "linkx", "depth": 3, "layer_norm": "batch", "features": stored}
    mine, contender = model_of(dataset, adjacency, **options)
    theirs = pyg.LINKX(N, N if features == "none" else P, 8, C, num_layers=3).eval()
    copied(theirs.edge_lin.weight, mine.nodes.theta.weight[0])
    copied(theirs.edge_lin.bias, mine.nodes.bias)
    copy_linear(theirs.node_mlp.lins[0], mine.first)
    copy_linear(theirs.cat_lin1, mine.beside_nodes)
    copy_linear(theirs.cat_lin2, mine.beside_features)
    for one, other in zip(theirs.final_mlp.lins, [*mine.linears, mine.head], strict=True):
        copy_linear(one, other)
    for one, other in zip(theirs.final_mlp.norms, mine.norms, strict=True):
        copy_linear(one.module, other)
    wanted, inputs = theirs(dataset.data.get("x"), dataset.data.edge_index), contender.inputs
    assert_near(inputs.logits(mine), wanted)
    assert_near(logits_by_layers(mine, inputs.x, inputs.structure, most_edges=7), wanted)


@pytest.mark.parametrize("architecture", ["gcnii", "linkx"])
def test_matrices_of_features_and_peers_are_refused(architecture):
    settings = Settings("KarateClub", "gat(heads=2)", "public", architecture=architecture)
    with pytest.raises(ValueError, match="a family whose values read no features, got gat"):
        ours(graph(), settings)
    with pytest.raises(ValueError, match="expected architecture layers or blocks"):
        peer(graph(), settings)


# What the guide says ------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "train.md").read_text()
PART = PAGE.split("## Models of papers")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| ([^|]+) \| `(--[^|]+)` \|", PART, re.M)


@pytest.mark.parametrize(("name", "line"), ROWS, ids=[name for name, _ in ROWS])
def test_models_of_the_guide_train(name, line, tmp_path):
    small = ["--epochs", "3", "--seeds", "1", "--hidden", "12", "--out", str(tmp_path / "run")]
    assert main(["train", "KarateClub", *shlex.split(line), *small]) == 0


# Configurations of tunedGNN -----------------------------------------------------------------------

TUNED = ROOT / "examples" / "tuned_gnn"
FILES = sorted(TUNED.glob("*.toml"))
LINES = re.findall(
    r"^\| \[(\w+)\]\(([\w.-]+)\) \| (.*) \|$", (TUNED / "README.md").read_text(), re.M
)
FAMILIES = {"GCN": "gcn", "GraphSAGE": "stack(gcn(norm='target'), identity)", "GAT": "gat"}


def test_each_configuration_has_a_line_and_each_line_one():
    assert {file.name for file in FILES} == {name for _, name, _ in LINES}


@pytest.mark.parametrize(("name", "file", "rest"), LINES, ids=[file for _, file, _ in LINES])
def test_a_configuration_of_tuned_gnn_is_that_of_its_line(name, file, rest):
    model, lr, width, layers, dropout, decay, epochs, norm, residual, first, published = (
        part.strip() for part in rest.split("|")
    )
    asked = read_settings(TUNED / file)
    assert asked.pop("dataset") == name
    settings = new_settings(entry(name), asked)
    actual = (settings.lr, settings.hidden, settings.depth, settings.dropout, settings.weight_decay)
    assert actual == (float(lr), int(width), int(layers), float(dropout), float(decay))
    assert (settings.epochs, settings.layer_norm) == (int(epochs), norm)
    assert settings.root_weight == (residual == "yes" and model != "GraphSAGE")
    assert settings.input_layer == ("linear" if first == "yes" else "none")
    assert asked["family"] == FAMILIES[model]
    assert (settings.skip, settings.select, settings.patience) == ("last", "metric", 0)
    assert settings.metric == ("auroc" if name == "Minesweeper" else "accuracy")
    assert re.fullmatch(r"\d\d\.\d\d ± \d\.\d\d", published)
