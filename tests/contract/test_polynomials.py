"""Polynomials whose Θ is a mixture: few dense products, each made once, at width min(P, Q)."""

import pytest
import torch
from contractions import normal, parameter, random_edges, tensors_of
from oracle import assert_same
from torch.utils.flop_counter import FlopCounterMode

from pyg_outerconv import record
from pyg_outerconv.basis import CHEBYSHEV, MONOMIAL, Polynomial
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.testing import assert_contraction, assert_near, dense_contraction
from pyg_outerconv.theta import Theta

MIXED = ("recurrence_forward_mixed", "recurrence_clenshaw_mixed")
NODES, TERMS = 12, 5


def polynomial(recurrence=MONOMIAL, dtype=torch.float64, values=True, nodes=NODES):
    edges = random_edges(nodes, 4 * nodes, 1, values, dtype)
    return Polynomial(edges, recurrence, TERMS)


def flops(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize("recurrence", [MONOMIAL, CHEBYSHEV], ids=lambda rule: rule.name)
@pytest.mark.parametrize("matrices", [1, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("batch", [(), (2, 3)], ids=str)
def test_both_ways_equal_the_dense_oracle(recurrence, matrices, groups, batch):
    basis, x = polynomial(recurrence), normal(NODES, *batch, 4)
    theta = parameter(TERMS, groups, 4, 2, matrices)
    assert_contraction(basis, x, theta, [basis.operator.value], depth=2)


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


def test_a_selection_needs_no_powers_beyond_the_highest():
    basis, x = polynomial(dtype=torch.float32), torch.randn(NODES, 3)
    theta = torch.randn(2, 1, 3, 3)
    with record() as calls:
        out = contract(basis.select([2, 0]), x, theta)
    assert len(calls) == 2
    assert_near(out, dense_contraction(basis.select([2, 0]), x, theta))


@pytest.mark.parametrize("order", MIXED)
def test_a_tensor_and_an_empty_mixture_are_refused(order):
    basis, x = polynomial(), normal(NODES, 4)
    with pytest.raises(ValueError, match="needs Θ as a mixture"):
        contract(basis, x, parameter(TERMS, 1, 4, 2), order)
    empty = Theta(torch.zeros(0, 1, 4, 2).double(), torch.zeros(TERMS, 0).double())
    with pytest.raises(ValueError, match="a mixture of at least one matrix"):
        contract(basis, x, empty, order)
    assert not contract(basis, x, empty).any()


def test_only_the_transform_first_takes_sparse_features_or_none():
    basis = polynomial()
    theta = parameter(TERMS, 1, NODES, 2, 2)
    assert_near(
        contract(basis, None, theta, "recurrence_clenshaw_mixed"),
        dense_contraction(basis, None, theta),
    )
    with pytest.raises(ValueError, match="needs dense node features to propagate"):
        contract(basis, None, theta, "recurrence_forward_mixed")
    assert all(tensor.requires_grad for tensor in tensors_of(theta))
