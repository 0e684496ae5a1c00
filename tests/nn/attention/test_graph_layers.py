"""Graph attention as PyG's, under explainers' masks, and with the edges that a layer keeps."""

import math

import pytest
import torch
from against_pyg import EDGES, NODES, D, P, Q, pair_of
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from pyg_outerconv import AttentionConv
from pyg_outerconv.attention import RelativeBias
from pyg_outerconv.families import Hops
from pyg_outerconv.nn.attention.graph_attention import (
    agnn_conv,
    gat_conv,
    gatv2_conv,
    super_gat_conv,
    transformer_conv,
)
from pyg_outerconv.pyg import outer_conv
from pyg_outerconv.testing import assert_near

PAIR_EDGES = torch.tensor([[0, 5, 3, 2, 2, 6, 1], [1, 0, 1, 2, 3, 3, 1]])  # 7 sources, 4 targets


KINDS = {
    "gat": (gat_conv, GATConv),
    "gatv2": (gatv2_conv, GATv2Conv),
    "transformer": (transformer_conv, TransformerConv),
}


@pytest.mark.parametrize("targets", [4, 7])
def test_gat_of_sources_alone(targets):
    options = {"heads": 2, "add_self_loops": targets == 7}
    ours, theirs = pair_of(*(make(P, Q, **options).double() for make in (gat_conv, GATConv)))
    x, size = torch.randn(7, P, dtype=torch.float64), (7, targets)
    expected = theirs((x, None), PAIR_EDGES, size=size)[:targets]
    assert_near(ours((x, None), PAIR_EDGES, size=size), expected)
    if targets == 4:
        support = ours.family.support.basis(PAIR_EDGES, size=size)
        assert_near(ours((x, None), support), expected)


def test_attention_weights_are_pygs():
    ours, theirs = pair_of(gat_conv(P, Q, 3).double(), GATConv(P, Q, 3).double())
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
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_begin_as_pygs(kind, channels):
    """The same bounds of uniform laws, sizes known from the start or not, and after a reset."""
    options = {"heads": 8, "edge_dim": 30, "concat": True}
    ours, theirs = (make(channels, 50, **options) for make in KINDS[kind])
    x = torch.randn(5, 40)
    x = (x, torch.randn(5, 30)) if isinstance(channels, tuple) else x
    edges, attr = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.randn(3, 30)
    first = ours(x, edges, edge_attr=attr).detach()
    theirs(x, edges, attr)
    # What drew the parameters did not come after.
    assert_near(ours(x, edges, edge_attr=attr), first)
    for _ in range(2):
        theirs.reset_parameters()
        actual, expected = (
            {name: spans(one) for name, one in layer.named_parameters()}
            for layer in (ours, outer_conv(theirs))
        )
        assert actual.keys() == expected.keys()
        for name, (largest, spread) in actual.items():
            assert math.isclose(largest, expected[name][0], rel_tol=0.08, abs_tol=1e-9), name
            assert math.isclose(spread, expected[name][1], rel_tol=0.15, abs_tol=1e-9), name
        ours.reset_parameters()


@pytest.mark.parametrize("make", [gat_conv, gatv2_conv, super_gat_conv, transformer_conv])
def test_attention_is_dropped_in_training_alone(make):
    layer, x = make(P, Q, dropout=0.5), torch.randn(NODES, P)
    assert bool((layer(x, EDGES) != layer(x, EDGES)).any())
    layer.eval()
    assert torch.equal(layer(x, EDGES), layer(x, EDGES))


def test_a_given_support_is_that_of_the_edges():
    support, x = Hops().basis(EDGES, size=(NODES, NODES)), torch.randn(NODES, P)
    for conv, beside in (
        (AttentionConv(P, Q, 2, aggr="mean"), {}),
        (transformer_conv(P, Q, 2, edge_dim=D), {"edge_attr": torch.randn(EDGES.size(1), D)}),
        (AttentionConv(P, Q, 2, terms=(RelativeBias(2, 3),)), {"pos": torch.arange(9.0)[:, None]}),
    ):
        assert_near(conv(x, support, **beside), conv(x, EDGES, **beside))


@pytest.mark.parametrize("edge_dim", [None, D])
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_self_loops_can_be_switched_as_in_pyg(kind, edge_dim):
    ours, theirs = pair_of(*(make(P, Q, edge_dim=edge_dim) for make in KINDS[kind]))
    x = torch.randn(NODES, P)
    beside = {} if edge_dim is None else {"edge_attr": torch.randn(EDGES.size(1), D)}
    flows = "source_to_target", "target_to_source"
    for add, fill, flow in ((True, "mean", 0), (False, "max", 1), (True, "add", 1), (True, 2.0, 0)):
        for layer in (ours, theirs):
            layer.add_self_loops, layer.fill_value, layer.flow = add, fill, flows[flow]
        assert ours.add_self_loops == add
        assert_near(ours(x, EDGES, **beside), theirs(x, EDGES, **beside))


@pytest.mark.parametrize("kind", ["gat", "transformer"])
def test_masks_reach_what_edge_features_add(kind):
    conv, x = KINDS[kind][0](P, Q, edge_dim=D), torch.randn(NODES, P)
    attr, ones = torch.randn(EDGES.size(1), D), torch.ones(EDGES.size(1))
    plain = conv(x, EDGES, edge_attr=attr)
    set_masks(conv, ones, EDGES, apply_sigmoid=False)
    assert_near(conv(x, EDGES, edge_attr=attr), plain)
    set_masks(conv, 0 * ones, EDGES, apply_sigmoid=False)
    nothing = conv(x, EDGES, edge_attr=attr)
    clear_masks(conv)
    if kind == "transformer":
        assert_near(nothing, conv.skip(x))
    else:  # what the loops bring, which were added
        _, basis = conv(x, EDGES, edge_attr=attr, return_attention_weights=True)
        own = basis.to_dense()[0].diagonal()[:, None] * (x @ conv.theta.weight[0])
        assert_near(nothing, own + conv.bias)


@pytest.mark.parametrize("edge", [0, 4, 7])
def test_masking_one_edge_with_features_is_pygs(edge):
    ours, theirs = pair_of(*(make(P, Q, 2, edge_dim=D) for make in KINDS["transformer"]))
    x, attr = torch.randn(NODES, P), torch.randn(EDGES.size(1), D)
    mask = torch.ones(EDGES.size(1))
    mask[edge] = 0.25
    for conv in (ours, theirs):
        set_masks(conv, mask, EDGES, apply_sigmoid=False)
    assert_near(ours(x, EDGES, edge_attr=attr), theirs(x, EDGES, attr))


def test_repr_says_what_attention_is_made_of():
    assert repr(agnn_conv()) == (
        "AttentionConv(-1, -1, heads=1, support=Hops(length=1, add_self_loops=True), "
        "score='cosine', normalise=Softmax(), combine='sum')"
    )


def test_a_support_stands_in_the_place_of_neighbours():
    torch.manual_seed(0)
    ours = gat_conv(P, Q, heads=2, support=Hops(2)).double()
    basis = ours.basis(torch.randn(NODES, P, dtype=torch.float64), EDGES)
    assert torch.equal(basis.pattern.index, Hops(2).basis(EDGES).edges().pattern.index)
