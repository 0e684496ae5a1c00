"""A model that was accelerated gives what it gave, and keeps everything that it had."""

import copy
import pickle
import sys

import pytest
import torch
from pyg.parity import by_size, contracted
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch_geometric import nn as pyg
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import models

from pyg_outerconv import pyg as ours
from pyg_outerconv.pyg import accelerate, restore
from pyg_outerconv.pyg import layer as layer_file
from pyg_outerconv.pyg import sample as sample_file
from pyg_outerconv.pyg.sample import TOLERANCE, Sample, beyond_rounding, differences, is_told

N, E, P, Q = 40, 200, 8, 3


@pytest.fixture
def graph():
    torch.manual_seed(4)
    return torch.randn(N, P, requires_grad=True), torch.randint(N, (2, E))


def hetero():
    """A model of two relations, with pairs of features."""
    relations = {
        ("a", "to", "b"): pyg.SAGEConv((-1, -1), Q),
        ("b", "back", "a"): pyg.GraphConv((P, P), Q),
        ("a", "self", "a"): pyg.GCNConv(P, Q),
    }
    return pyg.HeteroConv(relations)


class Encoder(nn.Module):
    """Layers of PyG beside layers of torch."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = pyg.GCNConv(P, P), nn.BatchNorm1d(P)
        self.second, self.head = pyg.GATConv(P, Q, heads=2), nn.Linear(2 * Q, Q)

    def forward(self, x, edge_index):
        return self.head(self.second(self.norm(self.first(x, edge_index)).relu(), edge_index))


MODELS = {
    "layer": lambda: pyg.GCNConv(P, Q),
    "GCN": lambda: models.GCN(P, 16, 3, Q, dropout=0.5, norm="batch", jk="cat"),
    "GAT": lambda: models.GAT(P, 16, 2, Q, heads=2),
    "GraphSAGE": lambda: models.GraphSAGE(P, 16, 2, Q),
    "GAE": lambda: models.GAE(models.GCN(P, 16, 2, Q)),
    "encoder": Encoder,
    "Sequential": lambda: pyg.Sequential(
        "x, edge_index",
        [
            (pyg.GCNConv(P, 16), "x, edge_index -> x"),
            nn.ReLU(),
            (pyg.SAGEConv(16, Q), "x, edge_index -> x"),
        ],
    ),
    "GPSConv": lambda: pyg.GPSConv(P, pyg.GCNConv(P, P), heads=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_what_it_gave(name, graph):
    torch.manual_seed(0)
    model, (x, edge_index) = MODELS[name](), graph
    call = Sample((x, edge_index), {})
    before, keys, text = call.results(model), list(model.state_dict()), repr(model)
    report = accelerate(model)
    assert report.replaced
    assert not differences(before, call.results(model))
    assert (list(model.state_dict()), repr(model)) == (keys, text)
    assert restore(model) == report.replaced
    assert not any(isinstance(part, ours.DropIn) for part in model.modules())
    assert not differences(before, call.results(model))


def test_models_of_several_types_of_nodes():
    torch.manual_seed(0)
    x = {"a": torch.randn(9, P), "b": torch.randn(7, P)}
    edges = {
        ("a", "to", "b"): torch.stack([torch.randint(9, (30,)), torch.randint(7, (30,))]),
        ("b", "back", "a"): torch.stack([torch.randint(7, (30,)), torch.randint(9, (30,))]),
        ("a", "self", "a"): torch.randint(9, (2, 20)),
    }
    for model in (
        hetero(),
        pyg.to_hetero(models.GraphSAGE((-1, -1), 16, 2, Q), (list(x), list(edges))),
    ):
        model(x, edges)  # lazy parameters get their shapes
        call = Sample((x, edges), {})
        before = call.results(model)
        assert {row.kind for row in accelerate(model, x, edges, verify=True).rows} >= {"SAGEConv"}
        restore(model)
        assert len(accelerate(model).replaced) >= 2
        assert not differences(before, call.results(model))


def test_layers_are_the_same_objects_with_the_same_parameters(graph):
    model = models.GCN(P, 16, 2, Q)
    layers, parameters = list(model.modules()), list(model.parameters())
    optimizer = torch.optim.Adam(model.parameters())
    accelerate(model)
    assert [id(one) for one in model.modules()] == [id(one) for one in layers]
    assert [id(one) for one in model.parameters()] == [id(one) for one in parameters]
    before = [one.detach().clone() for one in parameters]
    model(*graph).sum().backward()
    optimizer.step()
    assert all(not torch.equal(one, other) for one, other in zip(before, parameters, strict=True))


def test_copies_pickles_types_and_states(graph):
    x, edge_index = graph
    model = models.GAT(P, 16, 2, Q)
    accelerate(model)
    out = model(x, edge_index)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(other.convs[0], ours.GATConv)
        assert torch.equal(other(x, edge_index), out)
        assert restore(other) == ["convs.0", "convs.1"]
    plain = models.GAT(P, 16, 2, Q)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(plain(x, edge_index), out, atol=1e-5, rtol=1e-5)
    wide = model.double()(x.double(), edge_index)
    torch.testing.assert_close(wide.float(), out, atol=1e-5, rtol=1e-5)


class Mine(pyg.GCNConv):
    """A layer of a user."""

    def message(self, x_j, edge_weight):
        return 2 * super().message(x_j, edge_weight)


def test_what_is_left_is_named():
    hooked, watched = pyg.GCNConv(P, P), pyg.GCNConv(P, P)
    hooked.register_message_forward_hook(lambda *_: None)
    watched.lin.register_forward_hook(lambda *_: None)
    normed = pyg.SAGEConv(P, P)
    weight_norm(normed.lin_l)
    own = pyg.GCNConv(P, P)
    own.message = lambda x_j, edge_weight: x_j
    model = nn.ModuleDict(
        {
            "subclass": Mine(P, P),
            "hooked": hooked,
            "watched": watched,
            "parametrised": normed,
            "own": own,
            "absent": pyg.EdgeConv(nn.Linear(2 * P, P)),
            "image": nn.Conv2d(3, 3, 3),
            "plain": pyg.GCNConv(P, P),
            "linear": nn.Linear(P, P),
        }
    )
    report = accelerate(model)
    assert report.replaced == ["plain"]
    assert report.left == {
        "subclass": "is a subclass of GCNConv",
        "hooked": "has hooks: <lambda>",
        "watched": "has hooks of lin: <lambda>",
        "parametrised": "the parameters of lin_l are parametrised",
        "own": "has a message of its own",
        "absent": report.left["absent"],
        "image": report.left["image"],
    }
    assert "both ends of an edge" in report.left["absent"]
    assert "from_torch" in report.left["image"]
    assert "left: is a subclass of GCNConv" in str(report)


def test_a_difference_is_noticed_and_undone(graph, monkeypatch):
    model, (x, edge_index) = models.GCN(P, 16, 2, Q), graph
    right = ours.GCNConv.forward
    monkeypatch.setattr(sys.modules[accelerate.__module__], "gains", lambda *_: {})
    monkeypatch.setattr(ours.GCNConv, "forward", lambda *x, **more: 1.01 * right(*x, **more))
    # Whatever the time of a layer on this small graph, it is replaced.
    monkeypatch.setattr(sys.modules[accelerate.__module__], "gains", lambda *_: {})
    with pytest.raises(ValueError, match="equal results"):
        accelerate(model, x, edge_index, verify=True)
    assert type(model.convs[0]) is pyg.GCNConv


def test_a_sample_is_timed_and_leaves_everything_as_it_was(graph, small_graphs):
    x, edge_index = graph
    model = models.GCN(P, 16, 2, Q, norm="batch", dropout=0.5).train()
    state, seed = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    report = accelerate(model, x, edge_index, verify=True)
    gains = [row.gain for row in report.rows]
    if small_graphs == "contracted":
        assert all(gain is not None and gain > 0 for gain in gains)
    else:  # both sides run PyG's code
        assert gains == [None, None]
        assert "a graph so small" in report.left["convs.0"]
    assert model.training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), seed)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert x.grad is None


def test_a_layer_that_is_timed_makes_its_contraction_once_and_not_at_each_call(monkeypatch):
    calls, make = [], layer_file.make_tied
    monkeypatch.setattr(layer_file, "make_tied", lambda layer: calls.append(1) or make(layer))
    monkeypatch.setattr(ours.GCNConv, "least", 0)
    monkeypatch.setattr(sample_file, "is_told", lambda ratios: len(ratios) == 20)
    layer, edge_index = pyg.GCNConv(P, Q), torch.randint(N, (2, E))
    assert accelerate(layer, torch.randn(N, P), edge_index).rows[0].gain is not None
    assert len(calls) <= 3  # for its options, for the sample, and for the calls that follow


def test_only_what_learns_in_the_model_learns_where_a_layer_is_timed(graph):
    x, edge_index = graph
    fresh = Sample((x, x.detach(), edge_index), {}).fresh().positional
    assert [one.requires_grad for one in fresh] == [True, False, False]


CACHED = {
    "GCNConv": lambda: pyg.GCNConv(P, P, cached=True),
    "SGConv": lambda: pyg.SGConv(P, P, cached=True),
    "SSGConv": lambda: pyg.SSGConv(P, P, 0.1, cached=True),
    "APPNP": lambda: pyg.APPNP(2, 0.1, cached=True),
}


@contracted
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("name", CACHED)
def test_a_cached_layer_does_not_keep_the_graph_of_the_sample(name, verify, graph):
    x, edge_index = graph
    layer = CACHED[name]()
    untouched = copy.deepcopy(layer)
    accelerate(layer, x[:9], edge_index[:, :50] % 9, verify=verify)
    assert torch.allclose(layer(x, edge_index), untouched(x, edge_index), atol=1e-5)


def test_a_report_says_where_there_is_nothing_to_replace():
    assert str(accelerate(nn.Linear(3, 3))) == "the model has no layers of PyG"


def test_a_report_tells_of_equal_results_only_where_a_layer_was_replaced(graph, monkeypatch):
    same, left = "values and gradients on the sample are equal", pyg.EdgeConv(nn.Linear(2 * P, P))
    monkeypatch.setattr(sys.modules[accelerate.__module__], "gains", lambda *_: {})
    assert same in str(accelerate(pyg.GCNConv(P, Q), *graph, verify=True))
    assert same not in str(accelerate(left, *graph, verify=True))


def test_a_sample_is_called_with_gradients_in_inference_mode_too(graph):
    model = models.GCN(P, 16, 2, Q)
    with torch.inference_mode():
        report = accelerate(model, *graph, verify=True)
    assert report.verified


@pytest.mark.parametrize(
    ("ratios", "told"),
    [([2.0] * 7, False), ([2.0] * 8, True), ([0.1, 34.0] * 10, False), ([1.0, 1.05] * 10, True)],
    ids=["too few", "equal", "apart", "close"],
)
def test_a_gain_is_told_by_enough_calls(ratios, told):
    assert is_told(ratios) is told


def test_layers_that_always_run_pygs_code_are_left_with_the_reason(graph):
    model = nn.ModuleDict(
        {
            "lstm": pyg.SAGEConv(P, P, aggr="lstm"),
            "median": pyg.SAGEConv(P, P, aggr="median"),
            "directed": pyg.DirGNNConv(pyg.ResGatedGraphConv(P, P)),
            "of gcn": pyg.DirGNNConv(pyg.GCNConv(P, P)),
            "bias": pyg.GCNConv(P, P),
            "lazy": pyg.SAGEConv(-1, P),
        }
    )
    model["bias"].lin = nn.Linear(P, P)
    report = accelerate(model)
    assert report.replaced == ["of gcn", "of gcn.conv_in", "of gcn.conv_out", "lazy"]
    assert "aggr=lstm" in report.left["lstm"]
    assert "aggr=median" in report.left["median"]
    assert "no equal class" in report.left["directed"]
    assert "replaced by another module" in report.left["bias"]
    assert type(model["median"]) is pyg.SAGEConv


def test_an_explained_layer_is_accelerated(graph):
    x, edge_index = graph[0].detach(), graph[1]
    model = models.GCN(P, 16, 2, Q)
    config = {"mode": "regression", "task_level": "node", "return_type": "raw"}
    algorithm = GNNExplainer(epochs=2)
    Explainer(model, algorithm, "model", edge_mask_type="object", model_config=config)(
        x, edge_index
    )
    assert accelerate(model).replaced == ["convs.0", "convs.1"]


def test_hooks_on_calls_of_a_layer_stay(graph):
    model, seen = models.GCN(P, 16, 2, Q), []
    for layer in model.convs:
        layer.register_forward_hook(lambda layer, inputs, output: seen.append(output))
    assert accelerate(model).replaced == ["convs.0", "convs.1"]
    model(*graph)
    assert len(seen) == 2


@pytest.mark.parametrize(("ours_is_off", "is_named"), [(3e-3, False), (3e-2, True)])
def test_rounding_is_told_from_errors_by_float64(ours_is_off, is_named):
    """Of a gradient that cancels, in which PyG's float32 is off by 1e-3 of 1e-2."""
    exact = {"gradient of att": torch.tensor([0.01, 0.0], dtype=torch.float64)}
    before, after = ({"gradient of att": torch.tensor([0.01, off])} for off in (1e-3, ours_is_off))
    apart = differences(before, after)
    assert apart
    assert beyond_rounding(apart, before, after, exact) == (apart if is_named else [])


@by_size
def test_the_gradients_of_scores_that_cancel_pass(monkeypatch):
    monkeypatch.setitem(TOLERANCE, torch.float32, 1e-8)
    torch.manual_seed(0)
    x, edge_index = torch.randn(3000, 16), torch.randint(3000, (2, 40_000))
    model = models.GAT(16, 32, 2, Q)
    call = Sample((x, edge_index), {})
    before = call.results(model)
    accelerate(model)
    assert differences(before, call.results(model))  # of PyG's rounding and ours
    restore(model)
    assert accelerate(model, x, edge_index, verify=True).verified


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("first", ["compile", "accelerate"])
@pytest.mark.parametrize("name", ["GCN", "GAT"])
def test_before_and_after_compile(name, first, graph):
    x, edge_index = graph
    model = getattr(models, name)(P, 16, 2, Q)
    expected = model(x, edge_index)
    if first == "accelerate":
        accelerate(model)
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x, edge_index), expected, atol=1e-5, rtol=1e-4)
    if first == "compile":
        report = accelerate(compiled)
        assert report.replaced == ["_orig_mod.convs.0", "_orig_mod.convs.1"]
    torch.testing.assert_close(compiled(x, edge_index), expected, atol=1e-5, rtol=1e-4)
