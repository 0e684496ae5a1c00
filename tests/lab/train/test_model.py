"""Models compute what their options say, at once and layer by layer, and decay what they say."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from run_folders import seed_run
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import to_dense_adj

from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.data import Dataset, entry, load
from pyg_outerconv.lab.train import NodeClassifier, Settings, make_split
from pyg_outerconv.lab.train.classifiers import logits_by_layers
from pyg_outerconv.lab.train.inputs import choose_features, settle_features
from pyg_outerconv.lab.train.loop import SeedRun
from pyg_outerconv.lab.train.model import ours
from pyg_outerconv.lab.train.peers import peer
from pyg_outerconv.testing import assert_near


class Mix(nn.Module):
    """A layer that is easy to follow: structure times x times a matrix."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_channels, out_channels))

    def forward(self, x, structure):
        return structure @ (self.weight if x is None else x @ self.weight)


def settings(**changes):
    given = {"dataset": "d", "family": "f", "split": "s", "hidden": 16, "dropout": 0.0}
    return Settings(**{**given, **changes})


def model(in_channels, **changes):
    torch.manual_seed(0)
    return NodeClassifier(in_channels, 3, Mix, settings(**changes)).eval()


STRUCTURE = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
X = torch.randn(5, 6, generator=torch.Generator().manual_seed(2))


def sent(conv, x):
    return STRUCTURE @ (conv.weight if x is None else x @ conv.weight)


def normed(x, dim):
    return (x - x.mean(dim, keepdim=True)) / (x.var(dim, keepdim=True, correction=0) + 1e-5).sqrt()


# Settings, channels of the features, and a hidden layer after its convolution, with its input if
# that is hidden.
HIDDEN = {
    "plain": ({"depth": 3}, 6, lambda out, x: out.relu()),
    "residual": ({"skip": "residual", "depth": 3}, 6, lambda out, x: out.relu() + x),
    "equal widths": (
        {"skip": "residual", "depth": 3, "hidden": 6},
        6,
        lambda out, x: out.relu() + x,
    ),
    "norm of channels": ({"layer_norm": "layer"}, 6, lambda out, x: normed(out, 1).relu()),
    "norm of nodes": ({"layer_norm": "batch"}, 6, lambda out, x: normed(out, 0).relu()),
    "an embedding of nodes": ({}, None, lambda out, x: out.relu()),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_hidden_layers_are_what_their_settings_say(case):
    changes, channels, layer = HIDDEN[case]
    made, x = model(channels or 5, **changes).train(), X if channels else None
    *hidden, last = made.convs
    out = x
    for number, conv in enumerate(hidden):
        out = layer(sent(conv, out), out if number else 0.0)
    torch.testing.assert_close(made(x, STRUCTURE), sent(last, out), atol=1e-4, rtol=1e-5)


def test_dropouts_act_in_training_alone():
    for name in ("dropout", "input_dropout"):
        made = model(6, **{name: 0.5})
        assert torch.equal(made(X, STRUCTURE), made(X, STRUCTURE))
        assert bool(made(X, STRUCTURE).any())  # else there is nothing to drop
        made.train()
        outputs = torch.stack([made(X, STRUCTURE) for _ in range(8)])
        assert bool((outputs != outputs[0]).any())


@pytest.mark.parametrize(("decay", "others"), [("all", 0.3), ("first", 0.0)])
def test_weight_decay_groups(decay, others):
    chosen = settings(decay=decay, weight_decay=0.3, depth=3)
    made = model(6, depth=3)
    first, rest = made.parameter_groups(chosen)
    assert [id(p) for p in first["params"]] == [id(made.convs[0].weight)]
    assert [id(p) for p in rest["params"]] == [id(conv.weight) for conv in made.convs[1:]]
    assert (first["weight_decay"], rest["weight_decay"]) == (0.3, others)


# Heads, residual blocks, propagated predictions ---------------------------------------------------


def graph(with_features=True):
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(12, (2, 40), generator=generator)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    known = Data(edge_index=edges, y=torch.arange(12) % 3, num_nodes=12)
    if with_features:
        known.x = torch.randn(12, 5, generator=generator)
    return Dataset(entry("KarateClub"), known, None, "")


def made(dataset, family, **options):
    settings = Settings("KarateClub", family, "public", **{"hidden": 8, **options})
    contender = ours(dataset, settings)
    torch.manual_seed(0)
    return contender.model(3, settings).eval(), contender


def logits(model, contender):
    return contender.inputs.logits(model, torch.arange(12))


def test_blocks_add_what_is_between_two_linear_layers():
    dataset = graph()
    x, edges = dataset.data.x, dataset.data.edge_index
    model, contender = made(
        dataset,
        "gcn(norm=target)",
        architecture="blocks",
        layer_norm="layer",
        activation="gelu",
        depth=2,
    )
    adjacency = to_dense_adj(edges, max_num_nodes=12)[0] + torch.eye(12)
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
    model, contender = made(dataset, family, hidden=4, **options)
    before = F.cross_entropy(logits(model, contender), dataset.data.y)
    groups = model.parameter_groups(Settings("KarateClub", family, "public"))
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    optimizer = torch.optim.Adam(groups, lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(model, contender), dataset.data.y)
        loss.backward()
        optimizer.step()
    assert loss < before


def test_blocks_read_sparse_features_and_none():
    dataset = graph()
    dense = made(dataset, "gcn", architecture="blocks", features="dense")
    sparse = made(dataset, "gcn", architecture="blocks", features="sparse")
    assert_near(logits(*sparse), logits(*dense))
    bare = graph(with_features=False)
    model, contender = made(bare, "gcn", architecture="blocks")
    bare.data.x = torch.eye(12)
    wanted, other = made(bare, "gcn", architecture="blocks", features="dense")
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
        made(graph(), family, **options)
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
    made = ours(dataset, settings)
    model, x, structure = made.model(4, settings), made.inputs.x, made.inputs.structure
    model(x, structure)  # statistics of batch norms
    with pytest.raises(ValueError, match="training mode"):
        logits_by_layers(model, x, structure)
    model.eval()
    for most in (7, 1000):
        found = logits_by_layers(model, x, structure, most_edges=most)
        torch.testing.assert_close(found, model(x, structure), rtol=1e-5, atol=1e-6)


# Runs on sparse features: the choice, and numbers equal to those on dense ones --------------------


SETTINGS = Settings(
    "KarateClub", "GCN()", "public", hidden=8, dropout=0.0, epochs=12, patience=0, seeds=2
)


def test_sparse_and_dense_runs_agree_where_no_input_is_dropped():
    club = data.load("KarateClub")
    runs = []
    for kept in ("sparse", "dense"):
        settings = replace(SETTINGS, features=kept)
        x = ours(club, settings).inputs.x
        assert (x.layout == torch.sparse_csr) == (kept == "sparse")
        made = seed_run(settings)
        for _ in range(SETTINGS.epochs):
            made.step()
        runs.append(made.history)
    for name, values in runs[0].items():
        assert values == pytest.approx(runs[1][name], abs=1e-5), name


def test_a_small_graph_is_kept_dense_and_a_peer_has_what_we_have():
    club = data.load("KarateClub")
    choice = choose_features(club, SETTINGS)
    assert (choice.kept, choice.shape, choice.num_entries) == ("dense", (34, 34), 34)
    assert settle_features(club, SETTINGS).features == "dense"
    for kept, layout in (("sparse", torch.sparse_csr), ("auto", torch.strided)):
        x = peer(club, replace(SETTINGS, features=kept)).inputs.x
        assert x.layout == layout


def test_the_choice_is_told():
    choice = choose_features(data.load("KarateClub"), replace(SETTINGS, features="sparse"))
    assert str(choice) == (
        "features: 2.9 % non-zero, stored sparse: X·Θ is predicted to take 15 % of the time of a "
        "dense product"
    )
    choice = choose_features(data.load("KarateClub"), SETTINGS)
    assert str(choice).startswith("features: 2.9 % non-zero, stored dense: 34 × 34 numbers are too")
    choice = choose_features(data.load("KarateClub"), replace(SETTINGS, device="mps"))
    assert str(choice).endswith("stored dense: torch has no sparse kernels on mps")


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


def test_cora_is_kept_sparse_and_its_numbers_stay(shared_data):
    cora = data.load("Cora", shared_data)
    settings = replace(SETTINGS, dataset="Cora", hidden=16, dropout=0.5)
    choice = choose_features(cora, settings)
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
