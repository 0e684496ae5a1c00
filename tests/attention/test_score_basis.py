"""Which attention is a product of factors, with no score for any pair; and that it is the same."""

import pytest
import torch
from oracle import assert_same

from pyg_outerconv.attention import FeatureMapped
from pyg_outerconv.basis.feature_product import FeatureProduct
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near

P, Q, HEADS = 5, 6, 2


def conv_of(score="feature-map", normalise="l1", support="complete", **options):
    torch.manual_seed(0)
    conv = AttentionConv(P, Q, HEADS, support=support, score=score, normalise=normalise, **options)
    return conv.double()


def pairs(support, count):
    """All pairs of a support as an edge list, which no rule stands behind."""
    source, target = torch.cartesian_prod(torch.arange(count), torch.arange(count)).t()
    seen = {"complete": source < count, "causal": source <= target}
    seen["causal(strict=True)"] = source < target
    return torch.stack([source, target])[:, seen[support]]


@pytest.mark.parametrize("support", ["complete", "causal", "causal(strict=True)"])
@pytest.mark.parametrize(
    ("score", "normalise"),
    [
        ("feature-map", "l1"),
        ("feature-map(feature_map='relu')", "l1(temperature=2.0)"),
        ("feature-map(feature_map='identity')", "identity"),
        ("key-query(bias=True)", "identity(temperature=2.0)"),
        ("bilinear", "identity"),
    ],
)
def test_attention_without_a_softmax_is_never_made_edge_by_edge(support, score, normalise):
    conv, plain = conv_of(score, normalise, support), conv_of(score, normalise, support=None)
    plain.load_state_dict(conv.state_dict())
    x = torch.randn(70, P, dtype=torch.float64, requires_grad=True)
    actual, basis = conv(x, return_attention_weights=True)
    assert isinstance(basis, FeatureProduct)
    wanted, edges = plain(x, pairs(support, 70), return_attention_weights=True)
    assert_same(actual, wanted, [x])
    assert_near(basis.to_dense(), edges.to_dense())


def test_sources_that_are_not_there_and_graphs_count_alike():
    conv = conv_of()
    x = torch.randn(3, 9, P, dtype=torch.float64)
    there = torch.rand(3, 9) < 0.6
    there[2] = False
    out, basis = conv(x, source_mask=there, return_attention_weights=True)
    assert isinstance(basis, FeatureProduct)
    for number in (0, 1):
        item = x[number]
        assert_near(out[number], conv((item[there[number]], item)))
    assert torch.equal(out[2], conv.bias.expand(9, Q))
    graph = torch.arange(3).repeat_interleave(9)
    of_graphs, basis = conv(x.flatten(0, 1), batch=graph, return_attention_weights=True)
    assert isinstance(basis, FeatureProduct)
    assert_near(of_graphs.view(3, 9, Q), conv(x))


@pytest.mark.parametrize(
    "options",
    [
        {"normalise": "softmax"},
        {"support": "slidingwindow(window=2)"},
        {"score": "feature-map(feature_map='identity')"},
        {"score": FeatureMapped(HEADS, 3, P, torch.nn.Tanh())},
        {"score": "cosine(projected=True)"},
        {"dropout": 0.5},
    ],
    ids=str,
)
def test_other_attention_is_not(options):
    """L1 of signed products divides by other sums; and dropped values have to be drawn."""
    conv = conv_of(**options)
    x = torch.randn(9, P, dtype=torch.float64)
    assert not isinstance(conv.basis(x, None), FeatureProduct)
    assert conv(x).isfinite().all()


@pytest.mark.parametrize("support", ["complete", "causal", "blocks(window=3)"])
def test_autocast_may_make_one_factor_shorter(support):
    conv, x = conv_of("bilinear", "identity", support).float(), torch.randn(9, P)
    with torch.autocast("cpu", torch.bfloat16):
        out = conv(x)
    assert (out.float() - conv(x)).abs().max() < 0.1 * conv(x).abs().max()


def exponential(support, **options):
    score = FeatureMapped(HEADS, 3, P, feature_map="exp")
    return conv_of(score, "l1", support, **options)


@pytest.mark.parametrize("support", ["complete", "causal", "slidingwindow(window=4)"])
def test_sources_that_are_not_there_do_not_bound_exponentials(support):
    conv, x = exponential(support), torch.randn(2, 6, P, dtype=torch.float64, requires_grad=True)
    x.data[:, -1] *= 1e5
    there = torch.tensor([True] * 5 + [False])
    actual, wanted = conv(x, source_mask=there)[:, :5], conv(x[:, :5])
    assert_same(actual, wanted, [x])
    assert conv(x, source_mask=~there & there).isfinite().all()


@pytest.mark.parametrize("support", ["complete", "blocks(window=9)"])
def test_other_graphs_do_not_bound_exponentials(support):
    conv, x = exponential(support), torch.randn(6, P, dtype=torch.float64)
    x[3] *= 1e5
    graph = torch.tensor([2, 0, 2, 1, 0, 2])
    alone = graph != 1
    out = conv(x, batch=graph)[alone]
    assert_near(out, conv(x[alone], batch=graph[alone]), at_least=0.1)


@pytest.mark.parametrize("normalise", ["identity", "softmax", "sigmoid"])
def test_exponentials_without_a_bound_go_with_any_normaliser(normalise):
    free = FeatureMapped(HEADS, 3, P, feature_map="exp", bounded=False)
    conv, x = conv_of(free, normalise), torch.randn(4, P, dtype=torch.float64)
    key, query = free.key(x).exp(), free.query(x).exp()
    score = torch.einsum("mhd,nhd->hmn", key, query)
    shares = {"identity": score, "softmax": score.softmax(1), "sigmoid": score.sigmoid()}
    assert_near(conv.basis(x, None).to_dense(), shares[normalise])
