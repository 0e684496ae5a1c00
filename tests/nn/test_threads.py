"""A call writes nothing onto a layer, so that several threads may call one layer."""

import faulthandler
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric.utils import erdos_renyi_graph

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Directed, Identity, Relation, Stack, Walk
from pyg_outerconv.nn import (
    AttentionConv,
    ConvGRUCell,
    ConvLSTMCell,
    GridConv,
    GridPool,
    agnn_conv,
    gat_conv,
    gatv2_conv,
    super_gat_conv,
    transformer_conv,
)
from pyg_outerconv.testing import assert_near

P, Q, D = 3, 4, 2
FLOWS = ("source_to_target", "target_to_source")
FAMILIES = [GCN(), Walk(2), Chebyshev(3), Stack(Relation(1), Identity()), Directed(Walk(1))]


def outer(family, **options):
    def make(**given):
        return OuterConv(P, Q, family, **options, **given)

    return make


def of_graph(make, *args, **options):
    return lambda **given: make(*args, **options, **given)


GRAPH_LAYERS = {
    **{str(family): outer(family) for family in FAMILIES},
    "max": outer(GCN(), aggr="max"),
    "mean": outer(Directed(Relation(1)), aggr="mean", label_aggr="max"),
    "root": outer(GCN(), root_weight=True, cached=True),
    "low-rank": outer(Walk(2), theta="low-rank(rank=2)"),
    "attention": of_graph(AttentionConv, P, Q, heads=2),
    "attention-sum": of_graph(AttentionConv, P, Q, heads=2, combine="sum", normalise="sigmoid"),
    "gat": of_graph(gat_conv, P, Q, heads=2),
    "gat-edges": of_graph(gat_conv, P, Q, heads=2, edge_dim=D),
    "gatv2-edges": of_graph(gatv2_conv, P, Q, heads=2, edge_dim=D, fill_value="max"),
    "super-gat": of_graph(super_gat_conv, P, Q, heads=2),
    "transformer": of_graph(transformer_conv, P, Q, heads=2, edge_dim=D, beta=True),
    "agnn": of_graph(agnn_conv),
}
GRAPHS = [12, 7, 20, 9, 15, 5, 10, 14]


def graph_inputs(name, nodes):
    """x, edges, and features of these where the layer reads some."""
    edges = erdos_renyi_graph(nodes, 0.3, directed=True)
    given = {"x": torch.randn(nodes, P), "edge_index": edges}
    if "edges" in name or name == "transformer":
        given["edge_attr"] = torch.randn(edges.size(1), D)
    return given


def state_of(module):
    """What the parts of a module hold: the very objects, and what is in containers of hooks."""
    held = {}
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            held[name, key] = value
            if isinstance(value, dict):
                held[name, key, "keys"] = tuple(value)
    return held


def assert_alike(before, after):
    assert before.keys() == after.keys()
    changed = [
        key for key, value in before.items() if after[key] is not value and after[key] != value
    ]
    assert not changed


def assert_threads_agree(layer, inputs, call):
    """Results of threads are those of calls one after the other, and nothing is left behind."""
    expected = [call(layer, given) for given in inputs]
    before = state_of(layer)
    faulthandler.dump_traceback_later(300, exit=True)  # threads that wait for each other
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda given: call(layer, given), inputs * 3))
    faulthandler.cancel_dump_traceback_later()
    assert_alike(before, state_of(layer))
    for number, out in enumerate(found):
        for one, other in zip(out, expected[number % len(expected)], strict=True):
            assert_near(one, other)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("name", GRAPH_LAYERS)
def test_threads_share_a_layer(name, flow, fuse):
    layer = GRAPH_LAYERS[name](flow=flow).eval()
    layer.fuse = fuse
    inputs = [graph_inputs(name, nodes) for nodes in GRAPHS]

    def call(layer, given):
        if not isinstance(layer, AttentionConv):
            return (layer(**given).detach(),)
        out, basis = layer(**given, return_attention_weights=True)
        return out.detach(), basis.to_dense().detach()

    assert_threads_agree(layer, inputs, call)
    assert layer.flow == flow


@pytest.mark.parametrize("cell", [ConvGRUCell, ConvLSTMCell])
@pytest.mark.parametrize("family", [GCN(), Walk(2, direction="both")], ids=str)
def test_threads_share_a_cell(cell, family):
    def call(layer, given):
        state = layer(**given)
        state = layer(**given, state=state)
        return [h.detach() for h in (state if isinstance(state, tuple) else (state,))]

    inputs = [graph_inputs("", nodes) for nodes in GRAPHS]
    assert_threads_agree(cell(P, Q, family), inputs, call)


@pytest.mark.parametrize("make", [lambda: GridConv(P, Q, 3, dim=2), lambda: GridPool(2, dim=2)])
def test_threads_share_a_layer_on_grids_of_many_sizes(make):
    inputs = [{"x": torch.randn(2, P, 4 + at, 5 + at % 3)} for at in range(12)]
    assert_threads_agree(make(), inputs, lambda layer, given: (layer(**given).detach(),))


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", GRAPH_LAYERS)
def test_a_call_that_fails_leaves_nothing_behind(name, fuse):
    layer = GRAPH_LAYERS[name](flow=FLOWS[1])
    layer.fuse = fuse
    given = graph_inputs(name, 9)
    layer(**given)

    def fail(*_):
        raise RuntimeError("stop")

    layer.register_message_forward_hook(fail)
    before = state_of(layer)
    with pytest.raises(RuntimeError, match="stop"):
        layer(**given)
    assert_alike(before, state_of(layer))
