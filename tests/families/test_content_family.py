"""Alignments and learned queries: what asks, and how many answers there are."""

import copy

import pytest
import torch
from oracle import assert_same

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import SCORES, KeyQuery, LearnedQueries, PerHead, Softmax
from pyg_outerconv.families import (
    GCN,
    Attention,
    Cluster,
    Compose,
    Hops,
    Identity,
    LinearAttention,
    Mean,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.families.support.sequences import Complete
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near

N, P, Q, HEADS = 6, 4, 6, 2
SPARSE = ("heads_transform_first",)
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 0]])


def features(*shape):
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def layer(**options):
    options = {"heads": HEADS, "support": Complete(), "order": SPARSE[0], **options}
    conv = AttentionConv(P, Q, **options).double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.normal_(std=0.5)
    return conv


def attention(conv, x, queries):
    """Dense attention of queries (N, P_q), or (N, H, P_q), to all of x."""
    score = conv.family.score
    queries = queries.unsqueeze(1).expand(-1, HEADS, -1) if queries.dim() == 2 else queries
    far = torch.einsum("nhp,hpd->nhd", queries, score.query.weight)
    near = torch.einsum("mp,hpd->mhd", x, score.key.weight)
    shares = (torch.einsum("nhd,mhd->nmh", far, near) * score.scale).softmax(1)
    values = torch.einsum("mp,hpv->mhv", x, conv.theta.weight)
    return torch.einsum("nmh,mhv->nhv", shares, values).flatten(1) + conv.bias


def test_queries_are_the_aligned_features():
    conv, x = layer(align=GCN()), features(N, P)
    aligned = GCN().basis(EDGES, size=(N, N), dtype=torch.float64).to_dense()[0].T @ x
    actual, expected = conv(x, EDGES), attention(conv, x, aligned)
    assert_same(actual, expected, [x, *conv.parameters()])


def test_the_identity_aligns_nothing():
    x = features(N, P)
    conv = layer(align=Identity())
    assert_near(conv(x), attention(conv, x, x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "align",
    [
        Walk(1, norm=None),
        Walk(2, norm=None, powers=(0, 2)),
        Walk(2, norm=None, aggr="mean", powers=(1, 2)),
        Walk(1),
        Stack(Identity(), Relation(1, None)),
        Stack(Hops(2), Identity()),
    ],
    ids=str,
)
def test_alignments_of_each_head_have_the_type_of_the_features(align, dtype):
    conv, x = layer(align=align), features(N, P)
    dense = align.basis(EDGES, size=(N, N), dtype=torch.float64).to_dense(torch.float64)
    aligned = torch.einsum("hmn,mp->nhp", dense, x)
    wanted = attention(conv, x, aligned)
    x_in_dtype = x.detach().to(dtype).requires_grad_()
    actual = conv.to(dtype)(x_in_dtype, EDGES)
    assert actual.dtype == dtype
    close = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 6e-2, torch.float16: 1e-2}
    assert_near(actual.double(), wanted, close[dtype])
    (gradient,) = torch.autograd.grad(actual.sum(), x_in_dtype)
    assert gradient.dtype == dtype
    assert_near(gradient.double(), torch.autograd.grad(wanted.sum(), x)[0], 5 * close[dtype])


def test_a_batch_is_aligned_item_by_item():
    conv, x = layer(align=Stack(Identity(), GCN())), features(3, N, P)
    out = conv(x, EDGES)
    for item, one in enumerate(x):
        assert_near(out[item], conv(one, EDGES))


def test_alignments_may_change_the_number_of_outputs():
    """Means of clusters ask all nodes."""
    conv, x = layer(align=Mean(Cluster())), features(N, P)
    cluster = torch.tensor([0, 0, 1, 1, 1, 2])
    means = torch.stack([x[cluster == one].mean(0) for one in range(3)])
    actual = conv(x, alignment=cluster)
    assert_near(actual, attention(conv, x, means))
    assert conv(features(2, N, P), alignment=cluster).shape == (2, 3, Q)


def test_soft_alignments_learn():
    conv, x = layer(align=Cluster()), features(N, P)
    soft = features(N, 3)
    actual = conv(x, alignment=soft)
    expected = attention(conv, x, soft.T @ x)
    assert_same(actual, expected, [x, soft])


def test_the_papers_rectangular_identity_is_a_selection_of_edges():
    """Source and target joined, outputs on the target part: n asks what x holds at M - N + n."""
    x = features(N, P)
    alignment = torch.stack([torch.arange(4, N), torch.arange(N - 4)])
    conv = layer(align=Relation(1, None))
    assert_near(conv(x, alignment=alignment), attention(conv, x, x[4:]))


@pytest.mark.parametrize("heads", [None, HEADS])
def test_learned_queries_ask_all_nodes(heads):
    queries = LearnedQueries(4, 3, heads)
    conv = AttentionConv(
        (P, 3), Q, HEADS, support=Complete(), align=queries, order=SPARSE[0]
    ).double()
    x = features(N, P)
    actual, expected = conv(x), attention(conv, x, queries.weight)
    assert actual.shape == (4, Q)
    assert_same(actual, expected, [x, *conv.parameters()])
    assert any(parameter is queries.weight for parameter in conv.parameters())


@pytest.mark.parametrize("heads", [None, HEADS])
def test_each_graph_is_asked_by_the_same_queries(heads):
    conv = layer(align=LearnedQueries(4, P, heads))
    batch = torch.tensor([1, 0, 0, 1, 2, 1])
    x = features(N, P)
    actual = conv(x, batch=batch)
    assert actual.shape == (12, Q)
    expected = torch.cat(
        [attention(conv, x[batch == g], conv.family.align.weight) for g in range(3)]
    )
    assert_same(actual, expected, [x, *conv.parameters()])


def test_a_graph_without_nodes_is_answered_with_zeros():
    conv = layer(align=LearnedQueries(2, P), bias=False)
    out = conv(features(3, P), batch=torch.tensor([0, 2, 2]))
    assert out.shape == (6, Q)
    assert not out[2:4].any()
    assert out[4:].all()


def test_a_batch_of_sets_is_asked_by_the_same_queries():
    conv, x = layer(align=LearnedQueries(4, P)), features(3, 5, P)
    out = conv(x)
    assert out.shape == (3, 4, Q)
    for item in range(3):
        assert_near(out[item], attention(conv, x[item], conv.family.align.weight))


@pytest.mark.parametrize("name", SCORES)
def test_learned_queries_ask_by_any_score_and_do_not_mind_the_order(name):
    conv = layer(align=LearnedQueries(3, P), score=name)
    x, order = features(N, P), torch.randperm(N)
    assert_near(conv(x[order]), conv(x))


@pytest.mark.parametrize("name", SCORES)
def test_any_score_takes_queries_of_each_head(name):
    """Equal queries of each head are queries for all."""
    conv = layer(align=LearnedQueries(3, P), score=name)
    x = features(N, P)
    expected = conv(x)
    shared = conv.family.align
    wide = LearnedQueries(3, P, HEADS).double()
    wide.weight = torch.nn.Parameter(shared.weight.detach().unsqueeze(1).repeat(1, HEADS, 1))
    object.__setattr__(conv.family, "align", wide)
    assert_near(conv(x), expected)


def test_modules_may_make_queries():
    class Middle(torch.nn.Module):
        """The mean of the sources, seen from each head."""

        def forward(self, content):
            middle = content.source.mean(0, keepdim=True)
            return PerHead(torch.stack([middle, 2 * middle], -2))

    conv, x = layer(align=Middle()), features(N, P)
    middle = x.mean(0, keepdim=True)
    assert_near(conv(x), attention(conv, x, torch.stack([middle, 2 * middle], 1)))


@pytest.mark.parametrize("support", [Hops(), Complete()], ids=str)
def test_modules_that_make_no_queries_are_refused(support):
    class Nothing(torch.nn.Module):
        def forward(self, content):
            return None

    conv = OuterConv(P, Q, Attention(KeyQuery(HEADS, 3, P), support, Softmax(), align=Nothing()))
    with pytest.raises(ValueError, match="got (0|none)$"):
        conv(torch.ones(N, P), EDGES)


HEADS_OF = Attention(KeyQuery(HEADS, 3, P), Hops(), Softmax())


@pytest.mark.parametrize("options", [{}, {"theta": "shared"}, {"by_messages": True}], ids=str)
@pytest.mark.parametrize(
    "family",
    [
        Compose(GCN(), HEADS_OF),
        Compose(HEADS_OF, GCN()),
        Compose(HEADS_OF, HEADS_OF),
        Compose(GCN(), LinearAttention(HEADS, 3)),
        Compose(GCN(), Stack(GCN(), HEADS_OF)),
        Compose(GCN(), Compose(GCN(), HEADS_OF)),
        Stack(GCN(), Compose(GCN(), HEADS_OF)),
    ],
    ids=str,
)
def test_products_with_heads_take_a_batch_item_by_item(family, options):
    """Scores differ between the items, in either factor, and one product in between is of all."""
    family, options = copy.deepcopy(family), dict(options)
    by_messages = options.pop("by_messages", False)
    conv, x = OuterConv(P, Q, family, **options).double(), features(2, 3, N, P)
    conv.fuse = not by_messages
    actual = conv(x, EDGES)
    wanted = torch.stack([conv(item, EDGES) for item in x.flatten(0, 1)]).view_as(actual)
    assert_same(actual, wanted, [x, *conv.parameters()])


def test_a_layer_of_mixed_labels_aligns_its_heads():
    family = Stack(GCN(), Attention(KeyQuery(HEADS, 3), Relation(1, None), Softmax(), align=GCN()))
    conv, x = OuterConv(P, Q, family).double(), features(N, P)
    dense = conv.basis(x, EDGES).to_dense()
    assert dense.shape == (1 + HEADS, N, N)
    expected = torch.einsum("kmn,mp,kpq->nq", dense, x, conv.theta().squeeze(1)) + conv.bias
    assert_near(conv(x, EDGES), expected)
