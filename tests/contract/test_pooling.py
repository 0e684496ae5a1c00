"""The lowering of pooling over a full grid to torch's poolings."""

from itertools import product

import pytest
import torch
from contractions import normal, parameter
from shifts import box, draw_shifts, some_shifts

from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.testing import assert_near
from pyg_outerconv.testing.reference import derivatives
from pyg_outerconv.theta import Theta, scaled

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
        found, expected = (derivatives(y, [x], 2) for y in (out, reference))
        for ours, theirs in zip(found, expected, strict=True):
            assert_near(ours, theirs, at_least=0.1)


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


def test_reasons_name_what_torch_lacks():
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
