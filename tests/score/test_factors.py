"""Which attention is a product of factors, with no score for any pair; and that it is the same."""

import pytest
import torch

from pyg_outerconv.basis.factored import Factored
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.score import FeatureMapped
from pyg_outerconv.testing import assert_near, assert_same_gradients

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
    found, basis = conv(x, return_attention_weights=True)
    assert isinstance(basis, Factored)
    wanted, edges = plain(x, pairs(support, 70), return_attention_weights=True)
    assert_near(found, wanted)
    assert_same_gradients(found, wanted, [x])
    assert_near(basis.to_dense(), edges.to_dense())


def test_sources_that_are_not_there_and_graphs_count_alike():
    conv = conv_of()
    x = torch.randn(3, 9, P, dtype=torch.float64)
    there = torch.rand(3, 9) < 0.6
    there[2] = False
    found, basis = conv(x, source_mask=there, return_attention_weights=True)
    assert isinstance(basis, Factored)
    for number in (0, 1):
        item = x[number]
        assert_near(found[number], conv((item[there[number]], item)))
    assert torch.equal(found[2], conv.bias.expand(9, Q))
    graph = torch.arange(3).repeat_interleave(9)
    of_graphs, basis = conv(x.flatten(0, 1), batch=graph, return_attention_weights=True)
    assert isinstance(basis, Factored)
    assert_near(of_graphs.view(3, 9, Q), conv(x))


@pytest.mark.parametrize(
    "options",
    [
        {"normalise": "softmax"},
        {"support": "slidingwindow(size=2)"},
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
    assert not isinstance(conv.basis(x, None), Factored)
    assert conv(x).isfinite().all()
