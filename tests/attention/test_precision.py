"""Scores that subtract what is nearly equal, or that could leave the range of numbers."""

import copy
import random

import pytest
import torch
from seen import PLAIN, SEEN, P, edges_of, layer, legal_orders, truth

from pyg_outerconv.attention import NORMALISERS, SCORES, make_normaliser, make_score
from pyg_outerconv.attention.queries import Content
from pyg_outerconv.families import Attention
from pyg_outerconv.families.support.sequences import Complete
from pyg_outerconv.nn import AttentionConv
from pyg_outerconv.testing import assert_near


def scores(text, x, query, normalise="identity"):
    """(M, N) values of one head on all pairs."""
    family = Attention(make_score(text, 1), Complete(), make_normaliser(normalise))
    nodes = family.read(None, size=(len(x), len(query)))
    basis = family.basis_on(nodes, x.dtype, Content(x, query))
    return basis.to_dense().detach()[0] if not x.requires_grad else basis.to_dense()[0]


@pytest.mark.parametrize("normalise", NORMALISERS)
@pytest.mark.parametrize("clusters", [1, 2])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_distances_are_exact_far_from_the_origin(offset, clusters, normalise):
    """And where there are others as far from there; each is as near as the numbers allow."""
    far = offset * (torch.arange(30) % clusters if clusters > 1 else torch.ones(30)).unsqueeze(1)
    x, query = (torch.randn(30, 4).double() + far).float(), (torch.randn(30, 4) + far).float()
    x[7] = query[7]
    expected = scores("gaussian-distance", x.double(), query.double(), normalise)
    difference = x.double().unsqueeze(1) - query.double()
    distance = -difference.square().sum(-1) / 2
    assert_near(scores("gaussian-distance", x.double(), query.double()), distance)
    found = scores("gaussian-distance", x, query, normalise).double()
    assert_near(found, expected, 2e-5)
    near = distance > -30
    assert_near(scores("gaussian-distance", x, query).double()[near], distance[near], 1e-5)


@pytest.mark.parametrize("support", [None, "complete", "causal"])
def test_no_distance_is_a_share_of_nothing(support):
    """Of a node alone, and of nodes that are all alike, all scores are 0, and so are shares."""
    for x in (100 * torch.randn(1, P), torch.full((4, P), 0.1)):
        seen = torch.ones(len(x), len(x), dtype=torch.bool)
        conv = layer("gaussian-distance", "l1", support, bias=False).float()
        assert not conv(x, edges_of(seen) if support is None else None).any()


def test_near_sources_are_told_apart():
    """Of sources a thousandth apart, the nearest gets the most."""
    x = (torch.arange(10) * 1e-3 + 7.0).unsqueeze(1)
    found = scores("gaussian-distance(sigma=1e-4)", x, x[:5], "softmax")
    assert found.argmax(0).tolist() == list(range(5))
    assert float(found.diagonal().min()) > 0.999


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_distances_of_short_types_are_of_exact_products(dtype):
    x, query = (torch.randn(20, 64) * 10).to(dtype), (torch.randn(5, 64) * 10).to(dtype)
    found = scores("gaussian-distance(sigma=10.0)", x, query)
    expected = -torch.cdist(x.double(), query.double()).square() / 200
    assert found.dtype == dtype
    error = (found.double() - expected).abs() / expected.abs()
    assert float(error.max()) < torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_cosines_are_of_any_size(dtype, size):
    x = (torch.randn(20, 8) * size).clamp(-6e4, 6e4).to(dtype)
    found = scores("cosine", x, x[:5])
    expected = torch.cosine_similarity(x.double().unsqueeze(1), x[:5].double(), dim=-1, eps=1e-30)
    assert float((found.double() - expected).abs().max()) < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("support", ["complete", None])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_shares_that_no_factor_changes_have_no_gradient_in_it(dtype, support):
    """Of cosines of nearly 0: sums over keys are far longer than the products with queries."""
    edges = None if support else edges_of(torch.ones(6, 1, dtype=torch.bool))
    for _ in range(20):
        near = torch.randn(1, 3)
        query = torch.linalg.cross(near, torch.randn(1, 3)).to(dtype)
        x = (near * 4 * torch.rand(6, 1) + 1e-3 * torch.randn(6, 3)).to(dtype)
        conv = AttentionConv(3, 2, support=support, score="cosine", normalise="l1").to(dtype)
        conv((x, query), edges).double().sum().backward()
        assert abs(conv.family.score.beta.grad.item()) < torch.finfo(dtype).eps


def test_a_zero_vector_is_at_right_angles_to_all():
    x = torch.randn(4, 3, dtype=torch.float64)
    x[1] = 0.0
    x.requires_grad_()
    found = scores("cosine", x, x)
    assert not found[1].any()
    assert not found[:, 1].any()
    (gradient,) = torch.autograd.grad(found.square().sum() + found.sum(), x, create_graph=True)
    assert gradient.isfinite().all()
    assert not gradient[1].any()
    assert torch.autograd.grad(gradient.square().sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("text", ["dot-product", "gaussian-distance", "bilinear"])
def test_scores_of_ten_thousands_do_not_overflow(text):
    x = torch.tensor([[100.0], [-100.0], [0.0]], requires_grad=True)
    found = scores(text, x, x, "softmax")
    assert found.isfinite().all()
    found.square().sum().backward()
    assert x.grad.isfinite().all()


SHORT = {torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("score", PLAIN)
def test_scores_and_shares_of_short_types_are_made_in_float32(score, dtype):
    """Products of large features leave the range of float16, and orders all do alike."""
    draw = random.Random(f"{score}{dtype}")
    for _ in range(3):
        normalise = draw.choice(["softmax", "softmax-plus-one", "sigmoid"])
        support = draw.choice([None, "complete", "causal", "slidingwindow(window=2)"])
        nodes, size = 9, draw.choice([1.0, 30.0, 30.0 if normalise == "sigmoid" else 400.0])
        seen = SEEN[support or "complete"](nodes)
        conv = layer(score, normalise, support).to(dtype)
        x = (size * torch.randn(nodes, P)).to(dtype).requires_grad_()
        edges = edges_of(seen) if support is None else None
        with torch.no_grad():
            wanted = truth(copy.deepcopy(conv).double(), x.double(), x.double(), seen)
        for order in legal_orders(conv, x, edges):
            conv.order = order
            found = conv(x, edges)
            (gradient,) = torch.autograd.grad(found.float().sin().sum(), x)
            assert found.dtype == gradient.dtype == dtype
            assert found.isfinite().all()
            assert gradient.isfinite().all()
            if size == 1.0:
                assert_near(found.double(), wanted, 10 * SHORT[dtype])


@pytest.mark.parametrize("support", ["complete", "causal", None])
@pytest.mark.parametrize("dtype", SHORT)
def test_second_derivatives_of_short_types_are_finite(support, dtype):
    conv = layer("dot-product(scale=None)", support=support).to(dtype)
    x = (300 * torch.randn(7, P)).to(dtype).requires_grad_()
    edges = edges_of(SEEN["causal"](7)) if support is None else None
    for order in legal_orders(conv, x, edges):
        conv.order = order
        out = conv(x, edges).float().square().mean()
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        (second,) = torch.autograd.grad(first.float().square().mean(), x)
        assert first.isfinite().all()
        assert second.isfinite().all()


@pytest.mark.parametrize("dtype", SHORT)
def test_orders_of_short_types_agree_where_scores_are_large(dtype):
    """Scores of thousands, which differ by less than the short type tells apart."""
    conv = layer("dot-product", support="complete").to(dtype)
    x = (torch.randn(8, P) + 40).to(dtype)
    wanted = truth(copy.deepcopy(conv).double(), x.double(), x.double(), SEEN["complete"](8))
    for order in legal_orders(conv, x):
        conv.order = order
        assert_near(conv(x).double(), wanted, 2 * SHORT[dtype])


@pytest.mark.parametrize(
    "options",
    [{"score": name} for name in SCORES] + [{"normalise": name} for name in NORMALISERS],
    ids=str,
)
def test_autocast_computes_in_its_type_and_stays_near(options):
    conv, x = AttentionConv(P, 6, 2, **options), torch.randn(5, P)
    edges = edges_of(SEEN["slidingwindow(window=2)"](5))
    expected = conv(x, edges)
    with torch.autocast("cpu", torch.bfloat16):
        found = conv(x, edges)
    assert_near(found.float(), expected, 0.1)
    found.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in conv.parameters())
