"""Sources that source_mask leaves out are not there, whatever they hold."""

import random

import pytest
import torch
from seen import PLAIN, SEEN, P, edges_of, layer, legal_orders, truth

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import NORMALISERS, GATv2, KeyQuery, Softmax
from pyg_outerconv.families import GCN, Attention, Compose, Hops, LinearAttention, Stack
from pyg_outerconv.nn import AttentionConv, linear_attention
from pyg_outerconv.testing import assert_near, assert_same_gradients
from pyg_outerconv.testing.reference import derivatives

NOTHING = (torch.nan, torch.inf, -torch.inf)


def drawn(seed, nodes):
    """Features whose absent rows hold NaN or inf, and which are there."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, P, generator=generator, dtype=torch.float64)
    there = torch.rand(nodes, generator=generator) < 0.6
    there[0] = True
    places = torch.randint(P, (nodes,), generator=generator)
    kinds = torch.randint(3, (nodes,), generator=generator)
    held = torch.tensor(NOTHING, dtype=torch.float64)[kinds]
    broken = x.clone()
    broken[torch.arange(nodes), places] = torch.where(there, x[torch.arange(nodes), places], held)
    return broken.requires_grad_(), x.requires_grad_(), there


def assert_unseen(conv, broken, x, there, targets, seen, **beside):
    """Values and gradients are those without the absent sources, whose own are zeros."""
    asks = there if targets is None else torch.ones(len(targets), dtype=torch.bool)
    ends = (broken, broken) if targets is None else (broken, targets)
    found = conv(broken if targets is None else ends, source_mask=there, **beside)[asks]
    rows = x[there] if targets is None else targets
    wanted = truth(conv, x[there], rows, seen[there][:, asks])
    assert_near(found, wanted, 1e-9)
    (_, *found), (_, *wanted) = (
        derivatives(out, [of, *conv.parameters()], 1) for out, of in ((found, broken), (wanted, x))
    )
    for actual, reference in zip(found, wanted, strict=True):
        assert_near(actual, reference, 1e-8, at_least=0.1)
    assert not found[0][~there].any()


@pytest.mark.parametrize("pair", [False, True], ids=["one x", "a pair"])
@pytest.mark.parametrize("score", PLAIN)
def test_nothing_of_them_reaches_others(score, pair):
    """Supports, normalisers and orders are drawn."""
    draw = random.Random(f"{score}{pair}")
    for _ in range(4):
        support = draw.choice([None, *SEEN])
        conv = layer(score, draw.choice([*NORMALISERS]), support)
        broken, x, there = drawn(draw.randrange(1 << 31), 8)
        seen = torch.rand(8, 8) < 0.5 if support is None else SEEN[support](8)
        targets = torch.randn(8, P, dtype=torch.float64) if pair else None
        edges = edges_of(seen) if support is None else None
        legal = legal_orders(conv, (x, targets) if pair else x, edges)
        if support == "blocks(window=3)":  # whose sources are all there, where blocks are dense
            legal = [name for name in legal if "dense" not in name]
        conv.order = draw.choice(legal)
        assert_unseen(conv, broken, x, there, targets, seen, edge_index=edges)


@pytest.mark.parametrize("order", ["heads_transform_first", "attend_transform_first"])
def test_those_of_sparse_features_neither(order):
    conv = layer("key-query", support="complete", order=order)
    broken, x, there = drawn(1, 8)
    found = conv(broken.detach().to_sparse_csr(), source_mask=there)[there]
    seen = torch.ones(8, 8, dtype=torch.bool)[there][:, there]
    assert_near(found, truth(conv, x[there], x[there], seen))


def test_each_item_of_a_batch_has_its_own():
    conv = layer("gatv2", support="causal")
    items = [drawn(seed, 7) for seed in (1, 2)]
    broken, x, there = (torch.stack(parts) for parts in zip(*items, strict=True))
    found = conv(broken, source_mask=there)
    for item in range(2):
        mine = there[item]
        wanted = truth(conv, x[item][mine], x[item][mine], SEEN["causal"](7)[mine][:, mine])
        assert_near(found[item][mine], wanted)


def test_a_source_that_asks_too_asks_with_zeros_for_what_is_no_number():
    conv = layer("key-query", support="complete")
    broken, x, there = drawn(3, 8)
    cleaned = x.detach().masked_fill(~broken.isfinite(), 0.0)
    wanted = truth(conv, x[there], cleaned, torch.ones(8, 8, dtype=torch.bool)[there])
    assert_near(conv(broken, source_mask=there), wanted)


@pytest.mark.parametrize("root", [False, True], ids=["", "root"])
@pytest.mark.parametrize("by_messages", [False, True], ids=["", "messages"])
@pytest.mark.parametrize("make", [lambda: KeyQuery(2, 3, P), lambda: GATv2(2, 3, P, own=True)])
def test_beside_matrices_of_the_graph_they_send_nothing(make, by_messages, root):
    broken, x, there = drawn(3, 8)
    edges, score = edges_of(torch.rand(8, 8) < 0.5), make()
    family = Stack(GCN(), Attention(score, Hops(), Softmax()))
    conv = OuterConv(P, 5, family, bias=False, root_weight=root).double()
    conv.fuse = not by_messages
    heads = AttentionConv(P, 5, 2, score=score, combine="sum", bias=False).double()
    _, shares = heads(broken, edges, source_mask=there, return_attention_weights=True)
    graph = OuterConv(P, 5, GCN()).double().basis(x, edges)
    matrices = torch.cat([graph.to_dense(), shares.to_dense()])[..., there]
    sent = x.masked_fill(~there.unsqueeze(1), 0.0)
    found = conv(broken, edges, source_mask=there)[there]
    wanted = torch.einsum("kmn,mp,kpq->nq", matrices, sent, conv.theta().squeeze(1))
    wanted = wanted + x[there] @ conv.root().flatten(0, 2) if root else wanted
    assert_near(found, wanted)
    assert_same_gradients(found, conv(x, edges, source_mask=there)[there], [*conv.parameters()])
    (of_broken,) = torch.autograd.grad(found.sin().sum(), broken)
    assert of_broken.isfinite().all()
    assert not of_broken[~there].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("feature_map", ["elu+1", "relu", "exp", "identity"])
def test_linear_attention_leaves_them_out(feature_map, causal):
    conv = linear_attention(P, 6, 2, feature_map=feature_map, causal=causal).double()
    items = [drawn(seed, 9) for seed in (4, 5)]
    broken, x, there = (torch.stack(parts).detach() for parts in zip(*items, strict=True))
    broken.requires_grad_()
    found = conv(broken, None, source_mask=there)
    for number in range(2):
        kept = there[number]
        item, of_item = found[number][kept], x[number][kept]
        assert_near(item, conv(of_item, None))
        (gradient,) = torch.autograd.grad(item.sum(), broken, retain_graph=True)
        assert gradient.isfinite().all()
        assert not gradient[number][~kept].any()


def test_heads_within_a_product_read_the_mask():
    x, there = torch.randn(3, P), torch.tensor([True, False, True])
    edges, heads = torch.tensor([[0, 1], [1, 2]]), LinearAttention(1, 2)
    chain = OuterConv(P, 2, Compose(GCN(), heads))
    assert chain(x, edges, source_mask=there).isfinite().all()
