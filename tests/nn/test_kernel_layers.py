"""GMMConv, SplineConv and NNConv are a kernel's convolution, with their weights."""

from itertools import product

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GMMConv, NNConv
from torch_geometric.transforms import Cartesian

from pyg_outerconv import OuterConv
from pyg_outerconv.families import Kernel, Relation, Stack
from pyg_outerconv.nn.edge_functions import BSpline, EdgeNetwork, GaussianMixture
from pyg_outerconv.testing import assert_near

NODES, DIM, P, Q = 7, 2, 3, 4
EDGE_INDEX = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 0, 6, 2], [1, 2, 3, 4, 5, 0, 1, 3, 6, 0]])
EDGES = EDGE_INDEX.size(1)


def inputs():
    x = torch.randn(NODES, P, dtype=torch.float64, requires_grad=True)
    edge_attr = torch.rand(EDGES, DIM, dtype=torch.float64, requires_grad=True)
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
    x, edge_attr = inputs()
    actual = conv(x, EDGE_INDEX, edge_attr=edge_attr)
    # A pair, because without a root weight GMMConv fails on a single x.
    expected = peer((x, None), EDGE_INDEX, edge_attr, size=(NODES, NODES))
    assert_near(actual, expected)
    ours = gradients(actual, [x, edge_attr, function.mu, function.sigma, conv.theta.weight])
    theirs = gradients(expected, [x, edge_attr, peer.mu, peer.sigma, peer.g])
    for found, wanted in zip(ours[:4], theirs[:4], strict=True):
        assert_near(found, wanted.reshape(found.shape))
    assert_near(ours[4][labels, rows, columns], theirs[4].view(-1))


def piece(v, j, degree):
    """The uniform B-spline of a degree, by Cox and de Boor's recursion, at v + degree − j."""
    t = v + degree - j

    def spline(t, m, start):
        if m == 0:
            return 1.0 if start <= t < start + 1 else 0.0
        left = (t - start) / m * spline(t, m - 1, start)
        return left + (start + m + 1 - t) / m * spline(t, m - 1, start + 1)

    return spline(t, degree, 0)


def dense_splines(position, size, degree, is_open):
    """(E, S) one attribute's splines, a number at a time."""
    out = torch.zeros(len(position), size, dtype=position.dtype)
    for e, at in enumerate((position * (size - degree * is_open)).tolist()):
        first = min(int(at), size - degree - 1) if is_open else int(at)
        for j in range(degree + 1):
            # At the very end v is 1, where the recursion's half-open pieces have their limit.
            v = min(at - first, 1 - 1e-15)
            out[e, (first + j) % size] += piece(v, j, degree)
    return out


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("is_open", [True, False, (True, False)], ids=str)
def test_spline_conv_as_the_dense_formula_has_it(degree, is_open):
    """Σ_p Π_d N(u_d) W_p, divided by the number of neighbours."""
    sizes = (5, 4)
    switches = is_open if isinstance(is_open, tuple) else (is_open,) * 2
    spline = BSpline(sizes, degree, is_open)
    conv = OuterConv(P, Q, Kernel(spline), aggr="mean", bias=False).double()
    x, edge_attr = inputs()
    with torch.no_grad():
        edge_attr[0] = torch.tensor([0.0, 1.0])
        edge_attr[1] = torch.tensor([1.0, 0.5])
    one, two = (
        dense_splines(edge_attr[:, d].detach(), sizes[d], degree, switches[d]) for d in (0, 1)
    )
    total = torch.zeros(NODES, Q).double()
    count = torch.bincount(EDGE_INDEX[1], minlength=NODES)
    for e, (source, target) in enumerate(EDGE_INDEX.t().tolist()):
        for first, second in product(range(sizes[0]), range(sizes[1])):
            weight = conv.theta.weight[first + sizes[0] * second]
            share = one[e, first] * two[e, second] / count[target]
            total[target] += share * (x[source] @ weight).detach()
    assert_near(conv(x, EDGE_INDEX, edge_attr=edge_attr), total)
    values = spline(edge_attr)
    assert_near(values.sum(1), torch.ones(EDGES).double())
    assert int((values > 0).sum(1).max()) <= (degree + 1) ** 2


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("is_open", [True, False])
def test_splines_have_right_derivatives(degree, is_open):
    spline = BSpline(6, degree, is_open)
    position = torch.linspace(0.03, 0.98, 9, dtype=torch.float64).view(-1, 1).requires_grad_()
    assert torch.autograd.gradcheck(spline, position)
    assert torch.autograd.gradgradcheck(spline, position)


def test_the_slope_at_the_end_is_that_of_the_last_interval():
    position = torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True)
    last = torch.autograd.grad(BSpline(5)(position)[0, 4], position)[0]
    assert last.item() == 4.0
    assert torch.autograd.grad(BSpline(5)(position)[0, 0], position)[0].item() == 0.0


@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_nn_conv(aggr):
    hidden = 6
    network = torch.nn.Sequential(
        torch.nn.Linear(DIM, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, P * Q)
    )
    peer = NNConv(P, Q, network, aggr=aggr).double()
    function = EdgeNetwork(DIM, hidden)
    conv = OuterConv(P, Q, Kernel(function), aggr=aggr, root_weight=True).double()
    with torch.no_grad():
        function.layers[0].load_state_dict(network[0].state_dict())
        conv.theta.weight[:hidden] = network[2].weight.t().view(hidden, P, Q)
        conv.theta.weight[hidden] = network[2].bias.view(P, Q)
        conv.root.weight.copy_(peer.lin.weight.t()[None])
        conv.bias.copy_(peer.bias.normal_())
    x, edge_attr = inputs()
    actual = conv(x, EDGE_INDEX, edge_attr=edge_attr)
    expected = peer(x, EDGE_INDEX, edge_attr)
    assert_near(actual, expected)
    first = function.layers[0]
    ours = gradients(actual, [x, edge_attr, first.weight, first.bias, conv.theta.weight])
    theirs = gradients(
        expected,
        [x, edge_attr, network[0].weight, network[0].bias, network[2].weight, network[2].bias],
    )
    for found, wanted in zip(ours[:4], theirs[:4], strict=True):
        assert_near(found, wanted)
    assert_near(ours[4][:hidden].flatten(1).t(), theirs[4])
    assert_near(ours[4][hidden].flatten(), theirs[5])


def test_the_bias_of_a_network_may_be_a_relation_beside_it():
    function = EdgeNetwork(DIM, 5, 6, constant=False)
    both = OuterConv(P, Q, Stack(Kernel(function), Relation(1, None)), bias=False).double()
    whole = EdgeNetwork(DIM, 5, 6)
    whole.load_state_dict(function.state_dict())
    one = OuterConv(P, Q, Kernel(whole), bias=False).double()
    with torch.no_grad():
        one.theta.weight.copy_(both.theta.weight)
    x, edge_attr = inputs()
    assert_near(both(x, EDGE_INDEX, edge_attr=edge_attr), one(x, EDGE_INDEX, edge_attr=edge_attr))


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("norm", [False, True])
def test_positions_are_those_of_cartesian(norm):
    pos = torch.randn(NODES, DIM, dtype=torch.float64, requires_grad=True)
    data = Cartesian(norm=norm)(Data(edge_index=EDGE_INDEX, pos=pos, num_nodes=NODES))
    function = GaussianMixture(DIM, 3)
    near = OuterConv(P, Q, Kernel(function, on="pos", normalised=norm)).double()
    plain = OuterConv(P, Q, Kernel(function)).double()
    plain.load_state_dict(near.state_dict())
    x, _ = inputs()
    actual = near(x, EDGE_INDEX, pos=pos)
    expected = plain(x, EDGE_INDEX, edge_attr=data.edge_attr)
    assert_near(actual, expected)
    for found, wanted in zip(
        gradients(actual, [x, pos]), gradients(expected, [x, pos]), strict=True
    ):
        assert_near(found, wanted)
