"""What PyG does otherwise, or draws alike; that layers are equal is in ``pyg/test_parity.py``."""

import pytest
import torch
from peers import P, Q
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import ChebConv, GCNConv

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Relation
from pyg_outerconv.testing import assert_near


def randomised(module, dtype):
    module = module.to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return module


def features(*shape, dtype):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def test_gcn_norm_keeps_one_of_several_self_loops_and_gcn_all():
    edge_index = torch.tensor([[0, 1, 1], [1, 1, 1]])
    theirs = randomised(GCNConv(P, Q), torch.float64)
    ours = OuterConv(P, Q, GCN(), bias=False).double()
    x = features(2, P, dtype=torch.float64)
    both = ours.basis(x, edge_index).to_dense()[0]
    # The in-degree of node 1: one edge and two loops.
    torch.testing.assert_close(both[1, 1], torch.tensor(2 / 3, dtype=torch.float64))
    once = ours.basis(x, edge_index[:, :2]).to_dense()[0]
    expected = once.t() @ x @ theirs.lin.weight.t() + theirs.bias
    assert_near(theirs(x, edge_index), expected)


def test_gcn_norm_forgets_improved_without_weights_and_gcn_does_not():
    edge_index = torch.tensor([[0], [1]])
    x = torch.eye(2, P, dtype=torch.float64)
    theirs = randomised(GCNConv(P, Q, improved=True), torch.float64)
    ones = torch.ones(1, dtype=torch.float64)
    bare, given = theirs(x, edge_index), theirs(x, edge_index, ones)
    ours = GCN(improved=True).basis(edge_index, dtype=torch.float64)
    assert_near(ours.to_dense()[0].t() @ x @ theirs.lin.weight.t() + theirs.bias, given)
    plain = GCN().basis(edge_index, dtype=torch.float64)
    assert_near(plain.to_dense()[0].t() @ x @ theirs.lin.weight.t() + theirs.bias, bare)


# Batches -----------------------------------------------------------------------------------------


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
