"""The choice of an order, what each costs, and inputs other than plain features."""

import pytest
import torch

from pyg_outerconv import record
from pyg_outerconv.basis import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.contract import ORDERS, Problem, choose_order, contract
from pyg_outerconv.testing import assert_near, awkward_structures, dense_contraction

EDGES = awkward_structures()["multi-edge"]


def problem(basis, in_channels, out_channels):
    x = torch.randn(basis.size[0], in_channels, dtype=torch.float64)
    return Problem(basis, x, torch.randn(basis.num_bases, 1, in_channels, out_channels).double())


@pytest.mark.parametrize(
    ("family", "narrow_out", "narrow_in"),
    [
        (Relation(3), "transform_first", "propagate_first"),
        (Walk(3), "recurrence_clenshaw", "recurrence_forward"),
        (Identity(), "per_node", "per_node"),
    ],
)
def test_sparse_products_run_at_the_narrower_width(family, narrow_out, narrow_in):
    basis = family.basis(EDGES)
    assert choose_order(problem(basis, 64, 2)).name == narrow_out
    assert choose_order(problem(basis, 2, 64)).name == narrow_in
    for sizes, width in (((64, 2), 2), ((2, 64), 2)):
        case = problem(basis, *sizes)
        with record() as calls:
            contract(basis, case.x, case.theta)
        assert all(call.request.channels == width for call in calls)


def test_a_polynomial_takes_one_sparse_product_for_each_power_and_makes_none():
    basis = Chebyshev(6).basis(EDGES)
    case = problem(basis, 3, 3)
    with record() as calls:
        contract(basis, case.x, case.theta)
    assert len(calls) == 5
    assert {call.request.num_entries for call in calls} == {basis.operator.num_edges}


def test_all_relations_take_one_sparse_product():
    basis = Relation(3).basis(EDGES)
    case = problem(basis, 3, 3)
    with record() as calls:
        contract(basis, case.x, case.theta)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ORDERS)
def test_cost_counts_what_runs(name):
    basis = {
        "per_node": Identity(),
        "transform_first": Relation(3),
        "propagate_first": Relation(3),
    }.get(name, Walk(3)).basis(EDGES)
    case = problem(basis, 5, 4)
    assert ORDERS[name].why_not(case) == []
    with record() as calls:
        ORDERS[name].run(case)
    ran = sum(2.0 * call.request.num_entries * call.request.channels for call in calls)
    cost = ORDERS[name].cost(case)
    assert cost.sparse_flops == ran
    nodes = basis.size[0] * basis.num_bases
    assert cost.dense_flops == 2.0 * nodes * 5 * 4
    assert cost.time == cost.dense_flops + 10 * cost.sparse_flops


@pytest.mark.parametrize("order", [None, *ORDERS])
@pytest.mark.parametrize(
    "family", [Relation(3), Walk(2), Identity(), Stack(Walk(1), Relation(3))], ids=str
)
def test_batches_of_features_on_one_graph(family, order):
    basis = family.basis(EDGES)
    x = torch.randn(basis.size[0], 2, 3, 4, dtype=torch.float64)
    theta = torch.randn(basis.num_bases, 2, 2, 3, dtype=torch.float64)
    if order is not None and order not in {
        choose_order(problem(part, 2, 2), order).name for part in getattr(basis, "parts", (basis,))
    }:
        with pytest.raises(ValueError, match="may not solve this: needs"):
            contract(basis, x, theta, order=order)
        return
    actual = contract(basis, x, theta, order=order)
    for i in range(2):
        for j in range(3):
            assert_near(actual[:, i, j], dense_contraction(basis, x[:, i, j], theta))


@pytest.mark.parametrize("family", [Relation(3), Walk(2), Identity(), GCN()], ids=str)
def test_no_features_are_an_identity_matrix_of_features(family):
    basis = family.basis(EDGES)
    theta = torch.randn(basis.num_bases, 1, 5, 3, dtype=torch.float64, requires_grad=True)
    expected = dense_contraction(basis, torch.eye(5, dtype=torch.float64), theta)
    actual = contract(basis, None, theta)
    assert_near(actual, expected)
    (gradient,) = torch.autograd.grad(actual.sum(), theta, retain_graph=True)
    assert_near(gradient, torch.autograd.grad(expected.sum(), theta)[0])
    index = torch.tensor([6, 2, 2, 0, 5])
    table = torch.randn(basis.num_bases, 1, 7, 3, dtype=torch.float64)
    one_hot = torch.nn.functional.one_hot(index, 7).double()
    assert_near(contract(basis, index, table), dense_contraction(basis, one_hot, table))


def test_reasons_of_every_order_are_given():
    basis = Walk(2).basis(EDGES)
    with pytest.raises(
        ValueError,
        match=r"'propagate_first' may not solve this: needs explicit "
        r"edges, not a Polynomial",
    ):
        case = problem(basis, 2, 2)
        contract(basis, case.x, case.theta, order="propagate_first")
    with pytest.raises(ValueError, match="needs dense node features, and there are none"):
        contract(basis, None, torch.randn(3, 1, 5, 2).double(), order="recurrence_forward")
    with pytest.raises(ValueError, match="did you mean 'transform_first'"):
        contract(basis, case.x, case.theta, order="transform-first")


@pytest.mark.parametrize(
    ("x", "theta", "rule"),
    [
        (torch.ones(5, 4), torch.ones(2, 1, 4, 3), r"each label: expected \(3, G, P/G, Q/G\)"),
        (torch.ones(4, 4), torch.ones(3, 1, 4, 3), r"expected \(5, 4\), got \(4, 4\)"),
        (torch.ones(5, 3), torch.ones(3, 1, 4, 3), r"expected \(5, 4\), got \(5, 3\)"),
        (None, torch.ones(3, 1, 4, 3), "5 in_channels, got 4"),
        (None, torch.ones(3, 2, 2, 3), "G = 1, got 2"),
        (torch.tensor([0, 1, 2]), torch.ones(3, 1, 4, 3), r"expected \(5,\), got \(3,\)"),
        (torch.tensor([0, 1, 2, 3, 4]), torch.ones(3, 1, 4, 3), r"\[0, 4\), got \[0, 4\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(x, theta, rule):
    with pytest.raises(ValueError, match=rule):
        contract(Relation(3).basis(EDGES).float(), x, theta)


def test_selected_powers_take_no_products_past_the_highest():
    basis = Walk(10).basis(EDGES).select([0, 3])
    case = problem(basis, 3, 3)
    with record() as calls:
        actual = contract(basis, case.x, case.theta)
    assert len(calls) == 3
    assert_near(actual, dense_contraction(basis, case.x, case.theta))
