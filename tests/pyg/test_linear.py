"""What parity does not see of layers that are linear in messages: caches, copies, hooks, types."""

import copy
import pickle

import pytest
import torch
from probes import Largest
from pyg.cases import CASES
from pyg.parity import Drawn, assert_close, by_size, compare, contracted, graphs, layers
from torch_geometric import nn as theirs
from torch_geometric.explain import Explainer, GNNExplainer

from pyg_outerconv import pyg as ours

GRAPH = graphs()["directed"]
OTHER = graphs()["sorted"]
LINEAR = (
    *("GCNConv", "LGConv", "GCN2Conv", "ARMAConv", "ChebConv", "SGConv", "SSGConv", "TAGConv"),
    *("MixHopConv", "APPNP", "GraphConv", "SAGEConv", "SimpleConv", "GINConv", "GatedGraphConv"),
    *("ClusterGCNConv", "LEConv"),
)
each = pytest.mark.parametrize("name", LINEAR)


def drawn(name, graph=GRAPH, dtype=torch.float64):
    torch.manual_seed(8)
    return CASES[name].calls["plain"](Drawn(graph, dtype))


def pair(name, dtype=torch.float64, **options):
    return layers(CASES[name], options, dtype)


@pytest.mark.parametrize("name", ["GCNConv", "GCN2Conv", "SGConv", "SSGConv", "APPNP"])
def test_cached_keeps_the_first_graph_until_reset(name):
    its, mine = pair(name, cached=True)
    for graph in (GRAPH, OTHER):  # the second gives the results of the first
        arguments = drawn(name, graph)
        assert_close(mine(*arguments), its(*arguments), 1e-10, "values")
    first = mine(*drawn(name))
    mine.reset_parameters()
    mine.load_state_dict(its.state_dict())
    its.reset_parameters()
    its.load_state_dict(mine.state_dict())
    other = drawn(name, graphs()["multi-edge"])
    assert_close(mine(*other), its(*other), 1e-10, "values")
    assert not torch.equal(mine(*other), first)


@each
def test_copies_are_layers_of_their_own(name):
    _, mine = pair(name)
    arguments = drawn(name)
    expected = mine(*arguments)
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert_close(other(*arguments), expected, 1e-12, "values")
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(2)
        assert_close(mine(*arguments), expected, 0.0, "values")
        if any(True for _ in other.parameters()):
            assert not torch.allclose(other(*arguments), expected)


@each
def test_new_parameters_are_read(name):
    its, mine = pair(name)
    arguments = drawn(name)
    mine(*arguments)
    torch.manual_seed(1)
    mine.reset_parameters()
    its.load_state_dict(mine.state_dict())
    compare(its, mine, arguments, CASES[name].compared_in(torch.float64))


@each
def test_a_subclass_that_overrides_messages_is_run_by_pyg(name):
    its, mine = pair(name)
    kind = type(mine)

    class Doubled(kind):
        def message(self, *args, **kwargs):
            return 2 * super().message(*args, **kwargs)

    mine.__class__ = type(kind.__name__, (Doubled,), {})
    expected, found = its(*drawn(name)), mine(*drawn(name))
    assert mine.why_not()
    assert not torch.allclose(found, expected)


@each
def test_hooks_see_messages(name):
    _, mine = pair(name)
    expected, seen = mine(*drawn(name)), []
    hook = mine.register_propagate_forward_hook(lambda module, args, out: seen.append(out))
    assert_close(mine(*drawn(name)), expected, 1e-6, "values")
    assert seen
    hook.remove()
    assert not mine.why_not()


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GraphConv", "GINConv", "LEConv"])
def test_explainers_reach_messages(name):
    its, mine = pair(name, torch.float32)
    masks = []
    for layer in (its, mine):
        torch.manual_seed(2)
        explainer = Explainer(
            layer,
            GNNExplainer(epochs=3),
            explanation_type="model",
            node_mask_type="object",
            edge_mask_type="object",
            model_config={
                "mode": "regression",
                "task_level": "node",
                "return_type": "raw",
            },
        )
        x, edge_index = drawn(name, dtype=torch.float32)
        masks.append(explainer(x.detach(), edge_index).edge_mask)
    assert_close(masks[1], masks[0], 1e-5, "masks")


@each
def test_values_under_autocast_are_as_close_as_the_type_allows(name):
    its, mine = pair(name, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = (
            its(*drawn(name, dtype=torch.float32)),
            mine(*drawn(name, dtype=torch.float32)),
        )
    assert_close(found.float(), expected.float(), 5e-2, "values")


@contracted
@each
def test_no_tensor_of_edges_times_channels_is_held(name):
    torch.manual_seed(0)
    nodes, edges, channels = 60, 20_000, 32
    case, kind = CASES[name], getattr(ours, name)
    made = {"GINConv": lambda: kind(torch.nn.Linear(channels, 4))}.get(name)
    if made is None:
        made = {
            "GCN2Conv": lambda: kind(channels, 0.1),
            "GatedGraphConv": lambda: kind(channels, 2),
            "APPNP": lambda: kind(3, 0.1),
            "ChebConv": lambda: kind(channels, 4, 3),
            "SSGConv": lambda: kind(channels, 4, 0.1, 2),
        }.get(name, lambda: kind() if name in ("LGConv", "SimpleConv") else kind(channels, 4))
    layer, x = made(), torch.randn(nodes, channels, requires_grad=True)
    edge_index = torch.randint(nodes, (2, edges))
    first = (x, x.detach()) if case.name == "GCN2Conv" else (x,)
    with Largest() as largest:
        layer(*first, edge_index).sum().backward()
    assert largest.nbytes < 4 * edges * channels // 2


@pytest.mark.parametrize("name", ["GCNConv", "SimpleConv", "GraphConv"])
def test_features_of_other_types_are_pygs(name):
    its, mine = pair(name)
    x, edge_index = drawn(name)
    assert mine.why_not(x.detach().long(), edge_index)
    assert mine.why_not(x[:, 0], edge_index)
    assert mine.why_not(x, edge_index, torch.rand(edge_index.size(1)))
    weight = torch.rand(edge_index.size(1))
    assert mine(x, edge_index, weight).dtype == its(x, edge_index, weight).dtype


@by_size
def test_a_large_matrix_is_contracted():
    mine = ours.GCNConv(8, 4)
    matrix = torch.eye(5).to_sparse_csr()
    assert mine.why_not(torch.randn(5, 8), matrix) == ["a sparse matrix, which PyG multiplies with"]
    mine.least_of_matrices = 0
    assert not mine.why_not(torch.randn(5, 8), matrix)
    assert mine.why_not(torch.randn(5, 8), matrix.to_sparse_coo())


def test_variances_are_made_of_means():
    mine = ours.SAGEConv(4, 3, aggr=["var", "mean", "std"])
    assert len(mine.recipe()[0]) == 1
    assert ours.SAGEConv(4, 3, aggr=["mean", "softmax"]).why_not()
    assert isinstance(mine, theirs.SAGEConv)
