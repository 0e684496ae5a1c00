"""Sources that are absent, or beside the nodes; keys apart from values."""

import copy
import random

import pytest
import torch
from oracle import assert_same
from seen import PLAIN, SEEN, P, edges_of, layer, legal_orders, truth

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import NORMALISERS, ALiBi, GATv2, KeyQuery, Softmax
from pyg_outerconv.families import GCN, Attention, Causal, Compose, Hops, LinearAttention, Stack
from pyg_outerconv.nn import AttentionConv, label_terms, linear_attention
from pyg_outerconv.testing import assert_near, assert_same_gradients
from pyg_outerconv.testing.reference import derivatives

# Absent sources -----------------------------------------------------------------------------------


NOTHING = (torch.nan, torch.inf, -torch.inf)


def drawn(seed, nodes):
    """Features whose absent rows hold NaN or inf, and which are there."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, P, generator=generator, dtype=torch.float64)
    there = torch.rand(nodes, generator=generator) < 0.6
    there[0] = True
    places = torch.randint(P, (nodes,), generator=generator)
    kinds = torch.randint(3, (nodes,), generator=generator)
    replacements = torch.tensor(NOTHING, dtype=torch.float64)[kinds]
    broken = x.clone()
    broken[torch.arange(nodes), places] = torch.where(
        there, x[torch.arange(nodes), places], replacements
    )
    return broken.requires_grad_(), x.requires_grad_(), there


def assert_unseen(conv, broken, x, there, targets, seen, **beside):
    """Values and gradients are those without the absent sources, whose own are zeros."""
    asks = there if targets is None else torch.ones(len(targets), dtype=torch.bool)
    ends = (broken, broken) if targets is None else (broken, targets)
    actual = conv(broken if targets is None else ends, source_mask=there, **beside)[asks]
    rows = x[there] if targets is None else targets
    wanted = truth(conv, x[there], rows, seen[there][:, asks])
    assert_near(actual, wanted, 1e-9)
    (_, *actual), (_, *wanted) = (
        derivatives(out, [of, *conv.parameters()], 1) for out, of in ((actual, broken), (wanted, x))
    )
    for gradient, reference in zip(actual, wanted, strict=True):
        assert_near(gradient, reference, 1e-8, at_least=0.1)
    assert not actual[0][~there].any()


@pytest.mark.slow(cases=12)
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
    actual = conv(broken.detach().to_sparse_csr(), source_mask=there)[there]
    seen = torch.ones(8, 8, dtype=torch.bool)[there][:, there]
    assert_near(actual, truth(conv, x[there], x[there], seen))


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
    actual = conv(broken, edges, source_mask=there)[there]
    wanted = torch.einsum("kmn,mp,kpq->nq", matrices, sent, conv.theta().squeeze(1))
    wanted = wanted + x[there] @ conv.root().flatten(0, 2) if root else wanted
    assert_near(actual, wanted)
    assert_same_gradients(actual, conv(x, edges, source_mask=there)[there], [*conv.parameters()])
    (of_broken,) = torch.autograd.grad(actual.sin().sum(), broken)
    assert of_broken.isfinite().all()
    assert not of_broken[~there].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("feature_map", ["elu+1", "relu", "exp", "identity"])
def test_linear_attention_leaves_them_out(feature_map, causal):
    conv = linear_attention(P, 6, 2, feature_map=feature_map, causal=causal).double()
    items = [drawn(seed, 9) for seed in (4, 5)]
    broken, x, there = (torch.stack(parts).detach() for parts in zip(*items, strict=True))
    broken.requires_grad_()
    out = conv(broken, None, source_mask=there)
    for number in range(2):
        kept = there[number]
        item, of_item = out[number][kept], x[number][kept]
        assert_near(item, conv(of_item, None))
        (gradient,) = torch.autograd.grad(item.sum(), broken, retain_graph=True)
        assert gradient.isfinite().all()
        assert not gradient[number][~kept].any()


def test_heads_within_a_product_read_the_mask():
    x, there = torch.randn(3, P), torch.tensor([True, False, True])
    edges, heads = torch.tensor([[0, 1], [1, 2]]), LinearAttention(1, 2)
    chain = OuterConv(P, 2, Compose(GCN(), heads))
    assert chain(x, edges, source_mask=there).isfinite().all()


# Sources beside the nodes -------------------------------------------------------------------------


NODES, Q, HEADS, VALUES = 6, 8, 4, 3
EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 0], [1, 2, 3, 4, 1, 0, 0]])  # none reaches 5
SUPPORTS = {
    "edges": {},
    "complete": {"support": "complete"},
    "causal": {"support": "causal"},
    "strictly": {"support": Causal(strict=True)},
    "window": {"support": "slidingwindow(window=1)"},
    "blocks": {"support": "blocks(window=2)"},
    "two labels": {"support": Stack(Causal(), Causal(strict=True))},
    "alibi": {"support": "complete", "terms": (ALiBi(HEADS),)},
    "edges and alibi": {"terms": (ALiBi(HEADS),)},
}
each_support = pytest.mark.parametrize("name", SUPPORTS)


def with_sources(name, count=2, **options):
    options = {"combine": "sum", "value_channels": VALUES, "value_bias": True} | options
    conv = AttentionConv(P, Q, HEADS, learned_sources=count, **SUPPORTS[name], **options).double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.normal_()
    return conv


def arguments(name, *batch):
    x = torch.randn(*batch, NODES, P, dtype=torch.float64, requires_grad=True)
    return (x, EDGES) if name.startswith("edges") else (x,)


def without(conv):
    """The same layer, whose nodes are its only sources."""
    alone = copy.copy(conv)
    alone._modules = {**conv._modules, "added_sources": None}
    return alone


def by_definition(conv, x, *edges):
    """Sums of exp(score) · value over what a target sees, divided by those of exp(score)."""
    score, sources, nodes = conv.family.score, conv.added_sources, without(conv).basis(x, *edges)
    pattern, each = nodes.pattern, HEADS // nodes.num_labels
    head = pattern.label[:, None].long() * each + torch.arange(each)
    place = head, pattern.source[:, None].long(), pattern.target[:, None].long()
    raised = torch.zeros(HEADS, NODES, NODES, dtype=x.dtype)
    raised = raised.index_put(place, nodes.scores().exp(), accumulate=True)
    value = torch.einsum("mp,hpv->mhv", x, conv.theta.value) + conv.value_bias
    sums, total = torch.einsum("hmn,mhv->nhv", raised, value), raised.sum(1) + sources.empty
    if sources.learned:
        learned = torch.einsum("ahd,nhd->han", sources.key, score.query(x) * score.scale).exp()
        sums = sums + torch.einsum("han,ahv->nhv", learned, sources.value)
        total = total + learned.sum(1)
    shares = sums / total.t().unsqueeze(-1)
    return torch.einsum("nhv,hvq->nq", shares, conv.theta.output) + conv.bias


@pytest.mark.parametrize(("count", "empty"), [(1, False), (0, True), (3, True)])
@each_support
def test_every_target_sees_them_beside_its_support(name, count, empty):
    conv, layer_inputs = with_sources(name, count, empty_source=empty), arguments(name)
    wanted = [layer_inputs[0], *conv.parameters()]
    assert_same(conv(*layer_inputs), by_definition(conv, *layer_inputs), wanted)
    for one in conv.contraction_path(*layer_inputs).steps[0].candidates:
        conv.order = one.order.name
        assert_same(conv(*layer_inputs), by_definition(conv, *layer_inputs), wanted)
    conv.order, conv.fuse = None, False
    assert_same(conv(*layer_inputs), by_definition(conv, *layer_inputs), wanted)


@each_support
def test_items_of_a_batch_are_as_one_by_one(name):
    conv, (x, *edges) = with_sources(name), arguments(name, 2, 3)
    there = torch.rand(2, 3, NODES) < 0.5
    for mask in (None, there):
        each = [
            conv(one, *edges, source_mask=None if mask is None else m)
            for one, m in zip(x.flatten(0, 1), there.flatten(0, 1), strict=True)
        ]
        expected = torch.stack(each).unflatten(0, (2, 3))
        assert_same(conv(x, *edges, source_mask=mask), expected, [x, *conv.parameters()])


def test_where_nothing_else_is_seen_their_values_arrive():
    conv, (x, edges) = with_sources("edges", 1), arguments("edges")
    alone = torch.einsum("hv,hvq->q", conv.added_sources.value[0], conv.theta.output) + conv.bias
    assert_near(conv(x, edges)[5], alone)
    nobody = torch.zeros(NODES, dtype=torch.bool)
    for absent in (x, x.detach() * torch.nan):
        assert_near(conv((absent, x), edges, source_mask=nobody), alone.expand(NODES, -1))


@each_support
def test_an_empty_source_is_softmax_plus_one(name):
    conv, layer_inputs = with_sources(name, 0, empty_source=True), arguments(name)
    plus_one = with_sources(name, 0, normalise="softmax-plus-one")
    plus_one.load_state_dict(conv.state_dict())
    pairs = []
    for one in (conv, plus_one):
        out = one(*layer_inputs)
        inputs = [layer_inputs[0], *one.parameters()]
        pairs.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    for mine, other in zip(*pairs, strict=True):
        assert_near(mine, other, at_least=0.1)


def test_graphs_of_a_batch_share_them():
    conv, (x,) = with_sources("complete"), arguments("complete")
    batch = torch.tensor([0, 0, 0, 0, 1, 1])
    apart = torch.cat([conv(x[:4]), conv(x[4:])])
    assert_same(conv(x, batch=batch), apart, [x, *conv.parameters()])


@pytest.mark.parametrize("combine", ["sum", "mean", "concat"])
def test_they_have_the_values_of_any_way_to_combine_heads(combine):
    options = {"combine": combine, "value_channels": None, "value_bias": False}
    conv, (x, edges) = with_sources("edges", **options), arguments("edges")
    basis, theta = conv.basis(x, edges), conv.theta_value()
    assert basis.size == (2 + NODES, NODES)
    values = torch.cat([conv.added_sources.value, torch.einsum("mp,hpv->mhv", x, theta.value)])
    heads = torch.einsum("hmn,mhv->nhv", basis.to_dense(), values)
    out = theta.collect(heads) / (HEADS if combine == "mean" else 1) + conv.bias
    assert_same(conv(x, edges), out, [x, *conv.parameters()])


def test_they_have_no_edge_features():
    conv, (x, edges) = with_sources("edges", edge_dim=2), arguments("edges")
    edges = edges[:, :-1]  # none is parallel
    attr = torch.randn(edges.size(1), 2, dtype=torch.float64, requires_grad=True)
    score, sources, (m, n) = conv.family.score, conv.added_sources, edges
    of_edges = torch.einsum("ed,hdc->ehc", attr, score.edge.weight)
    key, query = torch.cat([sources.key, score.key(x)]), score.query(x) * score.scale
    exponentials = torch.einsum("ahd,nhd->han", key, query).exp()
    raised = torch.zeros_like(exponentials)
    raised[:, :2] = exponentials[:, :2]
    with_attr = exponentials[:, 2 + m, n] * (of_edges * query[n]).sum(-1).exp().t()
    raised = raised.index_put((torch.arange(HEADS)[:, None], 2 + m, n), with_attr)
    shares = raised / raised.sum(1, keepdim=True)
    value = torch.einsum("mp,hpv->mhv", x, conv.theta.value) + conv.value_bias
    heads = torch.einsum("han,ahv->nhv", shares, torch.cat([sources.value, value]))
    heads = heads.index_add(0, n, shares[:, 2 + m, n].t().unsqueeze(-1) * of_edges)
    expected = torch.einsum("nhv,hvq->nq", heads, conv.theta.output) + conv.bias
    out = conv(x, edges, edge_attr=attr)
    assert_same(out, expected, [x, attr, *conv.parameters()])


def test_their_share_is_in_the_learned_basis_and_in_the_terms_of_labels():
    conv, (x, edges) = with_sources("edges", bias=False), arguments("edges")
    out, basis = conv(x, edges, return_attention_weights=True)
    assert_near(basis.to_dense().sum(1), torch.ones(HEADS, NODES).double())
    assert (basis.pattern.origin < 0).sum() == 2 * NODES
    terms = label_terms(conv, x, edges)
    assert_near(sum(terms.term(head) for head in range(HEADS)), out)


def test_a_basis_in_their_place_is_all_there_is():
    conv, (x, edges) = with_sources("edges"), arguments("edges")
    basis = without(conv).basis(x, edges)
    assert_near(conv(x, basis.edges()), without(conv)(x, edges))
    support = without(conv).family.support.basis(edges, size=(NODES, NODES))
    assert_near(conv(x, support), conv(x, edges))


def test_dropout_drops_their_shares_too():
    conv, (x, edges) = with_sources("edges", 1, dropout=0.5), arguments("edges")
    with torch.no_grad():
        often = conv(x.expand(1000, -1, -1), edges)
        alone = often[:, 5] - conv.bias
        kept = alone.abs().sum(1) > 1e-9  # node 5 sees one source in four heads
        assert 0.9 < kept.double().mean() < 0.97
        assert_near(often.mean(0), conv.eval()(x, edges), 0.1)


# Keys apart from values --------------------------------------------------------------------------


@each_support
def test_keys_are_read_in_the_place_of_x(name):
    conv, (x, *edges) = with_sources(name, 0), arguments(name)
    keys = torch.randn(NODES, P, dtype=torch.float64, requires_grad=True)
    shares = conv.basis((keys, x), *edges).to_dense()
    values = torch.einsum("mp,hpv->mhv", x, conv.theta.value) + conv.value_bias
    heads = torch.einsum("hmn,mhv->nhv", shares, values)
    expected = torch.einsum("nhv,hvq->nq", heads, conv.theta.output) + conv.bias
    assert_same(conv((x, x), *edges, keys=keys), expected, [x, keys, *conv.parameters()])
    assert_near(conv(x, *edges, keys=keys), expected)


def test_keys_of_absent_sources_may_be_anything():
    conv, (x, edges) = with_sources("edges"), arguments("edges")
    there, keys = torch.tensor([1, 0, 1, 1, 0, 1]).bool(), torch.randn_like(x)
    expected = conv(x, edges, keys=keys, source_mask=there)
    keys[~there] = torch.tensor([torch.nan, torch.inf, -torch.inf, torch.nan]).double()
    keys.requires_grad_()
    out = conv(x, edges, keys=keys, source_mask=there)
    assert_near(out, expected)
    (gradient,) = torch.autograd.grad(out.sum(), keys)
    assert not gradient[~there].any()
