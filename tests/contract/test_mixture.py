"""Θ as a mixture of matrices: of labels, and of the terms of a polynomial."""

import pytest
import torch
from contractions import normal, parameter, random_edges, tensors_of
from oracle import assert_same
from probes import Kept
from torch.utils.flop_counter import FlopCounterMode

from pyg_outerconv import record
from pyg_outerconv.basis import MONOMIAL, EdgeBasis, Pattern, Polynomial
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.testing import assert_near, dense_contraction
from pyg_outerconv.theta import Theta


@pytest.mark.parametrize(("widths", "width"), [((6, 2), 2), ((2, 6), 2), ((3, 3), 3)])
@pytest.mark.parametrize("matrices", [1, 3])
def test_as_many_sparse_products_run_as_there_are_matrices(widths, width, matrices):
    basis, x = random_edges(20, 90, 7), normal(20, widths[0], dtype=torch.float32)
    theta = parameter(7, 1, *widths, matrices, torch.float32)
    with record() as calls:
        out = contract(basis, x, theta, "label_mixing")
    requests = [call.request for call in calls]
    assert [call.primitive for call in calls] == ["spmm"] * matrices
    assert {request.shape for request in requests} == {(20, 20)}, "no row for each label"
    assert {request.channels for request in requests} == {width}
    with record() as calls:
        out.sum().backward()
    names = [call.primitive for call in calls]
    # One sample serves values and coefficients, which are summed label by label.
    assert sorted(names) == sorted(["spmm", "sddmm", "segment_sum"] * matrices)


def test_a_batch_of_coefficients_or_features_is_one_product_and_no_loop():
    basis, x = random_edges(20, 90, 7), normal(4, 20, 6, dtype=torch.float32)
    theta = parameter(7, 1, 6, 2, 2, torch.float32)
    coefficient = normal(4, 7, 2, dtype=torch.float32)

    def run(coefficient, x):
        return contract(basis, x, Theta(theta.inner, coefficient), "label_mixing")

    with record() as calls:
        actual = torch.func.vmap(run)(coefficient, x)
    assert [call.primitive for call in calls] == ["spmm"] * theta.num_matrices
    one_by_one = [run(*item) for item in zip(coefficient, x, strict=True)]
    assert_near(actual, torch.stack(one_by_one))


def test_no_gradient_is_made_that_nobody_wants():
    basis, x = random_edges(20, 90, 7, values=False), torch.randn(20, 4)
    theta = parameter(7, 1, 4, 4, 2, torch.float32)
    theta = Theta(theta.inner, theta.coefficient.detach())
    with record() as calls:
        out = contract(basis, x, theta, "label_mixing")
        before = len(calls)
        out.sum().backward()
    assert len(calls) == before == 2
    assert theta.inner.grad is not None


@pytest.mark.parametrize("values", [False, True], ids=["ones", "values"])
@pytest.mark.parametrize("matrices", [1, 4, 8])
def test_no_edge_is_kept_for_the_backward_pass(matrices, values):
    """E numbers for each matrix would be E·B; they are made again instead."""
    nodes, edges = 20, 5_000
    basis, x = random_edges(nodes, edges, 7, values), normal(nodes, 4, dtype=torch.float32)
    theta = parameter(7, 1, 4, 4, matrices, torch.float32)
    inputs = [x, *tensors_of(theta), *([basis.value] if values else [])]
    contract(basis, x, theta, "label_mixing")
    with Kept() as kept:
        out = contract(basis, x, theta, "label_mixing")
    number, nbytes = kept.beside(out, *inputs)
    assert number == matrices, "A_bᵀ X of each b"
    assert nbytes == matrices * nodes * 4 * 4
    # What it saves: with Θ made of the mixture by autograd instead, edges are mixed E·B.
    with Kept() as kept:
        for b in range(matrices):
            mixed = basis.values(x.dtype) * theta.coefficient[:, b].index_select(0, basis.label)
            one = Pattern.build(basis.index, size=basis.size).with_values(mixed)
            contract(one, x, theta.inner[b : b + 1], "propagate_first")
    assert kept.beside(*inputs)[1] >= matrices * edges * 4


def test_a_selection_and_a_scale_leave_a_mixture_one():
    basis, x = random_edges(20, 90, 4, dtype=torch.float64), normal(20, 4)
    lazy = basis.scale(2.0).stack(basis.transpose()).select([7, 0, 0, 5]).scale(-1.0)
    theta = parameter(4, 1, 4, 3, 2)
    path = contraction_path(lazy, x, theta, "label_mixing")
    assert set(path.chosen) == {"label_mixing"}
    actual = contract(lazy, x, theta, "label_mixing")
    expected = contract(lazy.edges(), x, theta.full(), "dense")
    assert_same(actual, expected, tensors_of(theta))


def test_a_problem_tells_a_mixture_from_a_tensor():
    basis, x, mixture = random_edges(5, 9, 3), torch.randn(5, 4), parameter(3, 1, 4, 2, 2)
    case = Problem(basis, x, mixture)
    assert case.mixture is mixture
    assert (case.in_channels, case.out_channels, case.num_labels, case.num_blocks) == (4, 2, 3, 1)
    assert_near(case.theta, mixture.full())
    assert Problem(basis, x, case.theta).mixture is None
    assert isinstance(basis, EdgeBasis)


MIXED = ("recurrence_forward_mixed", "recurrence_clenshaw_mixed")
NODES, TERMS = 12, 5


def polynomial(recurrence=MONOMIAL, dtype=torch.float64, values=True, nodes=NODES):
    edges = random_edges(nodes, 4 * nodes, 1, values, dtype)
    return Polynomial(edges, recurrence, TERMS)


def flops(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize("order", MIXED)
def test_a_unit_matrix_multiplies_nothing(order):
    basis, x = polynomial(), normal(NODES, 2, 4)
    coefficient = normal(TERMS, 1)
    theta = Theta(torch.ones(1, 4, 1, 1).double(), coefficient, is_unit=True)
    assert flops(lambda: contract(basis, x, theta, order)) == 0
    assert ORDERS[order].cost(Problem(basis, x, theta)).forward.dense_flops == 0
    expected = sum(
        (c * torch.einsum("mn,mbp->nbp", a, x))
        for c, a in zip(coefficient[:, 0], basis.to_dense(), strict=True)
    )
    actual = contract(basis, x, theta, order)
    assert_same(actual, expected, [x, coefficient])


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(("widths", "width"), [((6, 2), 2), ((2, 6), 2), ((4, 4), 4)], ids=str)
def test_fixed_coefficients_cost_one_dense_product_and_the_narrower_width(widths, width):
    basis = polynomial(dtype=torch.float32, nodes=2000)
    x = normal(2000, widths[0], dtype=torch.float32)
    theta = normal(1, 1, *widths, dtype=torch.float32)
    sums = basis.mix(torch.rand(1, TERMS))
    path = contraction_path(sums, x, theta)
    assert path.chosen[0] in MIXED
    with record() as calls:
        count = flops(lambda: contract(sums, x, theta))
    assert count == 2 * 2000 * widths[0] * widths[1]
    assert [call.request.channels for call in calls] == [width] * (TERMS - 1)
    assert_near(contract(sums, x, theta), dense_contraction(sums, x, theta))


def test_a_power_alone_costs_one_dense_product():
    """As in SGC, whose other powers have no matrix at all."""
    basis = polynomial(dtype=torch.float32, nodes=2000)
    x, theta = torch.randn(2000, 8), torch.randn(1, 1, 8, 8)
    last = basis.select(TERMS - 1)
    assert flops(lambda: contract(last, x, theta)) == 2 * 2000 * 8 * 8
    assert_near(contract(last, x, theta), dense_contraction(last, x, theta))


@pytest.mark.parametrize("order", ["label_mixing", *MIXED])
def test_a_tensor_and_an_empty_mixture_are_refused(order):
    basis = polynomial() if order in MIXED else random_edges(NODES, 40, TERMS).to(torch.float64)
    x = normal(NODES, 4)
    with pytest.raises(ValueError, match="needs Θ as a mixture"):
        contract(basis, x, parameter(TERMS, 1, 4, 2), order)
    empty = Theta(torch.zeros(0, 1, 4, 2).double(), torch.zeros(TERMS, 0).double())
    with pytest.raises(ValueError, match="a mixture of at least one matrix"):
        contract(basis, x, empty, order)
    assert not contract(basis, x, empty).any()
