"""Scores and normalisers by name; scores of users, and those of GAT in a Stack."""

import pytest
import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import (
    NORMALISERS,
    SCORES,
    Additive,
    GATv2,
    KeyQuery,
    Score,
    Softmax,
    make_normaliser,
    make_score,
)
from pyg_outerconv.families import GCN, Attention, Hops, Stack


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
    known, lazy = make_score(name, 2, 3, (4, 5)), make_score(name, 2, 3)
    if set(known.state_dict()) != set(lazy.state_dict()):  # a pair has a projection of its own
        lazy = make_score(name, 2, 3, (-1, -1))
    lazy.load_state_dict(known.state_dict())
    for key, value in known.state_dict().items():
        assert torch.equal(lazy.state_dict()[key], value)


def test_a_lazy_state_makes_a_score_lazy_again():
    lazy, known = make_score("bilinear", 2), make_score("bilinear", 2, None, (4, 5))
    known.load_state_dict(lazy.state_dict())
    assert torch.nn.parameter.is_lazy(known.form.weight)


EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
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


@pytest.mark.parametrize("score", [Additive(2, 3, own=True), GATv2(2, 3, own=True)])
def test_own_projections_go_into_a_stack(score):
    conv = OuterConv(4, 6, Stack(GCN(), Attention(score, Hops(), Softmax())))
    assert conv(X, EDGES).shape == (5, 6)
    assert conv.family.num_bases == 3
