"""Kernels of edge attributes: Gaussians of every pair of channels, splines, networks, positions."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GMMConv
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
