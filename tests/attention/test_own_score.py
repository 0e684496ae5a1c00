"""Scores of users: refused where shapes are wrong, and those of GAT in a Stack."""

import pytest
import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import Additive, GATv2, Score, Softmax, SuperGAT
from pyg_outerconv.families import GCN, Attention, Hops, Stack

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


@pytest.mark.parametrize("score", [Additive(2, 3), GATv2(2, 3), SuperGAT(2, 3)])
def test_scores_that_share_theta_say_what_a_stack_needs(score):
    conv = OuterConv(4, 6, Stack(GCN(), Attention(score, Hops(), Softmax())))
    expected = r"expected Θ of shape \(2, P, 3\), or in a Stack, .*own=True .*, got \(2, 4, 6\)"
    with pytest.raises(ValueError, match=expected):
        conv(X, EDGES)


@pytest.mark.parametrize("score", [Additive(2, 3, own=True), GATv2(2, 3, own=True)])
def test_own_projections_go_into_a_stack(score):
    conv = OuterConv(4, 6, Stack(GCN(), Attention(score, Hops(), Softmax())))
    assert conv(X, EDGES).shape == (5, 6)
    assert conv.family.num_bases == 3
