"""Attention on edges so few that they are not sorted: what it is on edges that are."""

import pytest
import torch
from scores import leaf

from pyg_outerconv.basis.multi_head_edges import MultiHeadEdges
from pyg_outerconv.kernels import edge_sums
from pyg_outerconv.kernels.edge_sums import Listed
from pyg_outerconv.nn.attention.graph_attention import gat_conv, gatv2_conv, transformer_conv
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near
from pyg_outerconv.testing.reference import derivatives

P, NODES = 4, 6
# Parallel edges, a loop, and node 5, which nothing reaches but itself where loops are added.
EDGES = torch.tensor([[4, 0, 1, 2, 0, 3, 0, 2], [0, 1, 2, 2, 1, 4, 1, 3]])
LAYERS = {
    "gat": lambda: gat_conv(P, 3, heads=2),
    "gat-means": lambda: gat_conv(P, 3, heads=2, concat=False, add_self_loops=False),
    "gat-of-narrow-values": lambda: gat_conv(P, 1, heads=2, edge_dim=2, fill_value=0.5),
    "gat-with-edges": lambda: AttentionConv(P, 4, 2, score="additive(edge_dim=2)"),
    "gatv2": lambda: gatv2_conv(P, 3, heads=2),
    "gatv2-with-edges": lambda: gatv2_conv(P, 3, heads=2, edge_dim=2),
    "supergat": lambda: AttentionConv(P, 4, 2, score="supergat-sd"),
    "key-query": lambda: AttentionConv(P, 4, 2),
    "transformer": lambda: transformer_conv(P, 3, heads=2),
    "own-projection": lambda: AttentionConv(P, 4, 2, score="additive(own=True)"),
    "maxima": lambda: AttentionConv(P, 4, 2, score="additive", aggr="max"),
    "means": lambda: AttentionConv(P, 4, 2, score="additive", aggr="mean"),
    "best-heads": lambda: AttentionConv(P, 4, 2, score="additive", combine="sum", label_aggr="max"),
    "value-output": lambda: AttentionConv(
        P, 4, 2, score="additive", combine="sum", value_channels=3, value_bias=True
    ),
}
OF_ONE_ITEM = {"maxima", "means", "best-heads"}
WITH_EDGES = {"gat-of-narrow-values", "gat-with-edges", "gatv2-with-edges"}


@pytest.fixture
def few(monkeypatch):
    """Say how many numbers are few."""
    return lambda most: monkeypatch.setattr(edge_sums, "MOST", most)


def results(conv, x, attributes, depth=2, **beside):
    """What a layer gives, and its derivatives by x and the parameters."""
    out = conv(x, EDGES, edge_attr=attributes[0] if attributes else None, **beside)
    return derivatives(out, [x, *attributes, *conv.parameters()], depth)


@pytest.mark.parametrize("batch", [(), (2,)], ids=["", "batch"])
@pytest.mark.parametrize("name", LAYERS)
def test_few_edges_give_what_sorted_ones_do(name, batch, few):
    if batch and name in OF_ONE_ITEM:
        pytest.skip("edges of heads are of no batch")
    conv, x = LAYERS[name]().double(), leaf(*batch, NODES, P)
    attributes = [leaf(EDGES.size(1), 2)] if name in WITH_EDGES else []
    few(2**15)
    actual = results(conv, x, attributes)
    few(-1)
    for one, other in zip(actual, results(conv, x, attributes), strict=True):
        assert_near(one, other, 1e-9, at_least=0.1)


@pytest.mark.parametrize("name", ["gat", "gatv2", "supergat", "key-query"])
def test_sources_that_are_absent_get_no_share(name, few):
    conv, x = LAYERS[name]().double(), leaf(NODES, P)
    mask = torch.tensor([True, False, True, True, False, True])
    few(2**15)
    actual = results(conv, x, [], 1, source_mask=mask)
    few(-1)
    for one, other in zip(actual, results(conv, x, [], 1, source_mask=mask), strict=True):
        assert_near(one, other, 1e-9, at_least=0.1)
    few(2**15)
    out = conv(x, EDGES, source_mask=torch.zeros(NODES, dtype=torch.bool))
    assert_near(out, conv.bias.expand_as(out))


@pytest.mark.parametrize("name", ["gat", "gatv2-with-edges", "key-query", "transformer"])
def test_weights_are_sorted_where_they_are_looked_at(name, few):
    conv, x = LAYERS[name]().double(), leaf(NODES, P)
    attr = leaf(EDGES.size(1), 2) if name in WITH_EDGES else None
    few(2**15)
    out, heads = conv(x, EDGES, edge_attr=attr, return_attention_weights=True)
    few(-1)
    other, sorted_heads = conv(x, EDGES, edge_attr=attr, return_attention_weights=True)
    assert_near(out, other)
    assert isinstance(heads, MultiHeadEdges)
    assert torch.equal(heads.pattern.index, sorted_heads.pattern.index)
    assert torch.equal(heads.pattern.origin, sorted_heads.pattern.origin)
    assert_near(heads.value, sorted_heads.value)
    assert_near(heads.edges().to_dense(), sorted_heads.edges().to_dense())


def test_dropout_drops_shares_of_few_edges(few):
    few(2**15)
    conv = gat_conv(P, 3, heads=2, dropout=0.5).double()
    _, heads = conv(leaf(NODES, P), EDGES, return_attention_weights=True)
    kept = heads.value != 0
    assert kept.any()
    assert not kept.all()
    assert conv.eval()(leaf(NODES, P), EDGES, return_attention_weights=True)[1].value.all()


def test_few_edges_are_not_sorted(few):
    few(2**15)
    conv, x = gat_conv(P, 3, heads=2), torch.randn(NODES, P)
    basis = conv.basis(x, EDGES)
    conv(x, basis)
    assert "order" not in vars(basis.pattern)


def test_rows_of_low_scores_alone_and_of_none():
    entries = Listed(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), (3, 2))
    low = torch.tensor([-1e4, -1e4, -torch.inf, -torch.inf], dtype=torch.float64)
    shares = entries.shares(low.unsqueeze(1)).squeeze(1)
    assert shares.tolist() == [0.5, 0.5, 0.0, 0.0]
    none = Listed(entries.row[:0], entries.col[:0], (3, 2))
    assert none.shares(low[:0].unsqueeze(1)).shape == (0, 1)
