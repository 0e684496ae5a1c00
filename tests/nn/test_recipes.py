"""Recipes equal PyG's layers with their weights; what PyG does otherwise, or draws alike."""

import pytest
import torch
from against_pyg import copy_weights
from oracle import assert_same
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import APPNP, ChebConv, GCNConv, MixHopConv, SGConv, SSGConv

from pyg_outerconv import OuterConv, record
from pyg_outerconv.families import GCN, Chebyshev, Relation
from pyg_outerconv.nn import appnp, gdc_conv, make_theta, mix_hop, sg_conv, ssg_conv
from pyg_outerconv.testing import assert_near

NODES, P, Q = 8, 5, 3
EDGE_INDEX = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 6, 2, 3, 3], [1, 2, 3, 4, 5, 0, 3, 2, 6, 3, 7]])
WEIGHT = torch.linspace(0.2, 1.4, EDGE_INDEX.size(1), dtype=torch.float64)
# Ours and PyG's layer, of a number of steps.
RECIPES = {
    "sg": (lambda n: sg_conv(P, Q, n), lambda n: SGConv(P, Q, n), (1, 2, 5)),
    "ssg": (lambda n: ssg_conv(P, Q, 0.1, n), lambda n: SSGConv(P, Q, 0.1, n), (1, 4)),
    "appnp": (lambda n: appnp(n, 0.2), lambda n: APPNP(n, 0.2), (0, 1, 10)),
    "mix-hop": (
        lambda powers: mix_hop(P, Q, powers),
        lambda powers: MixHopConv(P, Q, list(powers)),
        ((0, 1, 2), (3, 1), (2,)),
    ),
}


def inputs():
    return torch.randn(NODES, P, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["ones", "weights"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_the_layer_of_pyg(name, weight):
    """With its weights; that a family's gradients in these are PyG's: ``tests/pyg``."""
    make, peer, counts = RECIPES[name]
    for count in counts:
        ours, theirs, x = make(count).double(), peer(count).double(), inputs()
        if list(theirs.parameters()):
            copy_weights(ours, theirs)
        assert_same(ours(x, EDGE_INDEX, weight), theirs(x, EDGE_INDEX, weight), [x])


def test_gdc_conv_is_a_layer_on_the_diffused_graph():
    x, conv = inputs(), gdc_conv(P, Q, "heat").double()
    dense = conv.family.basis(EDGE_INDEX, WEIGHT).to_dense()[0]
    expected = dense.t() @ x @ conv.theta.weight[0] + conv.bias
    assert_near(conv(x, EDGE_INDEX, WEIGHT), expected)


@pytest.mark.parametrize(("p", "q"), [(2, 6), (6, 2)])
@pytest.mark.parametrize(
    "make", [sg_conv, lambda p, q, length: ssg_conv(p, q, 0.1, length)], ids=["sgc", "ssgc"]
)
def test_powers_run_at_the_narrower_width(make, p, q):
    conv = make(p, q, length=4)
    x = torch.randn(NODES, p, requires_grad=True)
    conv(x, EDGE_INDEX)
    with record() as calls:
        conv(x, EDGE_INDEX, None)
    assert [call.request.channels for call in calls if call.primitive == "spmm"] == [2] * 4


def test_no_label_has_more_columns_than_its_own():
    theta = make_theta("columns", 3, 4, 6)
    built = theta()
    assert built.shape == (3, 1, 4, 6)
    for label in range(3):
        block = built[label, 0, :, 2 * label : 2 * label + 2]
        assert torch.equal(block, theta.weight[label])
        assert built[label].count_nonzero() == block.count_nonzero()
    late = make_theta("columns", 3, -1, 6)
    late.materialize(5)
    assert late.weight.shape == (3, 5, 2)


def test_gcn_norm_keeps_one_of_several_self_loops_and_gcn_all():
    edge_index = torch.tensor([[0, 1, 1], [1, 1, 1]])
    theirs = GCNConv(P, Q).double()
    ours = OuterConv(P, Q, GCN(), bias=False).double()
    x = torch.randn(2, P, dtype=torch.float64)
    both = ours.basis(x, edge_index).to_dense()[0]
    # The in-degree of node 1: one edge and two loops.
    torch.testing.assert_close(both[1, 1], torch.tensor(2 / 3, dtype=torch.float64))
    once = ours.basis(x, edge_index[:, :2]).to_dense()[0]
    expected = once.t() @ x @ theirs.lin.weight.t() + theirs.bias
    assert_near(theirs(x, edge_index), expected)


def test_gcn_norm_forgets_improved_without_weights_and_gcn_does_not():
    edge_index = torch.tensor([[0], [1]])
    x = torch.eye(2, P, dtype=torch.float64)
    theirs = GCNConv(P, Q, improved=True).double()
    ones = torch.ones(1, dtype=torch.float64)
    bare, given = theirs(x, edge_index), theirs(x, edge_index, ones)
    ours = GCN(improved=True).basis(edge_index, dtype=torch.float64)
    assert_near(ours.to_dense()[0].t() @ x @ theirs.lin.weight.t() + theirs.bias, given)
    plain = GCN().basis(edge_index, dtype=torch.float64)
    assert_near(plain.to_dense()[0].t() @ x @ theirs.lin.weight.t() + theirs.bias, bare)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: OuterConv(5, 3, GCN()), lambda: GCNConv(5, 3)),
        (lambda: OuterConv(5, 3, Chebyshev(3)), lambda: ChebConv(5, 3, K=3)),
        (lambda: OuterConv(600, 400, Chebyshev(9)), lambda: ChebConv(600, 400, K=9)),
    ],
)
def test_a_seed_gives_the_same_initial_weights(ours, theirs):
    torch.manual_seed(3)
    peer = theirs()
    after = torch.rand(1)
    torch.manual_seed(3)
    conv = ours()
    assert torch.equal(torch.rand(1), after)
    lins = getattr(peer, "lins", None) or [peer.lin]
    assert torch.equal(conv.theta.weight, torch.stack([lin.weight.t() for lin in lins]))


class Draws(TorchDispatchMode):
    """Counts draws of random numbers."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.uniform_.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_many_labels_are_drawn_at_once(device):
    with Draws() as draws, torch.device(device):
        OuterConv(3, 4, Relation(3_000), bias=False)
    assert 0 < draws.count <= 4
