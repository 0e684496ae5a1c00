"""Edge features in scores and values, without a tensor of edges × channels."""

import pytest
import torch
from oracle import assert_same
from scores import CASES, D_EDGE, HEADS, TRIED, D, leaf, shown, try_score

from pyg_outerconv.attention import EdgeFeatures, KeyQuery, make_score, sums
from pyg_outerconv.families import GCN, Kernel, Relation
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.nn.edge_functions import EdgeNetwork
from pyg_outerconv.testing import assert_near

P, Q, N = 4, 6, 5
RING = CASES[0].index
WITH_EDGES = [text for text in TRIED if "edge" in text]


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_values_of_edges_are_summed_under_the_shares(case):
    tried = try_score("key-query", case)
    edge, heads = EdgeFeatures(D_EDGE, HEADS, 7).double(), tried.heads
    actual = edge.of_values(heads, tried.attr)
    pattern, each = heads.pattern, HEADS // heads.pattern.num_labels
    expected = torch.zeros(case.size[1], *case.batch, HEADS, 7, dtype=torch.float64)
    for number, (target, label) in enumerate(zip(pattern.target, pattern.label, strict=True)):
        own = slice(int(label) * each, (int(label) + 1) * each)
        sent = torch.einsum("d,hdc->hc", tried.attr[int(pattern.origin[number])], edge.weight[own])
        new = torch.zeros_like(expected)
        new[int(target), ..., own, :] = heads.value[number].unsqueeze(-1) * sent
        expected = expected + new
    assert_same(actual, expected, [tried.source, tried.attr, edge.weight])


@pytest.mark.parametrize("combine", ["concat", "sum", "mean"])
def test_edge_features_are_added_to_keys_and_values(combine):
    conv = AttentionConv(P, Q, HEADS, combine=combine, edge_dim=D_EDGE).double()
    x, attr = leaf(N, P), leaf(RING.size(1), D_EDGE)
    score = conv.family.score
    actual = conv(x, RING, edge_attr=attr)
    values = torch.einsum("mp,hpv->mhv", x, conv.theta.weight)
    sent = torch.einsum("ed,hdc->ehc", attr, score.edge.weight)
    products = (score.query(x)[RING[1]] * (score.key(x)[RING[0]] + sent)).sum(-1) * score.scale
    shares = torch.zeros_like(products)
    for target in range(N):
        here = RING[1] == target
        shares = shares.index_put((here.nonzero().view(-1),), products[here].softmax(0))
    received = (shares.unsqueeze(-1) * (values[RING[0]] + sent)).new_zeros(N, *values.shape[1:])
    received = received.index_add(0, RING[1], shares.unsqueeze(-1) * (values[RING[0]] + sent))
    together = {"concat": received.flatten(1), "sum": received.sum(1), "mean": received.mean(1)}
    expected = together[combine] + conv.bias
    assert_same(actual, expected, [x, attr, *conv.parameters()])
    assert_near(conv(torch.stack([x, 2 * x]), RING, edge_attr=attr)[0], expected)


def test_dropped_shares_are_dropped_from_edge_values_too():
    conv = AttentionConv(P, Q, HEADS, edge_dim=D_EDGE, dropout=0.5, bias=False).double()
    with torch.no_grad():
        conv.theta.weight.zero_()
    x, attr = leaf(N, P), leaf(RING.size(1), D_EDGE)
    actual, basis = conv(x, RING, edge_attr=attr, return_attention_weights=True)
    assert (basis.value == 0).any()
    assert_near(actual, conv.family.score.edge.of_values(basis, attr).flatten(1))


def test_self_loops_that_were_added_have_no_features():
    conv = AttentionConv(P, Q, HEADS, support=Relation(1, None), score="additive(edge_dim=2)")
    looped = torch.cat([RING, torch.arange(N).expand(2, -1)], 1)
    x, attr = torch.randn(N, P), torch.randn(RING.size(1), 2)
    expected = conv(x, looped, edge_attr=torch.cat([attr, torch.zeros(N, 2)]))
    score = conv.family.score
    again = AttentionConv(P, Q, HEADS, support=_Looped(), score=score)
    again.theta.load_state_dict(conv.theta.state_dict())
    assert_near(again(x, RING, edge_attr=attr), expected, 1e-5)


class _Looped(Relation):
    """The edges, and a self-loop of each node."""

    def basis_on(self, edges, dtype=None):
        """See Relation."""
        looped = edges.with_diagonal(torch.ones(N), torch.arange(N))
        basis = GCN(add_self_loops=False).basis_on(looped, dtype)
        return basis.pattern.with_values(None)


@pytest.mark.parametrize("text", WITH_EDGES)
def test_tiles_of_edges_change_nothing(text, monkeypatch):
    whole = try_score(text, CASES[7])
    first = whole.heads.value
    gradients = torch.autograd.grad(first.square().sum(), whole.source)
    monkeypatch.setattr(sums, "TILE_ELEMENTS", 2 * D)  # a few edges each
    del whole.__dict__["basis"]
    assert_near(whole.heads.value, first)
    again = torch.autograd.grad(whole.heads.value.square().sum(), whole.source)
    assert_near(again[0], gradients[0])


def test_an_alignment_may_read_edge_features():
    x, attr = torch.randn(N, P), torch.randn(RING.size(1), 2)
    conv = AttentionConv(P, Q, HEADS, align=Kernel(EdgeNetwork(2, 1, constant=False)))
    assert conv(x, RING, edge_attr=attr).shape == (N, Q)


def test_a_score_that_is_made_already_has_the_edge_features():
    score = KeyQuery(HEADS, D, P, edge=D_EDGE)
    conv = AttentionConv(P, Q, HEADS, score=score, edge_dim=D_EDGE)
    assert conv(torch.randn(N, P), RING, edge_attr=torch.randn(RING.size(1), D_EDGE)).shape == (
        N,
        Q,
    )


def test_one_module_may_serve_keys_and_values_of_several_layers():
    edge = EdgeFeatures(D_EDGE, HEADS, D)
    first, second = (KeyQuery(HEADS, D, P, edge=edge) for _ in range(2))
    assert first.edge is second.edge
    assert make_score("key-query(edge=2)", HEADS, D).edge.in_channels == 2
