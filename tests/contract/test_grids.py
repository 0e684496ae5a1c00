"""Convolutions and poolings of grids: torch's layers where they may serve, else edges."""

import random
from itertools import product
from math import inf, nan

import pytest
import torch
from contractions import normal, parameter
from oracle import assert_same_derivatives
from shifts import box, draw_shifts, some_shifts

from pyg_outerconv.basis import Eye
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.contract.orders.grids import as_images, as_nodes
from pyg_outerconv.families import GCN, Grid
from pyg_outerconv.nn import ConvGRUCell, GridConv, GridPool, OuterConv
from pyg_outerconv.testing import (
    assert_contraction,
    assert_edges_alone_carry,
    assert_near,
    dense_contraction,
)
from pyg_outerconv.theta import Theta, scaled

CONVOLUTION = ORDERS["convolution"]
SEEDS = range(240)


def problem_of(basis, *batch, groups=1, dtype=torch.float64):
    theta = parameter(basis.num_bases, groups, 2 * groups, 3 * groups)
    return Problem(basis, normal(basis.size[0], *batch, 2 * groups), theta)


def legal(basis):
    return not CONVOLUTION.why_not(problem_of(basis))


# Equal to the dense form ------------------------------------------------------------------------


LEGAL = [seed for seed in SEEDS if legal(draw_shifts(seed))]


@pytest.mark.parametrize("seed", LEGAL)
def test_equals_the_dense_form_for_any_shifts(seed):
    basis, groups = draw_shifts(seed), 1 + seed % 2
    matrices = 2 if seed % 5 == 0 else None
    theta = parameter(basis.num_bases, groups, 2 * groups, 3 * groups, matrices)
    x = normal(basis.size[0], *((), (2,), (2, 3), (0,))[seed % 4], 2 * groups)
    inputs = [x, *([theta.inner, theta.coefficient] if matrices else [theta])]
    out = contract(basis, x, theta, order="convolution")
    reference = dense_contraction(basis, x, theta)
    assert_same_derivatives(out, reference, inputs, 2)


def test_many_random_shifts_are_lowered():
    transposed = [draw_shifts(seed).is_transposed for seed in LEGAL]
    assert len(transposed) > len(SEEDS) / 3
    assert transposed.count(True) > 20


def test_four_axes_equal_the_dense_form_without_a_lowering():
    basis = box((3, 2, 3, 2), 2, padding=1)
    assert CONVOLUTION.why_not(problem_of(basis)) == ["torch has no more than 3 axes, not 4"]
    assert_contraction(basis, normal(basis.size[0], 2), parameter(basis.num_bases, 1, 2, 2))


@pytest.mark.parametrize("transposed", [False, True])
def test_the_bias_reaches_every_cell(transposed):
    # Turned, some outputs lie outside of what the kernel reaches.
    basis = some_shifts([(2, 3), (3, 3)], (4, 6), transposed=transposed)
    x, theta, bias = normal(24, 2), parameter(2, 1, 2, 3), normal(3)
    out = contract(basis, x, theta, order="convolution", bias=bias)
    assert_near(out, dense_contraction(basis, x, theta) + bias)
    sparse = contract(basis, x, theta, order="propagate_first", bias=bias)
    assert_near(sparse, out)


# What it may not ----------------------------------------------------------------------------------


def test_reasons_name_what_torch_lacks():
    transposed = box((4, 4), 3, padding=1, mode="circular", transposed=True)
    for basis, reason in (
        (box((2, 2, 2, 2), 2), "torch has no more than 3 axes, not 4"),
        (box((4, 4), 3, padding=1, mode="reflect", transposed=True), "transposed shifts"),
        (transposed, "torch has no transposed shifts with padding_mode='circular'"),
        (some_shifts([(5,), (0,)], (3,), mode="circular"), "circular by 3 at most, not by 5"),
        (some_shifts([(3,), (0,)], (3,), mode="reflect"), "reflect by 2 at most, not by 3"),
        (box((0, 4), 1), "needs cells, and there are none"),
        (GCN().basis(torch.tensor([[0], [1]]), size=(2, 2)), "solves GridShift, not a EdgeBasis"),
        (Eye((3, 3), torch.device("cpu")), "solves GridShift, not a Eye"),
    ):
        reasons = "; ".join(CONVOLUTION.why_not(problem_of(basis)))
        assert reason in reasons, reasons


def test_features_and_channels_are_needed():
    basis = box((3,), 2)
    theta = parameter(2, 1, 3, 2)
    assert "dense node features" in CONVOLUTION.why_not(Problem(basis, None, theta))[0]
    no_channels = Problem(basis, normal(3, 0), parameter(2, 1, 0, 2))
    assert CONVOLUTION.why_not(no_channels) == ["needs at least one channel"]


def test_several_inputs_of_a_label_are_added_up_only():
    basis = box((4,), 3, padding=2, mode="replicate", transposed=True)
    theta = parameter(3, 1, 2, 2)
    problem = Problem(basis, normal(basis.size[0], 2), theta, aggr="max")
    assert any("several share a label under max" in r for r in CONVOLUTION.why_not(problem))
    assert not CONVOLUTION.why_not(
        Problem(box((4,), 3, padding=2), normal(4, 2), theta, aggr="max")
    )


# The choice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("channels", [1, 4, 32])
def test_a_full_kernel_is_lowered(channels, dtype):
    basis = box((64, 64), 3, padding=1)
    x = torch.empty(4096, 8, channels, dtype=dtype).zero_().requires_grad_()
    theta = torch.zeros(9, 1, channels, channels, dtype=dtype, requires_grad=True)
    path = contraction_path(basis, x, theta)
    assert path.chosen == ["convolution"]
    assert "→ convolution" in str(path)
    assert not basis.has_edges


def test_few_shifts_leave_holes_and_stay_sparse():
    basis = some_shifts([(0, 0), (37, 41), (-30, 13)], (64, 64))
    assert basis.geometry.kernel == (68, 42)
    x = torch.zeros(4096, 8, 32, requires_grad=True)
    theta = torch.zeros(3, 1, 32, 32, requires_grad=True)
    path = contraction_path(basis, x, theta, verbose=True)
    assert path.chosen[0] != "convolution"
    lowered = next(c for c in path.steps[0].candidates if c.order.name == "convolution")
    assert lowered.reasons == (
        "needs a label at every position of a box, because zero times NaN is NaN",
    )


def test_far_shifts_in_even_steps_are_dilated():
    basis = some_shifts([(-20, 0), (0, 20), (20, -20)], (64, 64))
    assert basis.geometry.kernel == (3, 3)
    assert [window.spacing for window in basis.geometry.axes] == [20, 20]


# Views --------------------------------------------------------------------------------------------


def test_images_are_read_and_written_where_they_are():
    images = torch.randn(2, 3, 4, 5)
    nodes = images.flatten(2).movedim(-1, 0)
    back = as_images(nodes, (4, 5))
    assert back.data_ptr() == images.data_ptr()
    assert back.is_contiguous()
    out = contract(box((4, 5), 3, padding=1), nodes, torch.randn(9, 1, 3, 6), order="convolution")
    assert as_images(out, (4, 5)).is_contiguous()
    assert as_nodes(images, (2,)).data_ptr() == images.data_ptr()


# torch's own machinery ----------------------------------------------------------------------------


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("offsets", [None, [(0, 1), (1, 0), (2, 2)]], ids=str)
def test_compiled_in_one_graph(offsets):
    basis = box((5, 5), 3, padding=1) if offsets is None else some_shifts(offsets, (5, 5))
    x, theta = normal(25, 2), parameter(basis.num_bases, 1, 2, 3)
    torch._dynamo.reset()
    if offsets is not None:  # holes, so that there are edges, which no graph makes
        contract(basis, x, theta).sum().backward()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(x, theta):
        return contract(basis, x, theta)

    out = run(x, theta)
    assert basis.has_edges == (offsets is not None)
    assert_near(out, dense_contraction(basis, x, theta))


POOLING = ORDERS["pooling"]
WINDOWS = [
    (shape, kernel, stride, padding)
    for shape, kernel, stride, padding in product(
        ((7,), (5, 6), (4, 3, 5)), (1, 2, 3), (1, 2, 3), (0, 1)
    )
    if 2 * padding <= kernel
]


def identity(basis, channels=2, constant=1.0):
    like = torch.zeros(1, dtype=torch.float64)
    return scaled(Theta.identity(basis.num_bases, channels, like), constant)


def truth(basis, x, label_aggr, constant=1.0):
    """(N, *batch, C) of x (M, *batch, C), from the dense matrices and where they have entries."""
    dense, there = basis.to_dense(x.dtype), basis.support().any(1)  # (K, M, N), (K, N)
    seen = torch.einsum("kmn,m...->kn...", dense, x)
    if label_aggr == "sum":
        return constant * seen.sum(0)
    worst = -torch.inf if label_aggr == "max" else torch.inf
    there = there.view(*there.shape, *(1,) * (x.dim() - 1))
    best = getattr(torch.where(there, seen, worst), f"a{label_aggr}")(0)
    return torch.where(there.any(0), best, 0.0)


@pytest.mark.parametrize("label_aggr", ["sum", "max", "min"])
@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), WINDOWS)
def test_equals_the_dense_form(shape, kernel, stride, padding, label_aggr):
    basis = box(shape, kernel, stride, padding)
    for constant in (1.0, 1.0 / basis.num_bases, -0.5) if label_aggr == "sum" else (1.0,):
        x, theta = normal(basis.size[0], 2, 2), identity(basis, constant=constant)
        out = contract(basis, x, theta, "pooling", label_aggr=label_aggr)
        reference = truth(basis, x, label_aggr, constant)
        assert_same_derivatives(out, reference, [x], 2)


@pytest.mark.parametrize("seed", range(200))
def test_any_windows_that_it_takes(seed):
    basis = draw_shifts(seed)
    x, theta = normal(basis.size[0], 2), identity(basis)
    for label_aggr in ("sum", "max", "min"):
        problem = Problem(basis, x, theta, label_aggr=label_aggr)
        if not POOLING.why_not(problem):
            assert_near(POOLING.run(problem), truth(basis, x, label_aggr))


@pytest.mark.parametrize("shape", [(4,), (3, 2), (2, 3, 2)], ids=str)
def test_the_transpose_of_windows_side_by_side_repeats_cells(shape):
    basis = box([3 * count for count in shape], 3, stride=3, transposed=True)
    x = normal(basis.size[0], 2, 2)
    for constant in (1.0, 0.25):
        out = contract(basis, x, identity(basis, constant=constant), "pooling")
        assert_near(out, truth(basis, x, "sum", constant))


def test_lowered_by_choice_without_making_edges():
    basis = box((64, 64), 2, stride=2)
    x = torch.zeros(4096, 8, 32, requires_grad=True)
    theta = Theta.identity(4, 32, x)
    for label_aggr in ("sum", "max", "min"):
        path = contraction_path(basis, x, theta, label_aggr=label_aggr)
        assert path.chosen == ["pooling"]
    transposed = contraction_path(basis.transpose(), torch.zeros(1024, 8, 32), theta)
    assert transposed.chosen == ["pooling"]
    assert not basis.has_edges


def test_reasons_name_what_poolings_of_torch_lack():
    window = box((6, 6), 2, stride=2)
    two = parameter(4, 1, 2, 2)
    for basis, theta, label_aggr, reason in (
        (window, two, "sum", "needs Θ_k = c I"),
        (window, identity(window, constant=0.5), "max", "needs Θ_k = I for max"),
        (box((6, 6), 2, dilation=2), None, "sum", "windows without dilation"),
        (some_shifts([(0, 0), (1, 1)], (4, 4)), None, "max", "one label at every cell"),
        (some_shifts([(0,), (0,)], (4,)), None, "sum", "one label at every cell"),
        (some_shifts([(5,)], (4,)), None, "max", "a window without cells gives 0"),
        (box((6,), 3, stride=2, transposed=True), None, "sum", "must be adjacent"),
        (box((6,), 2, stride=2, transposed=True), None, "max", "sums transposed windows"),
        (box((2, 2, 2, 2), 2), None, "max", "no more than 3 axes"),
        (window.edges(), None, "max", "solves GridShift, not a EdgeBasis"),
    ):
        theta = identity(basis) if theta is None else theta
        problem = Problem(basis, normal(basis.size[0], 2), theta, label_aggr=label_aggr)
        reasons = "; ".join(POOLING.why_not(problem))
        assert reason in reasons, reasons


def test_a_window_without_cells_is_zero():
    basis = some_shifts([(0,), (5,), (6,)], (4,))
    cells = some_shifts([(5,), (6,)], (4,))
    x = normal(4, 2)
    for rule in (basis, cells):
        for label_aggr in ("sum", "max", "min"):
            out = contract(rule, x, identity(rule), label_aggr=label_aggr)
            assert_near(out, truth(rule, x, label_aggr), at_least=1e-3)


TYPES = (torch.float64, torch.float64, torch.float32, torch.bfloat16, torch.float16)
NEAR = {torch.float64: 1e-10, torch.float32: 5e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


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


def assert_alike(actual, expected, inputs, dtype):
    tolerance = NEAR[dtype]
    assert_near(actual.double(), expected.double(), tolerance, at_least=0.1)
    how = {"retain_graph": True, "materialize_grads": True}
    both = (torch.autograd.grad(out.sin().sum(), inputs, **how) for out in (actual, expected))
    for ours, theirs in zip(*both, strict=True):
        assert_near(ours.double(), theirs.double(), tolerance, at_least=1.0)


@pytest.mark.parametrize("seed", range(80))
def test_convolutions_of_every_type_are_near_what_edges_give(seed):
    pick, basis = random.Random(seed), draw_shifts(seed)
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


@pytest.mark.parametrize("number", [nan, inf], ids=str)
@pytest.mark.parametrize("seed", range(30))
def test_a_cell_reaches_the_outputs_that_see_it_and_no_other(seed, number):
    basis = draw_shifts(seed, 2)
    x = torch.rand(basis.size[0], 2, dtype=torch.float64) + 0.5
    full = torch.rand(basis.num_bases, 1, 2, 2, dtype=torch.float64) + 0.5
    for theta in (full, Theta.identity(basis.num_bases, 2, x)):
        assert_edges_alone_carry(basis, x, theta, number)
