"""Features of any size and in any type: what a target sees, and nothing else, is in its row."""

import copy
import itertools

import pytest
import torch
from seen import HEADS, SEEN, P, Q, edges_of

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import FeatureMapped
from pyg_outerconv.attention.feature_maps import PositiveRandom
from pyg_outerconv.basis.feature_product import FeatureProduct
from pyg_outerconv.families import Causal, LinearAttention
from pyg_outerconv.nn import AttentionConv, linear_attention
from pyg_outerconv.testing import assert_near
from pyg_outerconv.testing.reference import assert_seen_alone, derivatives

D = 3
EXPONENTIAL = ("elu+1", "exp", "random")


def map_of(name):
    return PositiveRandom(D, 5) if name == "random" else name


def features(nodes, size=1.0):
    return (size * torch.randn(nodes, P, dtype=torch.float64)).requires_grad_()


# Values and derivatives of exponentials of any size ----------------------------------------------


def dense(conv, phi, of_key, of_query, x, targets, seen):
    """By logarithms: the softmax over sources and dimensions, for each target."""
    key, query = (
        phi.exponent(torch.einsum("np,hpd->nhd", *part))
        for part in ((x, of_key), (targets, of_query))
    )
    value = torch.einsum("mp,hpv->mhv", x, conv.theta().squeeze(1))
    rows = []
    for n in range(len(targets)):
        table = seen[:, n]
        if not table.any():
            rows.append(torch.zeros_like(value[0]).sum(0) if len(value) else value.sum((0, 1)))
            continue
        both = (key[table] + query[n]).movedim(1, 0)  # (H, seen, D)
        share = both.flatten(1).softmax(1).view_as(both).sum(2)
        rows.append(torch.einsum("hm,mhv->v", share, value[table]))
    return torch.stack(rows) + conv.bias


def assert_is_dense(conv, score, seen, size, depth, **beside):
    x, targets = features(seen.size(0), size), features(seen.size(1), size)
    leaves = [x, targets, *conv.parameters()]
    out = conv((x, targets), **beside)
    wanted = dense(conv, score.phi, score.key.weight, score.query.weight, x, targets, seen)
    for number, (actual, reference) in enumerate(
        zip(derivatives(out, leaves, depth), derivatives(wanted, leaves, depth), strict=True)
    ):
        assert actual.isfinite().all()
        # Features are products of x, weights are exponentials of those.
        assert_near(actual, reference, 1e-9, at_least=size**2 if number else size)


@pytest.mark.parametrize("size", [1.0, 20.0, 200.0])
@pytest.mark.parametrize("causal", [None, "inclusive", "strict"])
@pytest.mark.parametrize("name", EXPONENTIAL)
def test_linear_attention_of_exponentials_of_any_size_is_the_formula(name, causal, size):
    options = {"causal": causal is not None, "strict": causal == "strict"}
    family = LinearAttention(HEADS, D, map_of(name), **options)
    conv = OuterConv(P, Q, family, theta="full").double()
    ends = torch.arange(37)[:, None], torch.arange(40)
    seen = torch.ones(37, 40, dtype=torch.bool)
    seen = seen if causal is None else ends[0] < ends[1] + (causal == "inclusive")
    assert_is_dense(conv, family.score, seen, size, 1, edge_index=None)
    graphs = torch.arange(37) % 3, torch.arange(40) % 4
    place = [end // count for end, count in zip(ends, (3, 4), strict=True)]
    seen = graphs[0][:, None] == graphs[1]
    if causal is not None:
        seen = seen & (place[0] < place[1] + (causal == "inclusive"))
    assert_is_dense(conv, family.score, seen, size, 1, edge_index=None, batch=graphs)


@pytest.mark.parametrize("size", [1.0, 200.0])
@pytest.mark.parametrize("support", [None, *SEEN])
@pytest.mark.parametrize("name", EXPONENTIAL)
def test_so_is_attention_over_any_support(name, support, size):
    score = FeatureMapped(HEADS, D, P, map_of(name))
    conv = AttentionConv(P, Q, HEADS, support, score=score, normalise="l1", combine="sum").double()
    seen = torch.rand(9, 9) < 0.5 if support is None else SEEN[support](9)
    edges = edges_of(seen) if support is None else None
    assert_is_dense(conv, score, seen, size, 2 if size == 1.0 else 1, edge_index=edges)


def layer_of_map(name, support):
    """Linear attention by prefix sums or latent nodes, or by scores of the edges of a window."""
    if support.startswith("linear"):
        return linear_attention(
            P, Q, HEADS, D, feature_map=map_of(name), causal="causal" in support
        )
    score = FeatureMapped(HEADS, D, P, map_of(name))
    return AttentionConv(P, Q, HEADS, support, score=score, normalise="l1")


OF_MAPS = ["linear", "linear causal", "complete", "causal", "blocks(3)", "slidingwindow(window=2)"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("support", OF_MAPS)
@pytest.mark.parametrize("name", EXPONENTIAL)
def test_exponentials_in_shorter_types_are_those_of_float64(name, support, dtype):
    """Also of features near -52, whose products float32 does not have."""
    conv, eps = layer_of_map(name, support).to(dtype), torch.finfo(dtype).eps
    for offset in (0.0, -52.0) if dtype == torch.float32 and name != "random" else (0.0,):
        for part in (conv.family.score.key, conv.family.score.query) if offset else ():
            part.weight.data.fill_(1.0 / P)
        x = (torch.randn(9, P) + offset).to(dtype).requires_grad_()
        same, wide = x.detach().double().requires_grad_(), copy.deepcopy(conv).double()
        actual, wanted = (
            derivatives(conv(x, None).double(), [x], 2),
            derivatives(wide(same), [same], 2),
        )
        for derivative, reference in zip(actual, wanted, strict=True):
            assert_near(derivative.double(), reference, 40 * eps, at_least=(1.0 + abs(offset)) ** 2)


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1.0, 1e18])
@pytest.mark.parametrize("support", OF_MAPS)
def test_relu_of_features_of_any_size_in_float32_is_that_of_float64(support, size):
    conv = layer_of_map("relu", support)
    x = (size * torch.randn(9, P)).requires_grad_()
    same, wide = x.detach().double().requires_grad_(), copy.deepcopy(conv).double()
    wide.family.score.phi = torch.nn.ReLU()  # of which no logarithm is known
    actual, wanted = derivatives(conv(x, None), [x], 1), derivatives(wide(same, None), [same], 1)
    for derivative, reference, least in zip(actual, wanted, (size, 1.0), strict=True):
        assert_near(derivative.double(), reference, 1e-5, at_least=least)


def test_edges_of_a_causal_basis_are_in_range_too():
    score = FeatureMapped(HEADS, D, P, "exp").double()
    conv = AttentionConv(P, Q, HEADS, Causal(), score=score, normalise="l1").double()
    x = features(9, 200.0)
    basis = conv.basis(x, None)
    assert isinstance(basis, FeatureProduct)
    theta = conv.theta_value()
    edges = basis.edges()
    wanted = torch.einsum("hmn,mp,hpq->nq", edges.to_dense(), x, theta.full().squeeze(1))
    assert_near(conv(x) - conv.bias, wanted)


class Within(torch.nn.Module):
    """A term of -inf beyond a distance of each head."""

    heads = 2

    def __init__(self, first, second):
        super().__init__()
        self.reach = torch.tensor([first, second])

    def forward(self, relative):
        return torch.where(relative.abs() < self.reach, 0.0, -torch.inf)


@pytest.mark.parametrize("normalise", ["softmax", "sigmoid", "identity", "l1", "softmax-plus-one"])
@pytest.mark.parametrize(
    "score", ["key-query", "gatv2", "additive", "bahdanau", "cosine", "gaussian-distance"]
)
def test_a_term_of_minus_infinity_says_that_there_is_no_edge(score, normalise):
    place = torch.arange(6)
    distance = (place[:, None] - place).abs()
    for reach in ((1.5, 1.5), (1.5, 2.5)):
        options = {"support": "complete", "score": score, "normalise": normalise}
        conv = AttentionConv(3, 4, 2, **options, terms=(Within(*reach),)).double()
        x = torch.randn(6, 3, dtype=torch.float64)
        seen = distance < max(reach)
        assert_seen_alone(conv, x, seen, torch.nan, forward=False, backward=False)
        # The first head's channels see only what is within its own reach.
        x[5] = torch.nan
        assert conv(x)[:4, :2].isfinite().all()


@pytest.mark.parametrize(
    ("name", "normalise"),
    [*itertools.product(["elu+1", "relu", "identity"], ["identity", "l1"]), ("exp", "l1")],
)
def test_a_query_that_sees_nothing_gives_zeros_whatever_it_is(name, normalise):
    score = f"feature-map(feature_map='{name}')"
    options = {"support": Causal(strict=True), "score": score, "normalise": normalise}
    conv = AttentionConv(3, 4, 2, **options, bias=False).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    x[[0, 4]] = torch.nan
    for batch, first in ((None, [0]), (torch.tensor([0, 0, 0, 0, 1, 1]), [0, 4])):
        out = conv(x, None, batch=batch)
        assert not out[first].any()
        assert out[5].isnan().all()
