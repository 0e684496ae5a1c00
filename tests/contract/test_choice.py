"""Which order is taken: the best of those that may; decided once for a key, and overridden."""

import copy
import gc
import pickle
import weakref
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import pytest
import torch
from contractions import (
    GENERAL,
    OF_EDGES,
    OF_MIXTURES,
    features,
    normal,
    parameter,
    random_edges,
)
from matrices import backends_on
from torch.autograd import forward_ad

from pyg_outerconv import OuterConv, clear_caches, record, use_backend
from pyg_outerconv.basis import MONOMIAL, Polynomial
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path, plan
from pyg_outerconv.contract.order import orders_of
from pyg_outerconv.contract.plan import PLANS, candidates, choose_order
from pyg_outerconv.families import Chebyshev, Grid, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import assert_near, awkward_structures, dense_contraction

EDGES = awkward_structures()["multi-edge"]


def problem(basis, rows, columns, grad=True):
    x = normal(basis.size[0], rows, dtype=basis.dtype or torch.float64, grad=grad)
    theta = parameter(basis.num_bases, 1, rows, columns, dtype=x.dtype, grad=grad)
    return Problem(basis, x, theta)


# The cheapest -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "narrow_out", "narrow_in"),
    [
        (Relation(3), "transform_first", "propagate_first"),
        (Walk(3), "recurrence_clenshaw", "recurrence_forward"),
    ],
)
def test_sparse_products_run_at_the_narrower_width(family, narrow_out, narrow_in):
    # Of a graph large enough for width to matter more than calls.
    index = torch.randint(2000, (2, 40_000))
    kinds = torch.randint(3, (40_000,))
    basis = family.basis(replace(EDGES, edge_index=index, edge_type=kinds, edge_weight=None,
                                 size=(2000, 2000))).float()  # fmt: skip
    for rows, columns, expected in ((64, 2, narrow_out), (2, 64, narrow_in)):
        case = problem(basis, rows, columns)
        assert expected in (choose_order(case).name, choose_order(case).name + "_compact")
        with record() as calls:
            contract(basis, case.x, case.theta)
        sparse = [call.request.channels for call in calls if call.primitive == "spmm"]
        assert sparse
        assert set(sparse) == {2}


@pytest.mark.parametrize(("labels", "is_compact"), [(1, False), (2, True)])
def test_empty_pairs_of_node_and_label_are_left_out_of_several_labels(labels, is_compact):
    case = problem(random_edges(4000, 1000, labels), 32, 32)
    assert choose_order(case).name.endswith("_compact") is is_compact


def test_few_matrices_for_many_labels_are_mixed_first():
    basis = random_edges(2000, 20_000, 200)
    x, theta = torch.randn(2000, 32), parameter(200, 1, 32, 32, 2, torch.float32)
    assert contraction_path(basis, x, theta).chosen == ["label_mixing"]


def test_a_full_graph_is_a_dense_matrix():
    size = 300
    index = torch.stack(torch.meshgrid(*[torch.arange(size)] * 2, indexing="ij")).flatten(1)
    basis = random_edges(1, 1, 1).pattern.build(index, size=(size, size)).with_values(None)
    with torch.no_grad():
        assert contraction_path(
            basis, torch.randn(size, 512), torch.randn(1, 1, 512, 512)
        ).chosen == ["dense"]


def test_the_identity_is_a_linear_layer():
    assert choose_order(problem(Identity().basis(EDGES), 4, 2)).name == "per_node"


def test_a_polynomial_takes_one_sparse_product_for_each_power_and_makes_none():
    basis = Chebyshev(6).basis(EDGES)
    case = problem(basis, 3, 3)
    with record() as calls:
        contract(basis, case.x, case.theta)
    assert len(calls) == 5
    assert {call.request.num_entries for call in calls} == {basis.operator.num_edges}


def test_selected_powers_take_no_products_past_the_highest():
    basis = Walk(10).basis(EDGES).select([0, 3])
    case = problem(basis, 3, 3)
    with record() as calls:
        actual = contract(basis, case.x, case.theta)
    assert len(calls) == 3
    assert_near(actual, dense_contraction(basis, case.x, case.theta))


def test_a_choice_has_the_least_rank_of_what_is_legal():
    for basis in (random_edges(50, 400, 5), Chebyshev(3).basis(EDGES).float()):
        case = problem(basis, 8, 4)
        all_candidates = candidates(case)
        assert [candidate.order for candidate in all_candidates] == orders_of(type(basis))
        legal = [candidate.order for candidate in all_candidates if not candidate.reasons]
        ranks = {order: order.rank(case) for order in legal}
        assert ranks[choose_order(case)] == min(ranks.values())
        assert list(ranks.values()).count(min(ranks.values())) == 1, "nothing is left to price"


def test_of_one_rank_the_cheapest_is_taken():
    case = problem(Grid((3,), padding=1).basis((40,)), 8, 4)
    legal = [candidate for candidate in candidates(case) if not candidate.reasons]
    assert len({candidate.order.rank(case) for candidate in legal} - {2}) == 1
    best = min(legal, key=lambda candidate: candidate.seconds)
    assert choose_order(case) is best.order


@pytest.mark.parametrize("learns", [True, False])
def test_features_without_a_gradient_are_propagated_once_even_where_inputs_are_wider(learns):
    basis, x = random_edges(50, 400, 1), normal(50, 6, dtype=torch.float32, grad=learns)
    theta = parameter(1, 1, 6, 4, dtype=torch.float32)
    first = "transform_first" if learns else "propagate_first"
    assert choose_order(Problem(basis, x, theta)).name == first
    with torch.no_grad():
        assert choose_order(Problem(basis, x, theta)).name == "transform_first"


def test_a_small_or_large_graph_of_edges_or_of_a_polynomial_is_chosen_for_without_any_cost(
    monkeypatch,
):
    for order in ORDERS.values():
        monkeypatch.setattr(order, "cost", None)
    plan.PLANS.clear()
    for nodes, edges, labels in ((5, 9, 3), (2000, 30_000, 40), (2000, 30_000, 1)):
        for rows, columns, matrices in ((4, 2, None), (2, 4, None), (3, 3, 1)):
            basis = random_edges(nodes, edges, labels)
            theta = parameter(labels, 1, rows, columns, matrices, torch.float32)
            x = normal(nodes, rows, dtype=torch.float32)
            choose_order(Problem(basis, x, theta))
            lazy = Polynomial(basis.select(0).edges(), MONOMIAL, labels)
            choose_order(Problem(lazy, x, theta))


# Illegal ones -------------------------------------------------------------------------------------


def test_an_illegal_order_is_never_costed(monkeypatch):
    cases = [
        Problem(basis, features(kind, 5, 5), parameter(basis.num_bases, 1, 5, 2), aggr)
        for basis in (Relation(3).basis(EDGES), Chebyshev(3).basis(EDGES), Identity().basis(EDGES))
        for kind in ("dense", "none", "sparse")
        for aggr in ("sum", "max")
    ]
    asked = []
    for name, order in ORDERS.items():

        def cost(case, order=order, name=name, real=order.cost):
            assert not order.why_not(case), f"{name} was costed where it is illegal"
            asked.append(name)
            return real(case)

        monkeypatch.setattr(order, "cost", cost)
    for case in cases:
        for candidate in candidates(case):
            assert (candidate.cost is None) == bool(candidate.reasons)
            assert (candidate.seconds == float("inf")) == bool(candidate.reasons)
    assert set(asked) == set(GENERAL) - {"fused", *OF_MIXTURES}


def test_reasons_of_the_order_that_was_asked_for_are_given():
    basis = Walk(2).basis(EDGES)
    case = problem(basis, 2, 2)
    for function in (contract, contraction_path):
        with pytest.raises(
            ValueError,
            match="'propagate_first' cannot solve .*: solves EdgeBasis and ImplicitEdges, not",
        ):
            function(basis, case.x, case.theta, order="propagate_first")
        with pytest.raises(ValueError, match="needs dense node features to propagate"):
            function(basis, None, parameter(3, 1, 5, 2), order="recurrence_forward")
        with pytest.raises(ValueError, match="did you mean 'transform_first'"):
            function(basis, case.x, case.theta, order="transform-first")


@pytest.mark.parametrize("backend", [*backends_on("cpu"), "reference"])
def test_no_order_is_chosen_that_the_backend_has_no_kernel_for(backend):
    basis = random_edges(40, 100, 20)
    case = problem(basis, 8, 8)
    with use_backend(backend):
        for candidate in candidates(case):
            name = candidate.order.name
            if candidate.reasons:
                with pytest.raises(ValueError, match=f"order '{name}' cannot solve this problem"):
                    contract(basis, case.x, case.theta, name)
            else:
                contract(basis, case.x, case.theta, name).sum().backward()
        assert contract(basis, case.x, case.theta).shape == (40, 8)


def test_all_reasons_are_given_where_no_order_is_legal():
    problem = Problem(Relation(3).basis(EDGES), None, parameter(3, 1, 5, 2), "max")
    with pytest.raises(ValueError, match="no contraction order solves") as refused:
        choose_order(problem)
    for order in orders_of(type(problem.basis)):
        reasons = order.why_not(problem)
        assert f"{order.name}: {'; '.join(reasons)}" in str(refused.value)


@pytest.mark.parametrize("order", OF_EDGES)
def test_an_order_that_was_asked_for_is_taken_by_the_leaves_that_it_may_solve(order):
    basis = Stack(Walk(2), Relation(3)).basis(EDGES)
    theta = parameter(6, 1, 4, 2, 2 if order == "label_mixing" else None)
    x = normal(5, 4)
    with use_backend("reference"):
        path = contraction_path(basis, x, theta, order)
        assert path.chosen[0].startswith("recurrence")
        assert path.chosen[1] == order
        assert_near(contract(basis, x, theta, order), dense_contraction(basis, x, theta))


# Memory -------------------------------------------------------------------------------------------


def test_max_memory_excludes_what_holds_more():
    basis = random_edges(100, 2000, 20)
    case = problem(basis, 8, 8)
    memory = {c.order.name: c.cost.memory for c in candidates(case) if c.cost is not None}
    assert len(set(memory.values())) > 3
    for bound in sorted(memory.values()):
        for candidate in candidates(case, int(bound)):
            name = candidate.order.name
            if name in memory and memory[name] > bound:
                assert candidate.reasons == (
                    f"allocates {memory[name]:.0f} bytes, more than max_memory={int(bound)}",
                )
                assert candidate.cost is None
        path = contraction_path(basis, case.x, case.theta, max_memory=int(bound))
        assert memory[path.chosen[0]] <= bound
        assert choose_order(case, None, int(bound)).name == path.chosen[0]
    with pytest.raises(ValueError, match="no contraction order solves") as refused:
        contract(basis, case.x, case.theta, max_memory=int(min(memory.values())) - 1)
    assert all(
        f"{name}: allocates {bytes_:.0f}" in str(refused.value) for name, bytes_ in memory.items()
    )


@pytest.mark.parametrize("function", [contract, contraction_path])
def test_an_order_that_was_asked_for_keeps_to_max_memory_too(function):
    basis = random_edges(100, 2000, 20)
    case = problem(basis, 8, 8)
    for name in ("dense", "transform_first"):
        memory = ORDERS[name].cost(case).memory
        function(basis, case.x, case.theta, name, max_memory=int(memory))
        with pytest.raises(
            ValueError, match=f"order '{name}' allocates {memory:.0f} bytes, more than"
        ):
            function(basis, case.x, case.theta, name, max_memory=int(memory) - 1)


# The printed path ---------------------------------------------------------------------------------


def test_a_path_is_a_table_of_what_may_solve_each_leaf_cheapest_first():
    basis = Stack(Walk(2), Relation(3)).basis(EDGES)
    path = contraction_path(basis, normal(5, 4), parameter(6, 1, 4, 2))
    assert [step.chosen for step in path.steps] == path.chosen
    for step in path.steps:
        assert all(candidate.cost is not None for candidate in step.candidates)
        assert step.candidates[0].order.name == step.chosen
        times = [candidate.seconds for candidate in step.candidates[1:]]
        assert times == sorted(times)
    assert "no:" not in str(path)
    assert len(str(path).splitlines()) < 15
    assert "2 times Aᵀ, products with Θ" in str(path)


def test_a_verbose_path_has_every_order_for_every_leaf():
    basis = Stack(Walk(2), Relation(3)).basis(EDGES)
    path = contraction_path(basis, normal(5, 4), parameter(6, 1, 4, 2), verbose=True)
    assert path.seconds == sum(
        next(c.seconds for c in step.candidates if c.order.name == step.chosen)
        for step in path.steps
    )
    text = str(path)
    assert text.count("→ ") == 2
    assert all(text.count(f" {name} ") == 2 for name in ORDERS)
    assert "solves EdgeBasis and ImplicitEdges, not a Polynomial" in text
    assert all(f"→ {name} " in text for name in path.chosen)


# What is remembered -------------------------------------------------------------------------------


def counted():
    """How often orders are compared in a block, before which nothing is known."""
    clear_caches()
    return patch.object(plan, "_best", wraps=plan._best)


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


SURROUNDINGS = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "one more thread": lambda: threads(torch.get_num_threads() + 1),
    "another backend": lambda: use_backend("reference"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "forward mode": forward_ad.dual_level,
}


def within(surrounding, call):
    with surrounding():
        return call()


def test_a_choice_is_made_anew_for_whatever_it_depends_on():
    basis = random_edges(20, 60, 3)
    x, theta = normal(20, 4, dtype=torch.float32), parameter(3, 1, 4, 2, dtype=torch.float32)
    mixed = [parameter(3, 1, 4, 2, count, torch.float32) for count in (1, 2)]
    double = basis.to(torch.float64)
    assert double.pattern is basis.pattern
    calls = {
        "plain": lambda: contract(basis, x, theta),
        "x without gradient": lambda: contract(basis, x.detach(), theta),
        "theta without gradient": lambda: contract(basis, x, theta.detach()),
        "values without gradient": lambda: contract(basis.detach(), x, theta),
        "wider": lambda: contract(basis, x, parameter(3, 1, 4, 8, dtype=torch.float32)),
        "blocks": lambda: contract(basis, x, parameter(3, 2, 4, 2, dtype=torch.float32)),
        "batch": lambda: contract(basis, x[:, None].expand(20, 7, 4), theta),
        "sparse": lambda: contract(basis, features("sparse", 20, 4, torch.float32), theta),
        "indices": lambda: contract(basis, torch.arange(20) % 4, theta),
        "mixture of 1": lambda: contract(basis, x, mixed[0]),
        "mixture of 2": lambda: contract(basis, x, mixed[1]),
        "type": lambda: contract(double, x.double(), theta.double()),
        "aggr": lambda: contract(basis, x, theta, aggr="max"),
        "max_memory": lambda: contract(basis, x, theta, max_memory=10**9),
        "a polynomial": lambda: contract(
            Polynomial(
                basis.pattern.build(basis.index, size=(20, 20)).with_values(None),
                Chebyshev(3).basis(EDGES).recurrence,
                3,
            ),
            x,
            theta,
        ),
    }
    for name, surrounding in SURROUNDINGS.items():
        calls[name] = partial(within, surrounding, calls["plain"])
    with counted() as compared:
        for number, (name, call) in enumerate(calls.items(), 1):
            call()
            assert compared.call_count == number, name
        for name, call in calls.items():
            # A bound is of this graph, and nothing is kept for it; sparse features are drawn anew.
            if name not in ("max_memory", "sparse"):
                call()
        assert compared.call_count == len(calls)


def test_a_choice_is_of_a_class_of_graphs():
    """A new graph of about one size, as every loader brings, is chosen for by what is known."""
    x, theta = normal(20, 4, dtype=torch.float32), parameter(3, 1, 4, 2, dtype=torch.float32)
    with counted() as compared:
        for number in range(40, 60):
            contract(random_edges(20, number, 3), x, theta)
        assert compared.call_count <= 2
        before = compared.call_count
        contract(random_edges(20, 1000, 3), x, theta)
        assert compared.call_count == before + 1


def test_a_graph_on_the_other_side_of_a_threshold_is_of_another_class():
    x, theta = normal(64, 4, dtype=torch.float32), parameter(3, 1, 4, 2, dtype=torch.float32)
    names = {
        edges: choose_order(Problem(random_edges(64, edges, 3), x, theta)).name
        for edges in (189, 191, 192, 195)
    }
    assert set(names.values()) == {"transform_first", "transform_first_compact"}
    plan.PLANS.clear()
    for edges in (195, 192, 191, 189):
        name = choose_order(Problem(random_edges(64, edges, 3), x, theta)).name
        assert name == names[edges], "whichever graph came first"


def test_choices_are_bounded_and_keep_no_graph_alive():
    basis, theta = random_edges(5, 9, 1), parameter(1, 1, 3, 2, dtype=torch.float32)
    for copies in range(plan.MOST_PLANS + 9):
        choose_order(Problem(basis, torch.zeros(5, copies, 3), theta))
    assert len(plan.PLANS) == plan.MOST_PLANS
    rule = Grid((3,), padding=1).basis((4,))
    choose_order(problem(rule, 3, 2))
    gone = weakref.ref(rule)
    del rule
    gc.collect()
    assert gone() is None


X, LINKS = torch.randn(340, 16), torch.randint(340, (2, 1560))  # not a tiny graph, without a plan


def test_calls_of_one_key_share_a_plan_and_it_holds_nothing_of_them():
    clear_caches()
    assert len(PLANS) == 0
    conv = OuterConv(16, 8, "gcn", cached=False)
    for seed in range(3):
        conv(X, LINKS.roll(seed))
    assert len(PLANS) == 1
    (shelf,) = PLANS._shelves.values()
    (plan,) = (entry.result for entry in shelf.entries.values())
    parts = [plan.order, plan.few, plan.mode]
    reached = [*parts, *(two for one in parts for two in gc.get_referents(one))]
    assert not any(isinstance(one, torch.Tensor | torch.nn.Module) for one in reached)
    assert "propagate_first" in str(plan) or "transform_first" in str(plan)
    assert f"plan: {plan}" in str(conv.contraction_path(X, LINKS))


def test_plans_are_left_behind_by_copies():
    clear_caches()
    conv = OuterConv(16, 8, "gcn")
    conv(X, LINKS)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(twin(X, LINKS), conv(X, LINKS))
    assert len(PLANS) == 1


def test_a_changed_option_is_never_served_an_old_plan():
    conv = OuterConv(16, 8, "gcn", cached=True)
    first = conv(X, LINKS)
    conv.order = "transform_first"
    assert conv.contraction_path(X, LINKS).chosen == ["transform_first"]
    torch.testing.assert_close(conv(X, LINKS), first)
    conv.order, conv.max_memory = None, 0
    with pytest.raises(ValueError, match="max_memory"):
        conv(X, LINKS)


STRUCTURE = awkward_structures()["multi-edge"]


def test_under_autocast_a_basis_may_be_of_its_type():
    basis = Relation(3).basis(STRUCTURE, dtype=torch.float32).float()
    x, theta = torch.ones(5, 4), torch.ones(3, 1, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert contract(basis.to(torch.bfloat16), x, theta).dtype == torch.bfloat16


def test_what_a_problem_says_of_its_gradients():
    plain, learned = random_edges(5, 9, 3, values=False), random_edges(5, 9, 3)
    polynomial = Walk(2).basis(awkward_structures(torch.float32)["weighted"]).float()
    assert polynomial.operator.value.requires_grad
    for of_x in (False, True):
        for of_theta in (False, True):
            for matrices in (None, 2):
                x = normal(5, 4, dtype=torch.float32, grad=of_x)
                theta = parameter(3, 1, 4, 2, matrices, torch.float32, of_theta)
                for basis, of_basis in ((plain, False), (learned, True), (polynomial, True)):
                    case = Problem(basis, x, theta)
                    assert case.gradients == (of_x, of_theta, of_basis)
                    with torch.no_grad():
                        assert Problem(basis, x, theta).gradients == (False, False, False)
                assert not Problem(learned.detach(), x, theta).gradients[2]
    mixture = parameter(3, 1, 4, 2, 2, torch.float32, grad=False)
    mixture = mixture.but(coefficient=mixture.coefficient.detach().requires_grad_())
    assert Problem(plain, None, mixture).gradients == (False, True, False)
    sparse = features("sparse", 5, 4, torch.float32)
    assert Problem(plain, sparse, mixture).gradients == (True, True, False)


def test_indices_of_nodes_may_be_short():
    basis, index = Relation(3).basis(STRUCTURE), torch.tensor([6, 2, 2, 0, 5])
    table = torch.randn(3, 1, 7, 3, dtype=torch.float64)
    assert_near(contract(basis, index.int(), table), contract(basis, index, table))
