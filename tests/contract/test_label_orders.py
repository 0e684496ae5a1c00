"""Which orders compare labels, of which bases, at what cost."""

import pytest
import torch
from cases import STRUCTURES
from contractions import (
    OF_EDGES,
    PAIRS_OF_REDUCTIONS,
    REDUCTIONS,
    both,
    edges_of,
    has_edges,
    identity,
    normal,
    parameter,
    random_edges,
    tensors_of,
)
from probes import Kept, Largest

from pyg_outerconv.basis import Eye, Pattern, Scaled
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.contract.cost import constants
from pyg_outerconv.contract.problem import problems
from pyg_outerconv.families import Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import assert_contraction, legal_orders
from pyg_outerconv.theta import Theta

HIDDEN = r"edges must be explicit: expected .*basis.edges\(\).*Explicit.*, got Polynomial"


# Lazy bases ---------------------------------------------------------------------------------------


@both
def test_the_algebra_commutes_with_reductions(aggr, label_aggr):
    """A negative scale makes the largest the smallest, and labels of all parts are compared."""
    relation = Relation(3).basis(STRUCTURES["multi-edge"], dtype=torch.float64)
    stack = Stack(Relation(3), Identity()).basis(STRUCTURES["multi-edge"], dtype=torch.float64)
    factor = torch.tensor([-1.0, 2.0, -0.5], dtype=torch.float64, requires_grad=True)
    wide = torch.cat([factor, -factor[:1]])
    for basis in (
        stack,
        stack.transpose(),
        relation.scale(-1.0),
        relation.scale(factor).scale(-2.0),
        relation.transpose().scale(factor),
        relation.scale(factor).select([2, 0, 2]),
        relation.select([1, 1, 0]).scale(factor),
        stack.scale(wide).scale(-1.0).transpose(),
        relation.stack(relation.scale(factor)),
        Scaled.of(Eye((5, 5), torch.device("cpu")), torch.tensor([-1.0]).double()),
        Eye((5, 3), torch.device("cpu")),
    ):
        x, theta = normal(5, 4), parameter(basis.num_bases, 1, 4, 2)
        assert_contraction(basis, x, theta, [factor], 1, aggr, label_aggr)
        assert_contraction(basis, x, identity(basis.num_bases, 4), [factor], 1, aggr, label_aggr)


def test_the_edges_of_a_lazy_basis_are_sorted_once(monkeypatch):
    stack = Stack(Relation(3), Walk(2), Identity()).basis(STRUCTURES["weighted"])
    relation = Relation(3).basis(STRUCTURES["weighted"])
    lazy = relation.stack(Eye((5, 5), torch.device("cpu"))).scale(-1.0).select([0, 3])
    x = normal(5, 4)
    for basis in (lazy, lazy.transpose(), lazy.stack(relation)):
        theta = parameter(basis.num_bases, 1, 4, 2)
        first = contract(basis, x, theta, label_aggr="max")
        with monkeypatch.context() as patch:
            patch.setattr(Pattern, "build", None)
            assert torch.equal(contract(basis, x, theta, label_aggr="max"), first)
    assert not has_edges(stack)


@both
def test_rules_that_hide_their_edges_are_refused_by_name(aggr, label_aggr):
    basis = Chebyshev(3).basis(STRUCTURES["undirected"], dtype=torch.float64)
    x = normal(5, 4)
    for lazy in (
        basis,
        basis.transpose(),
        basis.scale(2.0),
        basis.select([0, 1]),
        basis.stack(Eye((5, 5), torch.device("cpu"))),
    ):
        theta = parameter(lazy.num_bases, 1, 4, 2)
        for order in (None, "compare_labels", "recurrence_forward"):
            for function in (contract, contraction_path):
                with pytest.raises(ValueError, match=HIDDEN):
                    function(lazy, x, theta, order, aggr=aggr, label_aggr=label_aggr)
        assert_contraction(lazy.edges(), x, theta, (), 1, aggr, label_aggr)


# Which order may ----------------------------------------------------------------------------------


def test_orders_for_sums_over_labels_are_refused_by_name():
    edges, x, theta = edges_of("multi-edge"), normal(5, 4), parameter(3, 1, 4, 2, 2)
    for order in OF_EDGES:
        with pytest.raises(
            ValueError,
            match=f"order '{order}' cannot solve this problem: .*reduces labels with sum, not",
        ):
            contract(edges, x, theta, order, label_aggr="max")
    with pytest.raises(ValueError, match="reduces labels with max, min, not with sum"):
        contract(edges, x, theta, "compare_labels")


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_declares_reductions_that_exist(name):
    assert ORDERS[name].label_reductions <= {"sum", "max", "min"}
    assert ORDERS[name].reductions <= set(REDUCTIONS)


@pytest.mark.parametrize(("aggr", "label_aggr"), PAIRS_OF_REDUCTIONS)
def test_all_edges_take_one_reduction_or_one_edge_a_target_and_label(aggr, label_aggr):
    x = normal(5, 4)
    several = edges_of("multi-edge")
    index, label = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]]), torch.tensor([0, 2, 0, 1])
    single = Pattern.build(index, label, size=(5, 5), num_labels=3).with_values(None)
    legal = not legal_orders(several, x, identity(3, 4), aggr, label_aggr)["all_edges"]
    assert legal == (aggr == label_aggr)
    assert not legal_orders(single, x, identity(3, 4), aggr, label_aggr)["all_edges"]
    for theta in (parameter(3, 1, 4, 4), parameter(3, 1, 4, 4, 2)):
        reasons = legal_orders(single, x, theta, aggr, label_aggr)["all_edges"]
        assert reasons == ["needs Θ_k = c I with one number c for all labels"]


def test_sums_of_a_scaled_identity_are_one_product_without_theta():
    edges, x = edges_of("multi-edge"), normal(5, 4)
    ones = torch.ones(1, 4, 1, 1, dtype=torch.float64)
    third = Theta(
        ones, torch.full((3, 1), 1 / 3, dtype=torch.float64), is_unit=True, constant=1 / 3
    )
    assert_contraction(edges, x, third, [edges.value], 2)
    assert contraction_path(edges, x, third).chosen == ["all_edges"]
    uneven = Theta(ones, normal(3, 1), is_unit=True)
    assert_contraction(edges, x, uneven, [edges.value], 2)
    assert legal_orders(edges, x, uneven)["all_edges"]
    reasons = legal_orders(edges, x, third, "max", "max")["all_edges"]
    assert reasons == ["needs Θ_k = I for max over labels"]


@both
def test_the_choice_takes_all_edges_at_once_where_it_may(aggr, label_aggr):
    basis = edges_of("multi-edge")
    path = contraction_path(basis, normal(5, 4), identity(3, 4), aggr=aggr, label_aggr=label_aggr)
    one = aggr == label_aggr
    assert path.chosen == ["all_edges" if one else "compare_labels"]
    assert f"→ {path.chosen[0]}" in str(path)


def test_labels_compared_are_one_problem():
    basis = Stack(Relation(3), Identity()).basis(STRUCTURES["multi-edge"])
    x, theta = torch.randn(5, 4), torch.randn(4, 1, 4, 2)
    assert len(problems(Problem(basis, x, theta))) == 2
    (one,) = problems(Problem(basis, x, theta, "sum", "max"))
    assert one.basis.num_bases == 4


# What it costs ------------------------------------------------------------------------------------


def test_nothing_of_all_labels_is_held():
    """The largest result while labels are compared is that of one label, or the output itself."""
    nodes, labels, channels = 30, 20, 4
    edges = random_edges(nodes, 60, labels, dtype=torch.float64)
    x, theta = normal(nodes, channels), parameter(labels, 1, channels, channels)
    contract(edges, x, theta, "compare_labels", label_aggr="max")
    with Largest() as largest:
        contract(edges, x, theta, "compare_labels", label_aggr="max").sum().backward()
    assert largest.nbytes <= 8 * max(nodes * channels, theta.numel())


def test_costs_count_both_passes():
    edges, x, theta = edges_of("multi-edge"), normal(5, 4), parameter(3, 1, 4, 2)
    order, case = ORDERS["compare_labels"], Problem(edges, x, theta, "sum", "max")
    trained = order.cost(case)
    with torch.no_grad():
        asked = order.cost(Problem(edges, x, theta, "sum", "max"))
    assert trained.forward.dense_flops == 2 * asked.forward.dense_flops > 0
    assert asked.backward.seconds(constants("cpu")) == 0.0
    assert asked.memory < trained.memory
    with pytest.raises(ValueError, match="more than max_memory=8"):
        contract(edges, x, theta, "compare_labels", label_aggr="max", max_memory=8)


@pytest.mark.parametrize(("aggr", "label_aggr"), [("sum", "max"), ("max", "min"), ("max", "max")])
@pytest.mark.parametrize("count", [20_000, 1_000])
@pytest.mark.parametrize("widths", [(16, 16), (16, 4), (4, 16)], ids=str)
@pytest.mark.parametrize("values", [False, True], ids=["ones", "values"])
def test_an_order_holds_what_its_cost_says(values, widths, count, aggr, label_aggr):
    edges, x = random_edges(200, count, 8, values), normal(200, widths[0], dtype=torch.float32)
    given = [edges.value] if values else []
    for theta in (
        parameter(8, 1, *widths, dtype=torch.float32),
        identity(8, widths[0], torch.float32),
    ):
        inputs = [x, *given, *(tensors_of(theta) if isinstance(theta, torch.Tensor) else [])]
        how = {"aggr": aggr, "label_aggr": label_aggr}
        taken = contraction_path(edges, x, theta, **how).chosen[0]
        claimed = ORDERS[taken].cost(Problem(edges, x, theta, **how)).memory
        made = contract(edges, x, theta, **how)
        torch.autograd.grad(made.sum(), inputs)  # pairs are made, and both directions sorted
        with Kept() as kept:
            out = contract(edges, x, theta, **how)
        _, saved = kept.beside(out, *inputs)
        with Largest() as largest:
            torch.autograd.grad(contract(edges, x, theta, **how).sum(), inputs)
        assert saved <= 1.4 * claimed
        assert claimed <= 3 * (saved + largest.nbytes)
        assert largest.nbytes < count * min(widths) * 4 or count < 10_000, "edges × channels"
