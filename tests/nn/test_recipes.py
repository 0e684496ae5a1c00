"""Recipes and kernels of edge attributes: PyG's layers with their weights, or how they differ."""

import pytest
import torch
from against_pyg import copy_weights
from oracle import assert_same
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, ChebConv, GCNConv, GMMConv, MixHopConv, SGConv, SSGConv
from torch_geometric.transforms import Cartesian

from pyg_outerconv import OuterConv, record
from pyg_outerconv.families import GCN, Chebyshev, Kernel, Relation, Stack
from pyg_outerconv.nn import appnp, gdc_conv, make_theta, mix_hop, sg_conv, ssg_conv
from pyg_outerconv.nn.edge_functions import BSpline, EdgeNetwork, GaussianMixture
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
    bare, weighted = theirs(x, edge_index), theirs(x, edge_index, ones)
    ours = GCN(improved=True).basis(edge_index, dtype=torch.float64)
    assert_near(ours.to_dense()[0].t() @ x @ theirs.lin.weight.t() + theirs.bias, weighted)
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


# Kernels of edge attributes -----------------------------------------------------------------------


DIM = 2
RING = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 0, 6, 2], [1, 2, 3, 4, 5, 0, 1, 3, 6, 0]])


def attributed():
    x = torch.randn(NODES, P, dtype=torch.float64, requires_grad=True)
    edge_attr = torch.rand(RING.size(1), DIM, dtype=torch.float64, requires_grad=True)
    return x, edge_attr


def gradients(out, wanted):
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(out.shape, generator=generator, dtype=out.dtype)
    return torch.autograd.grad(out, wanted, direction, retain_graph=True)


def test_gmm_conv_with_gaussians_of_every_pair_of_channels():
    """A label for each Gaussian, whose Θ has one entry that is not zero."""
    count = 3
    peer = GMMConv(P, Q, DIM, count, separate_gaussians=True, root_weight=False).double()
    function = GaussianMixture(DIM, P * Q * count)
    conv = OuterConv(P, Q, Kernel(function), aggr="mean").double()
    rows, columns = torch.arange(P * Q * count) // (Q * count), torch.arange(P * Q * count)
    columns = columns // count % Q
    labels = torch.arange(P * Q * count)
    with torch.no_grad():
        function.mu.copy_(peer.mu.view(-1, DIM))
        function.sigma.copy_(peer.sigma.view(-1, DIM))
        conv.theta.weight.zero_()
        conv.theta.weight[labels, rows, columns] = peer.g.view(-1)
    x, edge_attr = attributed()
    actual = conv(x, RING, edge_attr=edge_attr)
    # A pair, because without a root weight GMMConv fails on a single x.
    expected = peer((x, None), RING, edge_attr, size=(NODES, NODES))
    assert_near(actual, expected)
    ours = gradients(actual, [x, edge_attr, function.mu, function.sigma, conv.theta.weight])
    theirs = gradients(expected, [x, edge_attr, peer.mu, peer.sigma, peer.g])
    for gradient, wanted in zip(ours[:4], theirs[:4], strict=True):
        assert_near(gradient, wanted.reshape(gradient.shape))
    assert_near(ours[4][labels, rows, columns], theirs[4].view(-1))


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("is_open", [True, False])
def test_few_splines_add_up_to_one_with_right_derivatives(degree, is_open):
    """Which splines they are: ``tests/pyg/test_splines.py``."""
    ends = torch.cartesian_prod(*(torch.linspace(0, 1, 7, dtype=torch.float64),) * 2)
    values = BSpline((5, 4), degree, is_open)(ends)
    assert_near(values.sum(1), torch.ones(49).double())
    assert int((values > 0).sum(1).max()) <= (degree + 1) ** 2
    spline = BSpline(6, degree, is_open)
    assert_near(spline(ends[-1:, :1]), spline(ends[-1:, :1] - 1e-12), 1e-9)  # the limit at the end
    position = torch.linspace(0.03, 0.98, 9, dtype=torch.float64).view(-1, 1).requires_grad_()
    assert torch.autograd.gradcheck(spline, position)
    assert torch.autograd.gradgradcheck(spline, position)


def test_the_slope_at_the_end_is_that_of_the_last_interval():
    position = torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True)
    slopes = torch.autograd.functional.jacobian(lambda at: BSpline(5)(at)[0], position).flatten()
    assert slopes.tolist() == [0.0, 0.0, 0.0, -4.0, 4.0]


def test_the_bias_of_a_network_may_be_a_relation_beside_it():
    function = EdgeNetwork(DIM, 5, 6, constant=False)
    both = OuterConv(P, Q, Stack(Kernel(function), Relation(1, None)), bias=False).double()
    whole = EdgeNetwork(DIM, 5, 6)
    whole.load_state_dict(function.state_dict())
    one = OuterConv(P, Q, Kernel(whole), bias=False).double()
    with torch.no_grad():
        one.theta.weight.copy_(both.theta.weight)
    x, edge_attr = attributed()
    assert_near(both(x, RING, edge_attr=edge_attr), one(x, RING, edge_attr=edge_attr))


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("norm", [False, True])
def test_positions_are_those_of_cartesian(norm):
    pos = torch.randn(NODES, DIM, dtype=torch.float64, requires_grad=True)
    data = Cartesian(norm=norm)(Data(edge_index=RING, pos=pos, num_nodes=NODES))
    function = GaussianMixture(DIM, 3)
    near = OuterConv(P, Q, Kernel(function, on="pos", normalised=norm)).double()
    plain = OuterConv(P, Q, Kernel(function)).double()
    plain.load_state_dict(near.state_dict())
    x, _ = attributed()
    actual = near(x, RING, pos=pos)
    expected = plain(x, RING, edge_attr=data.edge_attr)
    assert_near(actual, expected)
    for gradient, wanted in zip(
        gradients(actual, [x, pos]), gradients(expected, [x, pos]), strict=True
    ):
        assert_near(gradient, wanted)
