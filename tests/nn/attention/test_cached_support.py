"""Layers that keep the edges they attend to: what they give is what others give."""

import weakref

import pytest
import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.basis.additive_attention import AdditiveAttentionBasis
from pyg_outerconv.graph.graph import Graph
from pyg_outerconv.nn.attention.graph_attention import gat_conv
from pyg_outerconv.nn.bases import bases
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 3, 0, 4], [1, 2, 3, 0, 1, 2, 4]])


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
    edges = EDGES.clone()
    for nodes in (5, 5, 7, 5):
        x = torch.randn(nodes, 3).double()
        assert_near(kept(x, edges), anew(x, EDGES))
    with torch.no_grad():
        kept.theta.weight.mul_(2)
    assert not torch.allclose(kept(x, edges), anew(x, EDGES))


def test_layers_of_other_options_on_the_same_edges():
    edges, x = EDGES.clone(), torch.randn(5, 3).double()
    for _ in range(2):
        for options in ({}, {"add_self_loops": False}, {"flow": "target_to_source"}):
            kept, anew = pair(**options)
            assert_near(kept(x, edges), anew(x, EDGES))


def test_changes_in_place_and_sizes_are_seen():
    kept, anew = pair()
    edges, x = EDGES.clone(), torch.randn(5, 3).double()
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
    edges, x = EDGES.clone(), torch.randn(5, 3).double()
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
    many = EDGES.repeat(1, 2**12)  # a tiny graph is read anew
    for edges in (Graph.read(EDGES.clone(), size=(5, 5)), many):
        seen.clear()
        assert_near(conv(x, edges), conv(x, edges))
        assert len(seen) == 2
        assert seen[0] is seen[1]


def test_messages_are_sent_where_something_looks():
    kept, anew = pair()
    edges, x = EDGES.clone(), torch.randn(5, 3).double()
    expected = anew(x, EDGES)
    assert_near(kept(x, edges), expected)
    kept.fuse = False
    assert_near(kept(x, edges), expected)
    out, basis = kept(x, edges, return_attention_weights=True)
    assert_near(out, expected)
    assert basis.value.shape == (basis.num_edges, 2)
