"""Laws of every class: caches, copies, new parameters, what looks at messages, memory, types."""

import copy
import io
import pickle

import pytest
import torch
from probes import Largest
from pyg.cases import CASES, GRAPH, arguments, pair
from pyg.parity import assert_close, by_size, compare, contracted, graphs
from torch.nn import Linear
from torch_geometric.explain import Explainer, GNNExplainer

from pyg_outerconv import pyg as ours
from pyg_outerconv.pyg import DropIn

OTHER, LARGER = graphs()["sorted"], graphs()["multi-edge"]
SMALL = "a graph so small that PyG's own layer is faster"
LAYERS = [name for name in CASES if issubclass(getattr(ours, name), DropIn)]
each = pytest.mark.parametrize("name", LAYERS)


@pytest.mark.parametrize("name", [name for name in LAYERS if "cached" in CASES[name].options])
def test_cached_keeps_the_first_graph_until_reset(name):
    its, mine = pair(name, cached=True)
    for graph in (GRAPH, OTHER):  # the second gives the results of the first
        args = arguments(name, graph=graph)
        assert_close(mine(*args), its(*args), 1e-10, "values")
    first = mine(*arguments(name))
    mine.reset_parameters()
    its.reset_parameters()
    its.load_state_dict(mine.state_dict())
    other = arguments(name, graph=LARGER)
    assert_close(mine(*other), its(*other), 1e-10, "values")
    assert not torch.equal(mine(*other), first)


def stored(layer):
    """The layer as it comes back from a file."""
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "copy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
    "file": stored,
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", CASES)
def test_copies_have_weights_of_their_own(name, how):
    layer, args = pair(name)[1].eval(), arguments(name)
    expected = layer(*args)
    copied = COPIES[how](layer)
    assert_close(copied(*args), expected, 0.0, "values")
    assert copied.why_not(*args) == layer.why_not(*args)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(1.0)
    assert_close(layer(*args), expected, 0.0, "values")
    if list(copied.parameters()):
        assert not torch.allclose(copied(*args), expected)


@pytest.mark.parametrize("name", CASES)
def test_new_parameters_are_read(name):
    its, mine = pair(name)
    args = arguments(name)
    mine(*args)
    torch.manual_seed(1)
    mine.reset_parameters()
    its.load_state_dict(mine.state_dict())
    compare(its, mine, args, CASES[name].compared_in(torch.float64))


@each
def test_a_subclass_that_overrides_messages_is_run_by_pyg(name):
    its, mine = pair(name)
    kind = type(mine)

    class Doubled(kind):
        def message(self, *args, **kwargs):
            return 2 * super().message(*args, **kwargs)

    mine.__class__ = type(kind.__name__, (Doubled,), {})
    expected, actual = its(*arguments(name)), mine(*arguments(name))
    assert mine.why_not()
    assert not torch.allclose(actual, expected)


@each
def test_hooks_see_messages(name):
    _, mine = pair(name)
    expected, seen = mine(*arguments(name)), []
    hook = mine.register_propagate_forward_hook(lambda module, args, out: seen.append(out))
    assert_close(mine(*arguments(name)), expected, 1e-6, "values")
    assert seen
    hook.remove()
    assert not mine.why_not()


EXPLAINED = ("GCNConv", "SAGEConv", "GraphConv", "GINConv", "LEConv", "GATConv", "TransformerConv")


@pytest.mark.parametrize("name", EXPLAINED)
def test_explainers_reach_messages(name):
    masks = []
    for layer in pair(name, torch.float32):
        torch.manual_seed(2)
        explainer = Explainer(
            layer,
            GNNExplainer(epochs=3),
            explanation_type="model",
            node_mask_type="object",
            edge_mask_type="object",
            model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
        )
        x, edge_index = arguments(name, torch.float32)
        masks.append(explainer(x.detach(), edge_index).edge_mask)
    assert_close(masks[1], masks[0], 1e-5, "masks")


@each
def test_a_call_in_training_keeps_the_recipe(name):
    layer = pair(name)[1]
    layer(*arguments(name))
    tied = layer._tied()
    layer(*arguments(name))
    assert layer._tied() is tied


@by_size
@each
def test_small_graphs_are_left_to_pyg(name):
    layer = pair(name)[1]
    assert layer.why_not(*arguments(name)) == ([SMALL] if layer.least else [])


def with_gradients(layer, args):
    """What a layer returns, and gradients in features and parameters."""
    learning = [one for one in (*args, *layer.parameters()) if getattr(one, "requires_grad", 0)]
    out = layer(*args)
    return out, torch.autograd.grad(out.sin().sum(), learning, allow_unused=True)


def narrow(args):
    """The arguments with edges of 32 bits."""
    return [
        one.int() if isinstance(one, torch.Tensor) and one.dtype == torch.int64 and one.dim() == 2
        else one
        for one in args
    ]  # fmt: skip


@each
def test_edges_of_32_bits_are_as_good(name):
    layer, args = pair(name)[1].eval(), arguments(name)
    if reasons := layer.why_not(*narrow(args)):
        assert SMALL not in reasons
        pytest.skip(f"PyG's own code: {reasons[0]}")
    actual = with_gradients(layer, narrow(args))
    layer.least = 0  # PyG's ClusterGCNConv counts in float32
    assert_close(actual, with_gradients(layer, args), 1e-10, "values, gradients")


@pytest.mark.parametrize("mode", ["node", "edge"])
def test_attention_of_hypergraphs_takes_indices_of_32_bits(mode):
    layer = ours.HypergraphConv(5, 3, use_attention=True, attention_mode=mode, heads=2).double()
    index = torch.stack([torch.randint(9, (40,)), torch.randint(6, (40,))])
    x, attr = torch.randn(9, 5, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
    actual, expected = (with_gradients(layer, (x, one, None, attr)) for one in (index.int(), index))
    assert_close(actual, expected, 1e-10, "values, gradients")


@pytest.mark.parametrize("name", [name for name in CASES if name != "MFConv"])  # PyG's fails
def test_autocast_is_as_close_to_the_truth_as_pygs(name):
    its, mine = (layer.eval() for layer in pair(name, torch.float32))
    exact = copy.deepcopy(its).double()(*arguments(name)).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outs = [layer(*arguments(name, torch.float32)) for layer in (its, mine)]
    of_pyg, of_ours = ((out.double() - exact).abs().max() for out in outs)
    assert of_ours <= 3 * of_pyg + 0.01 * exact.abs().max()
    for out in outs:
        out.float().sum().backward()
    learned = [[one.grad is not None for one in layer.parameters()] for layer in (its, mine)]
    assert learned[0] == learned[1]


C = 32
WIDE = {
    **dict.fromkeys(("GCNConv", "ARMAConv", "SGConv", "TAGConv", "MixHopConv"), (C, 4)),
    **dict.fromkeys(("GraphConv", "SAGEConv", "ClusterGCNConv", "LEConv"), (C, 4)),
    **dict.fromkeys(("LGConv", "SimpleConv", "AGNNConv"), ()),
    **dict.fromkeys(("GATConv", "GATv2Conv", "TransformerConv", "SuperGATConv"), (C, C)),
    "GCN2Conv": (C, 0.1),
    "ChebConv": (C, 4, 3),
    "SSGConv": (C, 4, 0.1, 2),
    "APPNP": (3, 0.1),
    "GINConv": (Linear(C, 4),),
    "GatedGraphConv": (C, 2),
    "FAConv": (C,),
    "RGATConv": (C, C, 3),
}


@contracted
@pytest.mark.parametrize("name", WIDE)
def test_no_tensor_of_edges_times_channels_is_held(name):
    torch.manual_seed(0)
    nodes, edges = 60, 20_000
    layer, x = getattr(ours, name)(*WIDE[name]), torch.randn(nodes, C, requires_grad=True)
    first = (x, x.detach()) if name in ("GCN2Conv", "FAConv") else (x,)
    types = (torch.randint(3, (edges,)),) if name == "RGATConv" else ()
    with Largest() as largest:
        layer(*first, torch.randint(nodes, (2, edges)), *types).sum().backward()
    assert largest.nbytes < 4 * edges * C // 2


EXPORTED = (
    *("GCNConv", "SAGEConv", "ChebConv", "GATConv", "GATv2Conv", "TransformerConv"),
    *("SuperGATConv", "AGNNConv", "FAConv", "RGATConv"),
)


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_layer_is_of_aten_operators_alone(name):
    layer, args = pair(name, torch.float32)[1].eval(), arguments(name, torch.float32)
    program = torch.export.export(layer, args).run_decompositions()
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not [one for one in called if "outerconv" in one]
    assert_close(program.module()(*args), layer(*args), 1e-5, "values")


@pytest.mark.parametrize("name", ["GCNConv", "SimpleConv", "GraphConv"])
def test_features_of_other_types_are_pygs(name):
    its, mine = pair(name)
    x, edge_index = arguments(name)
    weight = torch.rand(edge_index.size(1))
    for args in ((x.detach().long(), edge_index), (x[:, 0], edge_index), (x, edge_index, weight)):
        assert mine.why_not(*args)
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
    assert len(ours.SAGEConv(4, 3, aggr=["var", "mean", "std"]).recipe()[0]) == 1
    assert ours.SAGEConv(4, 3, aggr=["mean", "softmax"]).why_not()
