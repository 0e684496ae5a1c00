"""Max and min over labels: every order against the dense form with its support mask."""

import pytest
import torch
from cases import CELL_PAIRS, CELLS, PAIRS, STRUCTURES, edges_for, over
from contractions import (
    COMPARED,
    PAIRS_OF_REDUCTIONS,
    REDUCTIONS,
    both,
    edges_of,
    features,
    has_edges,
    identity,
    normal,
    parameter,
)

from pyg_outerconv.basis import Pattern
from pyg_outerconv.contract import contract
from pyg_outerconv.families import Identity, Relation, Stack
from pyg_outerconv.kernels import use_backend
from pyg_outerconv.testing import assert_contraction, assert_near, dense_contraction

# Values and gradients -----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("name", STRUCTURES)
def test_equal_the_dense_form_with_its_support(name, aggr, label_aggr):
    edges = edges_of(name)
    for widths, matrices in (((4, 2), None), ((2, 4), None), ((2, 4), 2), ((4, 2), 2)):
        x, theta = normal(edges.size[0], widths[0]), parameter(3, 1, *widths, matrices)
        assert_contraction(edges, x, theta, [edges.value], 2, aggr, label_aggr)


@pytest.mark.parametrize(("aggr", "label_aggr"), PAIRS_OF_REDUCTIONS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_equal_the_dense_form_without_a_parameter(name, aggr, label_aggr):
    edges = edges_of(name)
    x, theta = normal(edges.size[0], 4), identity(3, 4)
    assert_contraction(edges, x, theta, [edges.value], 2, aggr, label_aggr)
    single = Pattern.build(edges.index, size=edges.size).with_values(edges.value)
    assert_contraction(single, x, identity(1, 4), [edges.value], 1, aggr, label_aggr)


@over([(family, name) for family, name in PAIRS if name in ("multi-edge", "rectangular")])
def test_every_family_that_is_made_of_explicit_edges(family, name):
    edges = edges_for(family, name)
    basis = family.basis(edges, dtype=torch.float64)
    weights = [edges.edge_weight] if edges.edge_weight is not None else []
    x, theta = normal(edges.size[0], 2), parameter(basis.num_bases, 1, 2, 3)
    for aggr, label_aggr in COMPARED:
        if has_edges(basis):
            assert_contraction(basis, x, theta, weights, 1, aggr, label_aggr)
        else:
            with pytest.raises(ValueError, match="edges must be explicit"):
                contract(basis, x, theta, aggr=aggr, label_aggr=label_aggr)
        one = basis.edges()
        assert_near(
            contract(one, x, theta, aggr=aggr, label_aggr=label_aggr),
            dense_contraction(one, x, theta, aggr, label_aggr),
        )


@over([pair for pair in CELL_PAIRS if pair[1] in ("shape", "holes", "empty axis", "unbounded")])
def test_every_family_of_cells(family, name):
    """Pooling of grids too, which torch does where a grid is full."""
    basis = family.basis(CELLS[name], dtype=torch.float64)
    x, theta = normal(basis.size[0], 2), parameter(basis.num_bases, 1, 2, 3)
    for aggr, label_aggr in (("sum", "max"), ("max", "max"), ("mean", "min")):
        for which in (theta, identity(basis.num_bases, 2)):
            assert_contraction(basis, x, which, (), 1, aggr, label_aggr)


@pytest.mark.parametrize(("aggr", "label_aggr"), PAIRS_OF_REDUCTIONS)
def test_batches_and_blocks(aggr, label_aggr):
    edges, x = edges_of("multi-edge"), normal(5, 2, 3, 4)
    for theta in (parameter(3, 2, 4, 2), parameter(3, 2, 4, 2, 2), identity(3, 4)):
        assert_contraction(edges, x, theta, [edges.value], 1, aggr, label_aggr)
    empty = contract(edges, x[:, :0], theta, aggr=aggr, label_aggr=label_aggr)
    assert empty.shape == (5, 0, 3, 4)


@both
@pytest.mark.parametrize("kind", ["none", "indices", "sparse"])
def test_features_of_every_kind_where_theta_may_come_first(kind, aggr, label_aggr):
    edges = edges_of("multi-edge")
    x, theta = features(kind, 5, 5), parameter(3, 1, 5, 2)
    if aggr in ("max", "min"):
        with pytest.raises(ValueError, match="needs dense node features"):
            contract(edges, x, theta, aggr=aggr, label_aggr=label_aggr)
        return
    assert_contraction(edges, x, theta, [edges.value], 1, aggr, label_aggr)
    nothing = edges_of("zero edges")
    x, theta = features(kind, 4, 4), parameter(3, 1, 4, 2)
    assert_contraction(nothing, x, theta, (), 1, aggr, label_aggr)


@both
def test_the_reference_serves_them_too(aggr, label_aggr):
    edges, x = edges_of("multi-edge"), normal(5, 4)
    with use_backend("reference"):
        for theta in (parameter(3, 1, 4, 2), identity(3, 4)):
            assert_contraction(edges, x, theta, [edges.value], 2, aggr, label_aggr)


# What is compared ---------------------------------------------------------------------------------


def test_a_label_without_an_edge_is_left_out_and_a_zero_is_not():
    # Target 0 has label 0 alone, and target 1 has both; target 2 has none.
    pattern = Pattern.build(
        torch.tensor([[0, 0, 0], [0, 1, 1]]), torch.tensor([0, 0, 1]), size=(1, 3), num_labels=2
    )
    edges = pattern.with_values(torch.tensor([-2.0, -2.0, 0.0]))
    x = torch.ones(1, 1)
    for theta in (torch.ones(2, 1, 1, 1), identity(2, 1, torch.float32)):
        for aggr in REDUCTIONS:
            for order in (None, "compare_labels"):
                found = [
                    contract(edges, x, theta, order, aggr=aggr, label_aggr=how).flatten()
                    for how in ("sum", "max", "min")[order is not None :]
                ]
                expected = [[-2.0, -2.0, 0.0], [-2.0, 0.0, 0.0], [-2.0, -2.0, 0.0]]
                assert [tuple(f.tolist()) for f in found] == [
                    tuple(e) for e in expected[order is not None :]
                ]


def test_parallel_edges_are_compared_within_a_label_and_not_added():
    pattern = Pattern.build(
        torch.zeros(2, 3).long(), torch.tensor([0, 0, 1]), size=(1, 1), num_labels=2
    )
    edges, x = pattern.with_values(torch.tensor([1.0, 2.0, 2.5])), torch.ones(1, 1)
    for theta in (torch.ones(2, 1, 1, 1), identity(2, 1, torch.float32)):
        for aggr, label_aggr, expected in (
            ("max", "max", 2.5),
            ("sum", "max", 3.0),
            ("mean", "max", 2.5),
            ("max", "min", 2.0),
            ("min", "min", 1.0),
            ("sum", "min", 2.5),
        ):
            found = contract(edges, x, theta, aggr=aggr, label_aggr=label_aggr)
            assert found.item() == expected


def test_theta_comes_between_the_two_reductions():
    pattern = Pattern.build(torch.tensor([[0, 1], [0, 0]]), size=(2, 1))
    x, theta = torch.tensor([[1.0], [2.0]]), torch.full((1, 1, 1, 1), -1.0)
    found = contract(pattern.with_values(None), x, theta, aggr="max", label_aggr="max")
    assert found.item() == -2.0, "max, then Θ: not the largest of what Θ makes"


@pytest.mark.parametrize("label_aggr", ["max", "min"])
def test_what_is_not_a_number_wins(label_aggr):
    index = torch.tensor([[0, 1, 2], [0, 0, 0]])
    pattern = Pattern.build(index, torch.tensor([0, 1, 2]), size=(3, 1), num_labels=3)
    for place in range(3):
        x = torch.tensor([[1.0], [2.0], [3.0]])
        x[place] = float("nan")
        for theta in (torch.ones(3, 1, 1, 1), identity(3, 1, torch.float32)):
            assert contract(pattern.with_values(None), x, theta, label_aggr=label_aggr).isnan()


@pytest.mark.parametrize("label_aggr", ["max", "min"])
def test_infinite_inputs_win_over_no_edge(label_aggr):
    worst = float("-inf") if label_aggr == "max" else float("inf")
    pattern = Pattern.build(torch.tensor([[0], [0]]), size=(1, 2))
    x = torch.full((1, 1), worst)
    for theta in (torch.ones(1, 1, 1, 1), identity(1, 1, torch.float32)):
        found = contract(pattern.with_values(None), x, theta, label_aggr=label_aggr)
        assert found.flatten().tolist() == [worst, 0.0]


# torch's own features -----------------------------------------------------------------------------


def test_forward_mode_is_a_column_of_the_jacobian():
    edges, x, theta = edges_of("multi-edge"), normal(5, 4, grad=False), parameter(3, 1, 4, 2)
    for which in (theta.detach(), identity(3, 4)):
        for aggr in ("sum", "max"):

            def run(x, which=which, aggr=aggr):
                plain = edges.with_values(None)
                return contract(plain, x, which, aggr=aggr, label_aggr="max")

            along = torch.randn_like(x)
            expected = torch.tensordot(torch.func.jacrev(run)(x), along, 2)
            assert_near(torch.func.jvp(run, (x,), (along,))[1], expected, at_least=0.1)


def test_what_was_made_in_inference_mode_serves_training():
    basis = Stack(Relation(3), Identity()).basis(STRUCTURES["weighted"], dtype=torch.float64)
    x, theta = normal(5, 4), parameter(4, 1, 4, 2)
    with torch.inference_mode():
        before = contract(basis, x, theta, label_aggr="max")
    after = contract(basis, x, theta, label_aggr="max")
    assert_near(after, before)
    after.sum().backward()
