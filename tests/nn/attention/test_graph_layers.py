"""Graph attention as PyG's, and with the edges that a layer keeps."""

import math
import weakref

import pytest
import torch
from against_pyg import (
    EDGES,
    NODES,
    P,
    Q,
    copy_gat,
    copy_gatv2,
    copy_transformer,
)
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    TransformerConv,
)

from pyg_outerconv import OuterConv
from pyg_outerconv.basis.additive_attention import AdditiveAttentionBasis
from pyg_outerconv.families import Hops
from pyg_outerconv.graph.graph import Graph
from pyg_outerconv.nn.attention.graph_attention import (
    gat_conv,
    gatv2_conv,
    super_gat_conv,
    transformer_conv,
)
from pyg_outerconv.nn.bases import bases
from pyg_outerconv.testing import assert_near

PAIR_EDGES = torch.tensor([[0, 5, 3, 2, 2, 6, 1], [1, 0, 1, 2, 3, 3, 1]])  # 7 sources, 4 targets


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


def test_a_support_stands_in_the_place_of_neighbours():
    torch.manual_seed(0)
    ours = gat_conv(P, Q, heads=2, support=Hops(2)).double()
    basis = ours.basis(torch.randn(NODES, P, dtype=torch.float64), EDGES)
    assert torch.equal(basis.pattern.index, Hops(2).basis(EDGES).edges().pattern.index)


KEPT_EDGES = torch.tensor([[0, 1, 2, 3, 3, 0, 4], [1, 2, 3, 0, 1, 2, 4]])


def pair(**options):
    """A layer that keeps its support, and the same without."""
    kept = gat_conv(3, 2, heads=2, cached=True, **options).double()
    anew = gat_conv(3, 2, heads=2, cached=False, **options).double()
    anew.load_state_dict(kept.state_dict())
    return kept, anew


@pytest.mark.parametrize("options", [{}, {"add_self_loops": False}, {"residual": True}], ids=str)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_the_same_edges_again_give_the_same(options, flow):
    kept, anew = pair(flow=flow, **options)
    edges = KEPT_EDGES.clone()
    for nodes in (5, 5, 7, 5):
        x = torch.randn(nodes, 3).double()
        assert_near(kept(x, edges), anew(x, KEPT_EDGES))
    with torch.no_grad():
        kept.theta.weight.mul_(2)
    assert not torch.allclose(kept(x, edges), anew(x, KEPT_EDGES))


def test_layers_of_other_options_on_the_same_edges():
    edges, x = KEPT_EDGES.clone(), torch.randn(5, 3).double()
    for _ in range(2):
        for options in ({}, {"add_self_loops": False}, {"flow": "target_to_source"}):
            kept, anew = pair(**options)
            assert_near(kept(x, edges), anew(x, KEPT_EDGES))


def test_changes_in_place_and_sizes_are_seen():
    kept, anew = pair()
    edges, x = KEPT_EDGES.clone(), torch.randn(5, 3).double()
    kept(x, edges)
    edges[0, 0] = 4
    assert_near(kept(x, edges), anew(x, edges.clone()))
    with pytest.raises(ValueError, match="source"):
        kept(x[:4], edges)
    with pytest.raises(ValueError, match="source"):
        kept(x[:4], edges)
    pair_of_x = x, torch.randn(5, 3).double()
    assert_near(kept(pair_of_x, edges), anew(pair_of_x, edges.clone()))


def test_what_is_kept_is_gone_with_its_edges():
    kept, _ = pair()
    edges, x = KEPT_EDGES.clone(), torch.randn(5, 3).double()
    before = len(bases)
    kept(x, edges)
    assert len(bases) == before + 1
    held = weakref.ref(x)
    del x
    assert held() is None  # features are not kept
    del edges
    assert len(bases) == before


@pytest.mark.parametrize("make", [gat_conv, lambda p, q, heads: OuterConv(p, q, f"gat({heads})")])
def test_edges_of_a_graph_are_sorted_once(make, monkeypatch):
    sums, seen = AdditiveAttentionBasis.sums, []
    watched = lambda basis: seen.append(basis.over.pattern) or sums(basis)  # noqa: E731
    monkeypatch.setattr(AdditiveAttentionBasis, "sums", watched)
    conv, x = make(3, 4, heads=2).double(), torch.randn(5, 3).double()
    many = KEPT_EDGES.repeat(1, 2**12)  # a tiny graph is read anew
    for edges in (Graph.read(KEPT_EDGES.clone(), size=(5, 5)), many):
        seen.clear()
        assert_near(conv(x, edges), conv(x, edges))
        assert len(seen) == 2
        assert seen[0] is seen[1]


def test_messages_are_sent_where_something_looks():
    kept, anew = pair()
    edges, x = KEPT_EDGES.clone(), torch.randn(5, 3).double()
    expected = anew(x, KEPT_EDGES)
    assert_near(kept(x, edges), expected)
    kept.fuse = False
    assert_near(kept(x, edges), expected)
    out, basis = kept(x, edges, return_attention_weights=True)
    assert_near(out, expected)
    assert basis.value.shape == (basis.num_edges, 2)
