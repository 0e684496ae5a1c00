"""Drawn grids: what torch's layers cannot do is done otherwise, and a cell is seen where it is."""

import random
from math import inf, nan

import pytest
import torch
from shifts import draw_shifts

from pyg_outerconv.contract import ORDERS, Problem, contract
from pyg_outerconv.families import Grid
from pyg_outerconv.nn import ConvGRUCell, GridConv, GridPool, OuterConv
from pyg_outerconv.testing import assert_edges_alone_carry, assert_near
from pyg_outerconv.theta import Theta

TYPES = (torch.float64, torch.float64, torch.float32, torch.bfloat16, torch.float16)
NEAR = {torch.float64: 1e-10, torch.float32: 5e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


def drawn_grid(pick):
    """A family and a shape that it fits."""
    while True:
        axes = pick.randint(1, 3)
        shape = tuple(pick.randint(1, 7 - axes) for _ in range(axes))

        def each(low, high, axes=axes):
            return tuple(pick.randint(low, high) for _ in range(axes))

        options = {"window": each(1, 3), "stride": each(1, 3), "dilation": each(1, 2)}
        options["padding"] = each(0, 3)
        options["padding_mode"] = pick.choice(("zeros", "zeros", "circular", "replicate"))
        options["transposed"] = pick.random() < 0.3
        if options["transposed"]:
            options["padding_mode"] = "zeros"
        try:
            family = Grid(**options)
            return family, shape, family.basis(shape)
        except ValueError:
            continue


def drawn_pool(pick):
    """Options of a layer, and a shape that they fit."""
    axes = pick.randint(1, 3)

    def each(*choices):
        return tuple(pick.choice(choices) for _ in range(axes))

    while True:
        shape = each(*range(1, 8 - axes))
        options = {
            "kernel_size": each(1, 2, 3, 4),
            "stride": each(1, 2, 3),
            "padding": each(0, 1, 2, 3),
            "dilation": each(1, 1, 2, 3),
            "ceil_mode": pick.random() < 0.3,
            "aggr": pick.choice(("max", "min", "mean", "sum")),
        }
        try:
            GridPool(**options).rule(torch.empty(1, *shape))
            return options, shape
        except ValueError:
            continue


def gradients(out, inputs):
    return torch.autograd.grad(out.sin().sum(), inputs, retain_graph=True, materialize_grads=True)


def assert_alike(found, expected, inputs, dtype):
    tolerance = NEAR[dtype]
    assert_near(found.double(), expected.double(), tolerance, at_least=0.1)
    for ours, theirs in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        assert_near(ours.double(), theirs.double(), tolerance, at_least=1.0)


@pytest.mark.parametrize("seed", range(80))
def test_convolutions_of_drawn_grids(seed):
    pick = random.Random(seed)
    _, _, basis = drawn_grid(pick)
    dtype, rows, columns = pick.choice(TYPES), pick.randint(1, 3), pick.randint(1, 3)
    x = torch.randn(2, basis.size[0], rows).to(dtype).requires_grad_()
    theta = torch.randn(basis.num_bases, 1, rows, columns).to(dtype).requires_grad_()
    nodes = x.movedim(0, 1) if pick.random() < 0.7 else x[0]
    expected = contract(basis.edges(), nodes, theta, "propagate_first")
    orders = [None]
    if not ORDERS["convolution"].why_not(Problem(basis, nodes, theta)):
        orders.append("convolution")
    for order in orders:
        assert_alike(contract(basis, nodes, theta, order), expected, [x, theta], dtype)


@pytest.mark.parametrize("seed", range(80))
def test_poolings_of_drawn_grids(seed):
    pick = random.Random(seed)
    options, shape = drawn_pool(pick)
    lowered, sparse = GridPool(**options), GridPool(**options, order="all_edges")
    dtype = pick.choice(TYPES)
    x = torch.randperm(2 * 3 * torch.Size(shape).numel()).view(2, 3, *shape)
    x = (x / 64 - 1).to(dtype).requires_grad_()
    expected = sparse(x)
    assert_alike(lowered(x), expected, [x], dtype)
    with torch.no_grad():
        assert_near(lowered(x).double(), expected.double(), NEAR[dtype], at_least=0.1)
    steps = lowered.contraction_path(x).steps
    if any(c.cost for c in steps[0].candidates if c.order.name == "pooling"):
        assert_alike(GridPool(**options, order="pooling")(x), expected, [x], dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("channels", [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_layers_of_few_channels_train(channels, dtype):
    nodes = torch.randn(2, 784, channels[0], dtype=dtype, requires_grad=True)
    conv = OuterConv(*channels, Grid((3, 3), padding=1)).to(dtype)
    image = torch.randn(2, channels[0], 8, 8, dtype=dtype, requires_grad=True)
    layer = GridConv(*channels, 3, padding=1, dim=2).to(dtype)
    cell = ConvGRUCell(*channels, Grid((3, 3), padding=1)).to(dtype)
    for out, parameters in (
        (conv(nodes, (28, 28)), conv.parameters()),
        (layer(image), layer.parameters()),
        (cell(nodes, (28, 28)), cell.parameters()),
    ):
        out = out[0] if isinstance(out, tuple) else out
        out.sin().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in parameters)


def drawn_offsets(seed):
    """Any offsets: boxes with holes and without, twice the same axis, far away."""
    pick = random.Random(seed)
    axes = pick.randint(1, 2)
    shape = tuple(pick.randint(2, 5) for _ in range(axes))
    count = pick.randint(1, 4)
    offsets = {tuple(pick.randint(-2, 2) for _ in range(axes)) for _ in range(count)}
    mode = pick.choice(("zeros", "zeros", "circular"))
    return Grid(offsets=tuple(offsets), padding_mode=mode).basis(shape)


@pytest.mark.parametrize("number", [nan, inf], ids=str)
@pytest.mark.parametrize(
    "drawn", [drawn_offsets, lambda seed: draw_shifts(seed, 2)], ids=["offsets", "shifts"]
)
@pytest.mark.parametrize("seed", range(30))
def test_a_cell_reaches_the_outputs_that_see_it_and_no_other(drawn, seed, number):
    basis = drawn(seed)
    x = torch.rand(basis.size[0], 2, dtype=torch.float64) + 0.5
    full = torch.rand(basis.num_bases, 1, 2, 2, dtype=torch.float64) + 0.5
    for theta in (full, Theta.identity(basis.num_bases, 2, x)):
        assert_edges_alone_carry(basis, x, theta, number)


def test_a_box_with_a_hole_is_not_lowered():
    holed = Grid(offsets=((0, 0), (0, 2), (2, 0), (2, 2), (1, 1))).basis((8, 8))
    filled = Grid((3, 3), padding=1).basis((8, 8))
    twice = Grid(offsets=((0, 0), (2, 0), (0, 2), (2, 2))).basis((8, 8))
    x = torch.randn(64, 2)
    for basis, lowered in ((holed, False), (filled, True), (twice, True)):
        why = ORDERS["convolution"].why_not(Problem(basis, x, torch.ones(basis.num_bases, 1, 2, 2)))
        assert why == [
            "needs a label at every position of a box, because zero times NaN is NaN"
        ] * (not lowered)
