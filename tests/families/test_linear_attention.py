"""Linear attention as a family: its equation, what it may not see, and what it stands beside."""

import copy
import math

import pytest
import torch
from oracle import assert_same

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import LearnedQueries
from pyg_outerconv.attention.feature_maps import FEATURE_MAPS, PositiveRandom, make_feature_map
from pyg_outerconv.basis.feature_product import FeatureProduct
from pyg_outerconv.families import GCN, Grid, Stack
from pyg_outerconv.families.linear_attention import LinearAttention
from pyg_outerconv.nn import linear_attention
from pyg_outerconv.testing import assert_near, assert_same_gradients

P, Q, HEADS, D, V = 6, 4, 2, 3, 5


def layer(theta=f"value-output(channels={V})", **options):
    return OuterConv(P, Q, LinearAttention(HEADS, D, **options), theta=theta).double()


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def formula(conv, x, targets=None):
    """Equations 5 and 9 of the paper, target by target, of one graph."""
    family, theta = conv.family, conv.theta().squeeze(1)
    phi = family.score.phi
    key = torch.einsum("mp,hpd->mhd", x, family.score.key.weight)
    query = torch.einsum(
        "np,hpd->nhd", x if targets is None else targets, family.score.query.weight
    )
    if family.bias:
        key, query = key + family.score.key.bias, query + family.score.query.bias
    key = phi(key)
    rows = []
    for n, at in enumerate(phi(query)):
        seen = n + 1 - family.strict if family.causal else len(x)
        weight = torch.einsum("mhd,hd->mh", key[:seen], at)
        if family.normalised:
            weight = weight / weight.sum(0) if seen else weight
        rows.append(torch.einsum("mh,mp,hpq->q", weight, x[:seen], theta))
    return torch.stack(rows) + conv.bias


OPTIONS = [
    {},
    {"causal": True},
    {"causal": True, "strict": True},
    {"feature_map": "relu", "normalised": False},
    {"feature_map": "exp"},
    {"feature_map": "exp", "causal": True, "normalised": False},
    {"feature_map": "identity", "normalised": False, "causal": True},
    {"feature_map": torch.nn.Softplus(), "bias": True},
    {"feature_map": PositiveRandom(D, 7), "causal": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_layer_is_the_equation_of_the_paper(options):
    conv, x = layer(**options), normal(40, P)
    assert isinstance(conv.basis(x, None), FeatureProduct)
    actual = conv(x, None)
    wanted = formula(conv, x)
    assert_near(actual, wanted)
    inputs = [x, *(part for part in conv.parameters())]
    assert_same_gradients(actual, wanted, inputs)


@pytest.mark.parametrize("causal", [False, True])
def test_targets_may_be_others_than_sources(causal):
    conv = layer(causal=causal)
    x, targets = normal(9, P), normal(14, P)
    assert_near(conv((x, targets), None), formula(conv, x, targets))


@pytest.mark.parametrize("causal", [False, True])
def test_graphs_of_a_batch_see_themselves_alone(causal):
    conv, sizes = layer(causal=causal), (5, 40, 1, 33)
    parts = [normal(size, P) for size in sizes]
    batch = torch.arange(4).repeat_interleave(torch.tensor(sizes))
    wanted = torch.cat([conv(part, None) for part in parts])
    actual = conv(torch.cat(parts), None, batch=batch)
    assert_same(actual, wanted, [*parts, *conv.parameters()])
    # Edges say nothing but which nodes there are, and order in memory is not that of graphs.
    mixed = torch.randperm(len(batch))
    at = torch.empty_like(mixed)
    at[mixed] = torch.arange(len(batch))
    if not causal:
        edges = torch.randint(len(batch), (2, 30))
        assert_near(conv(torch.cat(parts)[mixed], edges, batch=batch[mixed])[at], wanted)


def test_heads_of_both_kinds_stand_in_one_layer():
    edges, x = torch.randint(10, (2, 30)), normal(10, P)
    stack = Stack(GCN(), LinearAttention(HEADS, D))
    conv = OuterConv(P, Q, stack, bias=False).double()
    attention, gcn = (OuterConv(P, Q, part, bias=False).double() for part in stack.families[::-1])
    with torch.no_grad():
        gcn.theta.weight.copy_(conv.theta.weight[:1])
        attention.theta.weight.copy_(conv.theta.weight[1:])
    assert_near(conv(x, edges), gcn(x, edges) + attention(x, edges))
    image = OuterConv(
        P, Q, Stack(Grid(3, padding=1, dim=2), LinearAttention(HEADS, D, causal=True))
    )
    assert image(torch.randn(20, P), (4, 5)).shape == (20, Q)


def test_learned_queries_ask_each_graph():
    conv = layer(align=LearnedQueries(3, P))
    parts = [normal(size, P) for size in (4, 6)]
    batch = torch.tensor([0] * 4 + [1] * 6)
    actual = conv(torch.cat(parts), None, batch=batch)
    assert_near(actual, torch.cat([conv(part, None) for part in parts]))
    assert conv(parts[0][torch.randperm(4)], None).shape == (3, Q)


@pytest.mark.parametrize("name", sorted(FEATURE_MAPS))
@pytest.mark.parametrize("causal", [False, True])
def test_features_of_ten_thousand_are_finite_numbers(name, causal):
    conv = layer(feature_map=name, causal=causal, normalised=name != "identity").float()
    x = (1e4 * torch.randn(50, P)).requires_grad_()
    out = conv(x, None)
    gradients = torch.autograd.grad(out.sum(), [x, *conv.parameters()])
    assert all(torch.isfinite(part).all() for part in (out, *gradients))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_short_types_follow_float32(dtype, causal):
    conv = layer(causal=causal, in_channels=P).float()
    x = torch.randn(300, P)
    actual = copy.deepcopy(conv).to(dtype)(x.to(dtype), None)
    assert actual.dtype == dtype
    assert_near(actual.float(), conv(x, None), 6e-2 if dtype == torch.bfloat16 else 1e-2)
    with torch.autocast("cpu", dtype):
        actual = conv(x, None)
    assert_near(actual.float(), conv(x, None), 6e-2 if dtype == torch.bfloat16 else 1e-2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_random_features_are_their_formula_to_the_last_digit_of_a_dtype(dtype):
    phi, x = PositiveRandom(8, 11).to(dtype), torch.randn(5, 8).to(dtype)
    narrow, actual = x.double() * 8**-0.25, phi.exponent(x)
    wide = narrow @ phi.omega.double() - narrow.square().sum(1, keepdim=True) / 2
    assert actual.dtype == dtype
    assert_near(actual.double(), wide - math.log(11) / 2, 8 * torch.finfo(dtype).eps)


def test_random_features_estimate_the_softmax_kernel():
    """The mean over 4096 positive features of D = 8, of vectors shorter than one or so."""
    phi = PositiveRandom(8, 4096)
    key, query = 0.3 * torch.randn(2, 20, 8)
    kernel = (query @ key.t() / 8**0.5).exp()
    assert ((phi(query) @ phi(key).t()) / kernel - 1).abs().max() < 0.1
    omega = phi.omega[:, :8]
    product = omega.t() @ omega
    assert_near(product.diag().diag(), product, at_least=10.0)


def test_small_features_of_elu_keep_their_digits():
    x = torch.tensor([-30.0, -1e-3, 0.0, 2.0])
    wanted = torch.tensor([-30.0, -1e-3, 0.0, 2.0]).double()
    wanted = torch.where(wanted > 0, wanted + 1, wanted.exp()).float()
    assert torch.allclose(make_feature_map("elu+1")(x), wanted, rtol=1e-6, atol=0.0)


def test_the_recipe_puts_heads_side_by_side_or_projects_them():
    x = torch.randn(9, P)
    plain = linear_attention(P, Q, heads=2, causal=True)
    assert (plain.theta.name, plain.family.channels) == ("columns", 2)
    assert plain(x, None).shape == (9, Q)
    projected = linear_attention(P, 7, heads=2, channels=3, value_channels=5, bias=False)
    assert projected(x, None).shape == (9, 7)
