"""High-pass filters, and sums of families: their values against dense matrices."""

import pytest
import torch
from torch_geometric.nn import FAConv

from pyg_outerconv import OuterConv, parse_family
from pyg_outerconv.lab.family_options import short_name
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 1, 2, 3, 0, 3], [1, 0, 2, 1, 0, 3, 1]])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.25, 1.5, 3.0, 0.75], dtype=torch.float64)


def dense(text, weight=WEIGHT):
    edges = (EDGES, weight) if parse_family(text).makes_use_of("edge_weight") else (EDGES,)
    return parse_family(text).basis(*edges, size=(5, 5), dtype=torch.float64).to_dense()


def adjacency(loops):
    a = torch.zeros(5, 5, dtype=torch.float64).index_put(tuple(EDGES), WEIGHT)
    return a + torch.eye(5, dtype=torch.float64) if loops else a


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("norm", ["sym", "target", "source", None])
def test_high_pass_is_epsilon_i_minus_the_normalised_adjacency(norm, loops):
    a = adjacency(loops)
    inverse = [d.clamp(min=1e-300).reciprocal() * (d > 0) for d in (a.sum(0), a.sum(1))]
    scaled = {
        "sym": inverse[0].sqrt()[:, None] * a * inverse[0].sqrt(),
        "target": a * inverse[0],
        "source": inverse[1][:, None] * a,
        None: a,
    }[norm]
    found = dense(f"high_pass(norm={norm}, add_self_loops={loops}, epsilon=0.75)")
    assert_near(found[0], 0.75 * torch.eye(5, dtype=torch.float64) - scaled)


def test_high_pass_is_the_filter_of_fagcn():
    """FAConv with scores of -1: ε X − D^-1/2 A D^-1/2 X."""
    layer = FAConv(3, eps=0.3, add_self_loops=False).double()
    for end in (layer.att_l, layer.att_r):
        torch.nn.init.constant_(end.weight, -1e6)  # tanh of the scores of positive features is -1
    x = torch.rand(5, 3, dtype=torch.float64) + 0.1
    family = parse_family("high_pass(add_self_loops=False, epsilon=0.3)")
    ours = OuterConv(3, 3, family, theta="identity", bias=False)
    assert_near(ours(x, EDGES), layer(x, x, EDGES))


def test_sums_of_families_are_sums_of_their_matrices():
    gcn, step, walk = dense("gcn"), dense("walk(1, norm=None, powers=(1,))"), dense("walk(2)")
    assert_near(dense("sub(gcn, walk(1, norm=None, powers=(1,)))"), gcn - step)
    assert_near(dense("add(gcn, walk(1, norm=None, powers=(1,)))"), gcn + step)
    assert_near(dense("scale(walk(2), -0.5)"), -0.5 * walk)
    factors = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64).view(3, 1, 1)
    assert_near(dense("scale(walk(2), (2.0, 0, -1.0))"), factors * walk)
    assert_near(dense("select(walk(2), (2, 0))"), walk[[2, 0]])
    assert_near(dense("sub(identity, gcn)"), dense("high_pass"))
    reversed_edges = parse_family("gcn").basis(EDGES.flip(0), WEIGHT, size=(5, 5))
    assert_near(dense("reverse(gcn)"), reversed_edges.to_dense())
    assert_near(dense("stack(gcn, reverse(gcn))"), dense("directed(gcn)"))


def test_labels_say_what_is_combined():
    assert parse_family("sub(gcn, identity)").labels == ("neighbours minus self",)
    assert parse_family("scale(gcn, 0.5)").labels == ("0.5 times neighbours",)
    assert parse_family("select(walk(2), (2,))").labels == ("forward walks of length 2",)
    assert parse_family("Reverse(gcn)").labels == ("neighbours, reversed",)


@pytest.mark.parametrize("text", ["high_pass", "HighPass()", "highpass", "high_pass(norm=sym)"])
def test_a_name_may_have_underscores(text):
    assert short_name(parse_family(text)) == "high_pass"
