"""Compiled drop-in layers: one graph where PyG's is one, PyG's results, and what a page says."""

import copy
import pickle

import pytest
import torch
from pyg.cases import CASES
from pyg.parity import Drawn, assert_close, by_size, contracted, graphs, layers, tensors
from pyg.whole_graphs import line, recorded, whole
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map
from write_layers import FILE


@by_size
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", CASES)
def test_each_class_that_pyg_compiles_whole_is_whole_here_and_the_page_says_so(name):
    row = line(name)
    theirs, *ours = row.rstrip(" |\n").split(" | ")[1:]
    assert theirs == "no" or set(ours) == {"yes"}
    assert row in FILE.read_text(encoding="utf-8"), "python tests/write_layers.py --compile"


OPTIONS = [
    ("SAGEConv", {"aggr": ["mean", "max"]}),
    ("GATConv", {}),
    ("GATConv", {"edge_dim": 3}),
    ("GATConv", {"in_channels": (6, 6)}),
    ("GATConv", {"flow": "target_to_source"}),
    ("GATv2Conv", {"heads": 2}),
    ("GATv2Conv", {"edge_dim": 3}),
    ("SuperGATConv", {}),
    ("AGNNConv", {}),
    ("SGConv", {}),
    ("MixHopConv", {}),
    ("HypergraphConv", {}),
    ("TransformerConv", {}),
]


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("dtype", [torch.float64], ids=str)
@pytest.mark.parametrize(
    ("name", "options"), OPTIONS, ids=lambda one: one if isinstance(one, str) else ",".join(one)
)
def test_one_graph_has_pygs_results_and_gradients(name, options, dtype):
    theirs, ours = layers(CASES[name], options, dtype)
    call = "attributes" if "edge_dim" in options else next(iter(CASES[name].calls))
    kind = "pair" if isinstance(options.get("in_channels"), tuple) else "multi-edge"
    results = []
    for layer in (theirs.eval(), ours.eval()):
        torch.manual_seed(5)
        arguments = CASES[name].calls[call](Drawn(graphs()[kind], dtype))
        learning = [one for one in tensors(arguments) if one.requires_grad]
        if layer is ours:
            torch._dynamo.reset()
            layer = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
        out = layer(*arguments)
        ahead = torch.linspace(0.5, 1.5, out.numel(), dtype=dtype).view(out.shape)
        wanted = [*learning, *layer.parameters()]
        results.append([out, *torch.autograd.grad(out, wanted, ahead, materialize_grads=True)])
    assert_close(results[1], results[0], 1e-9, "values and gradients")


@contracted
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("learning", [True, False])
def test_edges_of_several_tiles_with_attributes_make_one_graph_for_every_number(
    learning, monkeypatch
):
    monkeypatch.setattr("pyg_outerconv.attention.sums.TILE_ELEMENTS", 64)
    theirs, ours = layers(CASES["GATv2Conv"], {"heads": 2, "edge_dim": 3}, torch.float64)
    compiled, called = recorded(ours, dynamic=True)
    for nodes, edges in ((20, 150), (13, 90), (40, 400)):
        x, attr = torch.randn(nodes, 6).double(), torch.randn(edges, 3).double()
        edge_index = torch.randint(nodes, (2, edges))
        with torch.set_grad_enabled(learning):
            actual, wanted = (one(x, edge_index, attr) for one in (compiled, theirs))
            assert_close([actual], [wanted], 1e-9, "values")
            if learning:
                grads = [
                    torch.autograd.grad(out.square().sum(), one.lin_edge.weight)
                    for out, one in ((actual, ours), (wanted, theirs))
                ]
                assert_close(*grads, 1e-9, "gradients")
    assert called.count("output") == 1


@pytest.mark.slow(cases=1)
def test_a_pair_may_have_other_numbers_of_nodes_than_of_channels():
    theirs, ours = layers(CASES["GATConv"], {"in_channels": (3, 2)}, torch.float64)
    ends = torch.randn(7, 3).double(), torch.randn(5, 2).double()
    edge_index = torch.stack([torch.randint(7, (20,)), torch.randint(5, (20,))])
    actual = torch.compile(ours, backend="eager", fullgraph=True, dynamic=True)(ends, edge_index)
    assert_close(actual, theirs(ends, edge_index), 1e-9, "values")


def is_ours(called):
    """Whether a graph calls a primitive of ours."""
    return "autograd_function" in called or "outerconv" in called


@by_size
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv"])
def test_a_small_graph_is_left_to_pyg_in_a_compiled_graph_too(name):
    _, layer = layers(CASES[name], {}, torch.float32)
    arguments = CASES[name].calls["plain"](Drawn(graphs()["directed"], torch.float32))
    for least, ours in ((0, True), (2**30, False)):
        layer.least = least
        compiled, called = recorded(layer, dynamic=True)
        compiled(*arguments)
        assert any(map(is_ours, called)) is ours


FEW = [
    ("GATConv", {}),
    ("GATConv", {"add_self_loops": False, "concat": False}),
    ("GATConv", {"residual": True, "flow": "target_to_source"}),
    ("GATv2Conv", {}),
    ("GATv2Conv", {"share_weights": True, "heads": 3}),
    ("TransformerConv", {}),
    ("TransformerConv", {"beta": True, "concat": False}),
    ("TransformerConv", {"root_weight": False, "flow": "target_to_source"}),
]


@by_size
@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("graph", ["multi-edge", "isolated", "empty"])
@pytest.mark.parametrize(("name", "options"), FEW, ids=lambda one: str(one))
def test_attention_over_few_edges_is_traced_whole_and_what_pygs_is(name, options, graph, scale):
    theirs, ours = layers(CASES[name], options, torch.float64)
    x, edge_index, *_ = CASES[name].calls["plain"](Drawn(graphs()[graph], torch.float64))
    x = (x * scale).detach().requires_grad_()
    (call, called), results = recorded(ours), []
    for layer in (call, theirs):
        out = layer(x, edge_index)
        ahead = torch.linspace(0.5, 1.5, out.numel(), dtype=x.dtype).view(out.shape)
        wanted = [x, *(theirs if layer is theirs else ours).parameters()]
        grads = torch.autograd.grad(out, wanted, ahead, materialize_grads=True, allow_unused=True)
        results.append([out, *grads])
    assert_close(results[0], results[1], 1e-9, "values and gradients")
    own = {one for one in called if "outerconv" in one}
    assert own == {"pyg_outerconv.highest_of_rows.default"}


def _with_an_option(layer):
    layer.node_dim = layer.node_dim  # any attribute may be an option
    return layer


UNTIED = {
    "after an option is set": _with_an_option,
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
}


@contracted
@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("change", UNTIED.values(), ids=UNTIED)
@pytest.mark.parametrize("name", ["GCNConv", "GATConv", "ARMAConv", "APPNP"])
def test_a_layer_that_never_ran_compiles_whole(name, change):
    arguments = CASES[name].calls["plain"](Drawn(graphs()["directed"], torch.float32))
    layer = change(layers(CASES[name], {}, torch.float32)[1].eval())
    wanted = copy.deepcopy(layer)(*arguments)
    compiled, called = recorded(layer)
    assert_close([compiled(*arguments)], [wanted], 1e-5, "values")
    assert any(map(is_ours, called))


@contracted
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv"])
def test_a_changed_option_is_seen_by_what_was_compiled(name):
    option = {"GCNConv": "add_self_loops", "SAGEConv": "root_weight"}[name]
    arguments = CASES[name].calls["plain"](Drawn(graphs()["directed"], torch.float32))
    theirs, ours = (layer.eval() for layer in layers(CASES[name], {}, torch.float32))
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    for value in (True, False):
        for layer in (theirs, ours):
            setattr(layer, option, value)
        assert_close([compiled(*arguments)], [theirs(*arguments)], 1e-5, str(value))


@pytest.mark.parametrize("where", ["meta", "fake"])
@pytest.mark.parametrize("name", CASES)
def test_layers_without_numbers_give_shapes_where_pygs_do(name, where):
    shapes = []
    for layer in layers(CASES[name], {}, torch.float32):
        arguments = next(iter(CASES[name].calls.values()))(
            Drawn(graphs()["directed"], torch.float32)
        )
        shapes.append(_shapes(layer.eval(), arguments, where))
    theirs, ours = shapes
    if theirs is not None:
        assert ours == theirs


def _shapes(layer, arguments, where):
    """The shapes of the results on meta or of fake tensors; None if they depend on numbers."""
    try:
        if where == "meta":
            return [one.shape for one in tensors(layer.to("meta")(*_each(arguments, _on_meta)))]
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = _each(arguments, lambda one: mode.from_tensor(one.detach()))
            return [one.shape for one in tensors(layer(*fake))]
    except (NotImplementedError, RuntimeError):
        return None


def _on_meta(tensor):
    return tensor.to("meta")


def _each(arguments, change):
    return tree_map(lambda one: change(one) if isinstance(one, torch.Tensor) else one, arguments)


@pytest.mark.slow
def test_whole_graphs_are_told_from_broken_ones():
    class Broken(torch.nn.Module):
        def forward(self, x):
            torch._dynamo.graph_break()
            return x

    assert whole(Broken(), (torch.ones(2),)) is None
