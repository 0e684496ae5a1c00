"""Graph attention layers are PyG's, with their weights."""

import doctest
import math

import pytest
import torch
from against_pyg import (
    EDGES,
    NODES,
    Copied,
    D,
    P,
    Q,
    assert_equal,
    copy_gat,
    copy_gatv2,
    copy_transformer,
    of,
)
from torch_geometric.nn import (
    AGNNConv,
    GATConv,
    GATv2Conv,
    SuperGATConv,
    TransformerConv,
)

from pyg_outerconv.families import Hops
from pyg_outerconv.nn.attention import graph_attention
from pyg_outerconv.nn.attention.graph_attention import (
    agnn_conv,
    gat_conv,
    gatv2_conv,
    super_gat_conv,
)
from pyg_outerconv.nn.attention.transformer_conv import transformer_conv
from pyg_outerconv.testing import assert_near

both_types = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
each_end = pytest.mark.parametrize("concat", [True, False], ids=["concat", "mean"])
PAIR_EDGES = torch.tensor([[0, 5, 3, 2, 2, 6, 1], [1, 0, 1, 2, 3, 3, 1]])  # 7 sources, 4 targets


def compare(ours, theirs, copy_weights, dtype, edge_dim=None, pair=False, edges=None):
    """Both on one graph, or from 7 sources to 4 targets."""
    ours, theirs = ours.to(dtype), theirs.to(dtype)
    edges = (PAIR_EDGES if pair else EDGES) if edges is None else edges
    x = (of(dtype, 7, P), of(dtype, 4, P + 1)) if pair else of(dtype, NODES, P)
    attr = None if edge_dim is None else of(dtype, edges.size(1), edge_dim)
    inputs = [*(x if pair else [x]), *([] if attr is None else [attr])]
    beside = {} if attr is None else {"edge_attr": attr}
    run = lambda layer: layer(x, edges, **beside)  # noqa: E731
    copied = copy_weights(ours, theirs)
    assert_equal(ours, theirs, copied, inputs, run, run)
    ours.fuse = False
    assert_near(run(ours), run(theirs))


@both_types
@each_end
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_gat(dtype, concat, add_self_loops):
    options = {"heads": 3, "concat": concat, "add_self_loops": add_self_loops}
    compare(gat_conv(P, Q, **options), GATConv(P, Q, **options), copy_gat, dtype)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_gat_of_a_pair(residual, add_self_loops):
    options = {"heads": 2, "residual": residual, "add_self_loops": add_self_loops}
    channels = (P, P + 1)
    ours, theirs = gat_conv(channels, Q, **options), GATConv(channels, Q, **options)
    compare(ours, theirs, copy_gat, torch.float64, pair=True)


@each_end
@pytest.mark.parametrize("fill_value", ["mean", 0.7, "max"])
def test_gat_with_edge_features(concat, fill_value):
    options = {"heads": 2, "edge_dim": D, "fill_value": fill_value, "concat": concat}
    ours, theirs = gat_conv(P, Q, **options), GATConv(P, Q, **options)
    compare(ours, theirs, copy_gat, torch.float64, D)


def test_gat_with_edge_features_and_no_loops_added():
    options = {"heads": 2, "edge_dim": D, "add_self_loops": False, "negative_slope": 0.5}
    compare(gat_conv(P, Q, **options), GATConv(P, Q, **options), copy_gat, torch.float64, D)


@pytest.mark.parametrize("targets", [4, 7])
def test_gat_of_sources_alone(targets):
    options = {"heads": 2, "add_self_loops": targets == 7}
    ours, theirs = (make(P, Q, **options).double() for make in (gat_conv, GATConv))
    copy_gat(ours, theirs)
    x, size = torch.randn(7, P, dtype=torch.float64), (7, targets)
    expected = theirs((x, None), PAIR_EDGES, size=size)[:targets]
    assert_near(ours((x, None), PAIR_EDGES, size=size), expected)
    if targets == 4:
        support = ours.family.support.basis(PAIR_EDGES, size=size)
        assert_near(ours((x, None), support), expected)


def test_gat_of_a_pair_with_edge_features():
    channels, options = (P, P + 1), {"heads": 2, "edge_dim": D, "bias": False}
    ours, theirs = gat_conv(channels, Q, **options), GATConv(channels, Q, **options)
    compare(ours, theirs, copy_gat, torch.float64, D, pair=True)


@both_types
@each_end
@pytest.mark.parametrize("share_weights", [True, False])
def test_gatv2(dtype, concat, share_weights):
    options = {"heads": 3, "concat": concat, "share_weights": share_weights}
    compare(gatv2_conv(P, Q, **options), GATv2Conv(P, Q, **options), copy_gatv2, dtype)


@pytest.mark.parametrize("pair", [True, False])
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_gatv2_with_edge_features(pair, add_self_loops):
    options = {"heads": 2, "edge_dim": D, "add_self_loops": add_self_loops, "residual": pair}
    channels = (P, P + 1) if pair else P
    ours, theirs = gatv2_conv(channels, Q, **options), GATv2Conv(channels, Q, **options)
    compare(ours, theirs, copy_gatv2, torch.float64, D, pair=pair)


def test_gatv2_without_biases():
    options = {"heads": 2, "bias": False, "negative_slope": 0.4}
    ours, theirs = gatv2_conv(P, Q, **options), GATv2Conv(P, Q, **options)
    compare(ours, theirs, copy_gatv2, torch.float64)


@both_types
@each_end
@pytest.mark.parametrize("beta", [True, False])
@pytest.mark.parametrize("edge_dim", [None, D])
def test_transformer_conv(dtype, concat, beta, edge_dim):
    options = {"heads": 3, "concat": concat, "beta": beta, "edge_dim": edge_dim}
    ours, theirs = transformer_conv(P, Q, **options), TransformerConv(P, Q, **options)
    compare(ours, theirs, copy_transformer, dtype, edge_dim)


@pytest.mark.parametrize("root_weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_transformer_conv_of_a_pair(root_weight, bias):
    options = {"heads": 2, "root_weight": root_weight, "bias": bias, "edge_dim": D}
    channels = (P, P + 1)
    ours, theirs = transformer_conv(channels, Q, **options), TransformerConv(channels, Q, **options)
    if not root_weight:
        del theirs.lin_skip  # made, and never used
    compare(ours, theirs, copy_transformer, torch.float64, D, pair=True)


@both_types
@each_end
@pytest.mark.parametrize("attention_type", ["SD", "MX"])
def test_super_gat(dtype, concat, attention_type):
    options = {"heads": 3, "concat": concat, "negative_slope": 0.3}
    options["attention_type"] = attention_type
    ours = super_gat_conv(P, Q, **options)
    theirs = SuperGATConv(P, Q, **options).eval()  # training adds a loss

    def copy_weights(ours, theirs):
        copied = Copied()
        copied.linear(ours.theta.weight, None, theirs.lin, theirs.heads)
        copied.add(ours.bias, theirs.bias)
        if attention_type == "MX":
            copied.add(ours.family.score.att_source, theirs.att_l, lambda a: a[0])
            copied.add(ours.family.score.att_target, theirs.att_r, lambda a: a[0])
        return copied

    compare(ours, theirs, copy_weights, dtype)


@both_types
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_agnn(dtype, add_self_loops):
    ours, theirs = agnn_conv(add_self_loops=add_self_loops), AGNNConv(add_self_loops=add_self_loops)

    def copy_weights(ours, theirs):
        copied = Copied()
        copied.add(ours.family.score.beta, theirs.beta)
        return copied

    compare(ours, theirs, copy_weights, dtype)
    fixed = agnn_conv(requires_grad=False).to(dtype)
    x = torch.randn(NODES, P, dtype=dtype)
    assert not list(fixed.parameters())
    assert_near(fixed(x, EDGES), AGNNConv(requires_grad=False).to(dtype)(x, EDGES))


def test_attention_weights_are_pygs():
    ours, theirs = gat_conv(P, Q, 3).double(), GATConv(P, Q, 3).double()
    copy_gat(ours, theirs)
    x = torch.randn(NODES, P, dtype=torch.float64)
    out, basis = ours(x, EDGES, return_attention_weights=True)
    expected, (index, alpha) = theirs(x, EDGES, return_attention_weights=True)
    assert_near(out, expected)
    dense = torch.zeros(NODES, NODES, 3, dtype=torch.float64)
    dense = dense.index_put(tuple(index), alpha, accumulate=True)
    assert_near(basis.to_dense(), dense.movedim(-1, 0))
    index, alpha = basis.pattern.index, basis.value
    again = torch.zeros_like(dense).index_put(tuple(index), alpha, accumulate=True)
    assert_near(again, dense)
    place = basis.pattern.origin
    assert torch.equal(index[:, place >= 0].long(), EDGES[:, place[place >= 0].long()])
    assert int((place < 0).sum()) > 0  # self-loops that were added


def spans(parameter):
    """How far uniform values go, and how they spread."""
    value = parameter.detach()
    return float(value.abs().max()), float(value.std())


@pytest.mark.parametrize("channels", [40, -1, (40, 30), (-1, -1)], ids=str)
@pytest.mark.parametrize("kind", ["gat", "gatv2", "transformer"])
def test_parameters_begin_as_pygs(kind, channels):
    """The same bounds of uniform laws, sizes known from the start or not, and after a reset."""
    make, peer, copy_weights, edge_dim = {
        "gat": (gat_conv, GATConv, copy_gat, 30),
        "gatv2": (gatv2_conv, GATv2Conv, copy_gatv2, 30),
        "transformer": (transformer_conv, TransformerConv, copy_transformer, 30),
    }[kind]
    options = {"heads": 8, "edge_dim": edge_dim, "concat": True}
    ours, theirs = make(channels, 50, **options), peer(channels, 50, **options)
    x = torch.randn(5, 40)
    x = (x, torch.randn(5, 30)) if isinstance(channels, tuple) else x
    edges, attr = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.randn(3, edge_dim)
    first = ours(x, edges, edge_attr=attr).detach()
    theirs(x, edges, attr)
    # What drew the parameters did not come after.
    assert_near(ours(x, edges, edge_attr=attr), first)
    names = [name for name, _ in ours.named_parameters()]
    for _ in range(2):
        begun = {name: spans(parameter) for name, parameter in ours.named_parameters()}
        expected = {}
        theirs.reset_parameters()
        before = [(parameter, spans(parameter)) for parameter in theirs.parameters()]
        for mine, its, _ in copy_weights(ours, theirs).pairs:
            name = next(name for name in names if ours.get_parameter(name) is mine)
            expected[name] = next(span for parameter, span in before if parameter is its)
        assert expected.keys() == begun.keys()
        for name in names:
            assert math.isclose(begun[name][0], expected[name][0], rel_tol=0.08, abs_tol=1e-9), name
            assert math.isclose(begun[name][1], expected[name][1], rel_tol=0.15, abs_tol=1e-9), name
        ours.reset_parameters()


@pytest.mark.parametrize("make", [gat_conv, gatv2_conv, super_gat_conv, transformer_conv])
def test_attention_is_dropped_in_training_alone(make):
    layer, x = make(P, Q, dropout=0.5), torch.randn(NODES, P)
    assert bool((layer(x, EDGES) != layer(x, EDGES)).any())
    layer.eval()
    assert torch.equal(layer(x, EDGES), layer(x, EDGES))


def test_docstrings_run():
    found = doctest.testmod(graph_attention)
    assert found.attempted
    assert found.failed == 0


def test_a_support_stands_in_the_place_of_neighbours():
    torch.manual_seed(0)
    ours = gat_conv(P, Q, heads=2, support=Hops(2)).double()
    basis = ours.basis(of(torch.float64, NODES, P), EDGES)
    assert torch.equal(basis.pattern.index, Hops(2).basis(EDGES).edges().pattern.index)
