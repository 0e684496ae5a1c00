"""Scores and normalisers by name, of users, shared by layers, and of a layer's own values."""

import copy

import pytest
import torch
from scores import leaf

from pyg_outerconv import OuterConv, contract
from pyg_outerconv.attention import (
    NORMALISERS,
    SCORES,
    Additive,
    KeyQuery,
    Score,
    Softmax,
    make_normaliser,
    make_score,
)
from pyg_outerconv.families import GCN, Attention, Hops, Relation, Stack
from pyg_outerconv.families.support.sequences import Causal, Complete
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near

P, HEADS = 4, 2
EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 0]])


class Decoder(torch.nn.Module):
    """Three attentions, with one set of key and query parameters (section 4.2 of the paper)."""

    def __init__(self, score):
        super().__init__()
        self.encode = AttentionConv(P, P, HEADS, support=Complete(), score=score)
        self.decode = AttentionConv(P, P, HEADS, support=Causal(), score=score)
        self.cross = AttentionConv((P, P), P, HEADS, support=Complete(), score=score)

    def forward(self, x, y):
        x, y = self.encode(x), self.decode(y)
        return self.cross((x, y))


def test_one_score_may_be_of_several_layers():
    shared = Decoder(KeyQuery(HEADS, 3, P)).double()
    scores = [layer.family.score for layer in shared.children()]
    assert scores[0] is scores[1] is scores[2]
    assert sum(p.shape == (HEADS, P, 3) for p in shared.parameters()) == 2  # key and query, once
    apart = Decoder(KeyQuery(HEADS, 3, P)).double()
    for name in ("decode", "cross"):
        setattr(apart, name, copy.deepcopy(getattr(apart, name)))
    apart.load_state_dict(shared.state_dict())
    x, y = leaf(5, P), leaf(6, P)
    assert_near(shared(x, y), apart(x, y))
    shared(x, y).square().sum().backward()
    apart(x, y).square().sum().backward()
    added = sum(layer.family.score.key.weight.grad for layer in apart.children())
    assert_near(scores[0].key.weight.grad, added)


def test_a_copied_model_shares_within_itself():
    twin = copy.deepcopy(Decoder(KeyQuery(HEADS, 3, P)))
    assert twin.encode.family.score is twin.cross.family.score
    assert twin.encode.functions[0] is twin.encode.family.score


@pytest.mark.parametrize("channels", [1, 40])
def test_additive_scores_are_the_same_by_values_and_by_folded_weights(channels):
    """Values of 2 numbers are narrower than x, those of 80 are not."""
    conv = AttentionConv(P, 2 * channels, HEADS, score="additive").double()
    x = leaf(5, P)
    heads = conv(x, EDGES, return_attention_weights=True)[1]
    score, values = conv.family.score, torch.einsum("mp,hpv->mhv", x, conv.theta.weight)
    near, far = (values * score.att_source).sum(-1), (values * score.att_target).sum(-1)
    source, target = heads.pattern.index.long()
    raw = torch.nn.functional.leaky_relu(near[source] + far[target], 0.2)
    for node in range(5):
        assert_near(heads.value[target == node], raw[target == node].softmax(0))


def test_scores_of_values_share_the_theta_of_their_own_labels():
    edges = Relation(1, None)
    shared = OuterConv(P, 3, Stack(GCN(), Attention(Additive(HEADS, 3), edges, Softmax())))
    alone = OuterConv(P, 3, shared.family.families[1], bias=False)  # with the same score
    x = torch.randn(5, P)
    with torch.no_grad():  # the heads of a stack have the Θ of their own labels
        alone.theta.weight.copy_(shared.theta.weight[1:])
        shared.theta.weight[0] = 0.0
    assert torch.allclose(shared(x, EDGES), alone(x, EDGES) + shared.bias, atol=1e-5)
    plain = Attention(Additive(HEADS, 3), edges, Softmax())
    assert OuterConv(P, 3, plain)(torch.randn(5, P), EDGES).shape == (5, 3)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("combine", ["concat", "mean"])
@pytest.mark.parametrize("score", ["gatv2(shared=True)", "supergat-sd"])
def test_values_are_made_once_for_the_score_and_the_sum(batch, combine, score, monkeypatch):
    calls, project = [], contract.heads.project
    monkeypatch.setattr(
        contract.heads, "project", lambda *arguments: calls.append(arguments) or project(*arguments)
    )
    options = {"combine": combine, "order": "heads_transform_first"}
    conv = AttentionConv(P, 6, HEADS, score=score, **options)
    conv(torch.randn(*batch, 5, P), EDGES)
    assert len(calls) == 1


def test_hooks_that_change_features_change_values_too():
    conv = AttentionConv(P, 6, HEADS, score="supergat-sd", bias=False).double()
    x = leaf(5, P)
    plain = conv(x, EDGES)

    def double(_, inputs):
        return inputs[0], {**inputs[1], "x": 2 * inputs[1]["x"]}

    conv.register_message_and_aggregate_forward_pre_hook(double)
    assert_near(conv(x, EDGES), 2 * plain)


def test_a_fused_step_of_an_heir_takes_its_own_features():
    class Twice(AttentionConv):
        def message_and_aggregate(self, edge_index, x, theta):
            return super().message_and_aggregate(edge_index, 2 * x, theta)

    conv = Twice(P, 6, HEADS, score="supergat-sd", bias=False).double()
    plain = AttentionConv(P, 6, HEADS, score="supergat-sd", bias=False).double()
    plain.load_state_dict(conv.state_dict())
    x = leaf(5, P)
    assert_near(conv(x, EDGES), 2 * plain(x, EDGES))


# By name ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCORES)
def test_every_score_is_made_of_heads_and_channels(name):
    score = make_score(name, 2, 3)
    assert type(score) is SCORES[name]
    assert score.heads == 2
    assert all(score.page)
    score.reset_parameters()


@pytest.mark.parametrize("name", NORMALISERS)
def test_every_normaliser_is_made_by_name(name):
    assert type(make_normaliser(name)) is NORMALISERS[name]


def test_options_are_written_in_parentheses():
    score = make_score(" key-query( bias = True, scale=0.5 ) ", 2, 3, 4)
    assert isinstance(score, KeyQuery)
    assert score.key.bias is not None
    assert score.scale == 0.5
    assert make_normaliser("softmax(temperature=2)").temperature == 2.0


def test_what_is_written_goes_before_what_is_given():
    assert make_score("key-query(channels=7)", 2, 3, 4).channels == 7
    assert make_normaliser("softmax(dropout=0.25)", dropout=0.5).dropout == 0.25


def test_scores_of_values_have_the_channels_of_values():
    assert make_score("additive", 2, 3, 4, 6).att_source.shape == (2, 6)
    assert make_score("additive(own=True)", 2, 3, 4, 6).att_source.shape == (2, 3)
    assert make_score("key-query", 2, 3, 4, 6).channels == 3


def test_what_is_made_already_is_taken():
    score, normaliser = KeyQuery(2, 3), Softmax()
    assert make_score(score, 2) is score
    assert make_normaliser(normaliser) is normaliser


@pytest.mark.parametrize("name", SCORES)
def test_the_state_of_a_lazy_score_is_loaded(name):
    sized, lazy = make_score(name, 2, 3, (4, 5)), make_score(name, 2, 3)
    if set(sized.state_dict()) != set(lazy.state_dict()):  # a pair has a projection of its own
        lazy = make_score(name, 2, 3, (-1, -1))
    lazy.load_state_dict(sized.state_dict())
    for key, value in sized.state_dict().items():
        assert torch.equal(lazy.state_dict()[key], value)


def test_a_lazy_state_makes_a_score_lazy_again():
    lazy, sized = make_score("bilinear", 2), make_score("bilinear", 2, None, (4, 5))
    sized.load_state_dict(lazy.state_dict())
    assert torch.nn.parameter.is_lazy(sized.form.weight)


X = torch.randn(5, 4)


class Own(Score):
    """Whatever a test says."""

    def __init__(self, heads, make):
        super().__init__(heads)
        self.make = make

    def forward(self, source, query, support):
        return self.make(support)


def run(make, x=X):
    return OuterConv(4, 6, Attention(Own(2, make), Hops(), Softmax()))(x, EDGES)


def test_scores_of_the_right_shape_are_taken():
    assert run(lambda support: torch.ones(support.num_edges, 2)).shape == (5, 6)
    x = torch.randn(3, 5, 4)
    assert run(lambda support: torch.ones(support.num_edges, 3, 2), x).shape == (3, 5, 6)
