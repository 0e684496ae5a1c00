"""Orders of heads and of attention equal dense matrices, with all derivatives."""

from itertools import product

import pytest
import torch
from attention_bases import (
    ATTEND_ORDERS,
    FORMS,
    HEAD_ORDERS,
    SHARES,
    Shares,
    assert_all_orders,
    attention_basis,
    dense_truth,
    heads_of,
    legal,
    parameter_of,
    pattern_of,
)
from cases import STRUCTURES
from contractions import features, normal

from pyg_outerconv import record
from pyg_outerconv.contract import contract
from pyg_outerconv.contract.order import ORDERS
from pyg_outerconv.contract.problem import Problem
from pyg_outerconv.testing import assert_near, dense_contraction

shares = pytest.mark.parametrize(("labels", "heads"), SHARES)


@pytest.mark.parametrize(
    ("make", "forms", "orders"),
    [
        (attention_basis, ("full", "concat+b", "output"), (*ATTEND_ORDERS, *HEAD_ORDERS)),
        (heads_of, ("full", "sum+b", "output"), HEAD_ORDERS),
    ],
    ids=["attention", "heads"],
)
@shares
@pytest.mark.parametrize("name", STRUCTURES)
def test_every_structure(name, labels, heads, make, forms, orders):
    pattern = pattern_of(name, labels)
    for batch, form in product(((), (2,)), forms):
        basis, tensors = make(pattern, heads, batch)
        theta, of_theta = parameter_of(form, heads, 3, 2)
        x = normal(pattern.size[0], *batch, 3)
        tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
        assert set(tried) == {n for n in orders if "+b" not in form or "transform" in n}


@pytest.mark.parametrize("order", HEAD_ORDERS)
def test_heads_of_features_without_gradient_need_no_product_backwards(order):
    basis, theta = heads_of(pattern_of("multi-edge", 1), 2)[0].detach(), normal(2, 1, 3, 4)
    for x in (torch.randn(5, 3, dtype=torch.float64), normal(5, 3)):
        out = contract(basis, x, theta, order)
        with record() as calls:
            out.sum().backward()
        is_free = order == "heads_propagate_first" and not x.requires_grad
        assert (not any(call.primitive == "spmm" for call in calls)) is is_free
        assert (ORDERS[order].cost(Problem(basis, x, theta)).backward.gathered == 0.0) is is_free


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["dense", "batch", "none", "indices", "sparse"])
@shares
def test_every_kind_of_features_and_of_parameter(labels, heads, kind, form):
    pattern = pattern_of("multi-edge", labels)
    for make in (attention_basis, heads_of):
        basis, tensors = make(pattern, heads)  # of no batch, whatever x is of
        x = features(kind, 5, 5)
        theta, of_theta = parameter_of(form, heads, 5, 3)
        if form == "identity" and kind in ("none", "indices"):
            continue  # the identity is no full matrix
        tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
        assert "heads_transform_first" in tried
        assert ("heads_propagate_first" in tried) == (
            kind in ("dense", "batch") and not form.endswith("+b")
        )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
@shares
def test_the_truth_that_users_compare_with_is_ours(labels, heads, batch, form):
    basis, _ = heads_of(pattern_of("multi-edge", labels), heads)
    x, theta = normal(5, *batch, 3), parameter_of(form, heads, 3, 2)[0]
    assert_near(dense_contraction(basis, x, theta), dense_truth(basis, x, theta))


@pytest.mark.parametrize(("biased", "present"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
@shares
def test_biases_of_scores_and_sources_that_are_not_there(labels, heads, batch, biased, present):
    pattern = pattern_of("multi-edge", labels)
    basis, tensors = attention_basis(pattern, heads, batch, biased, present)
    theta, of_theta = parameter_of("output+b", heads, 3, 2)
    x = normal(5, *batch, 3)
    tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
    assert "attend_transform_first" in tried


@shares
def test_blocks_of_channels(labels, heads):
    pattern = pattern_of("multi-edge", labels)
    for make in (attention_basis, heads_of):
        basis, tensors = make(pattern, heads)
        theta = normal(heads, 2, 2, 3)
        assert_all_orders(basis, normal(5, 4), theta, [*tensors, theta], depth=2)


@shares
@pytest.mark.parametrize("batch", [(0,), (2, 0), (1, 2)], ids=str)
def test_batches_of_any_size(labels, heads, batch):
    pattern = pattern_of("multi-edge", labels)
    for make, of_basis in product((attention_basis, heads_of), ((), batch)):
        basis, tensors = make(pattern, heads, of_basis)
        theta, of_theta = parameter_of("output", heads, 3, 2)
        assert_all_orders(basis, normal(5, *batch, 3), theta, [*tensors, *of_theta])


def test_all_that_is_no_softmax_is_spelled_out():
    basis, tensors = attention_basis(
        pattern_of("multi-edge", 1), 2, normalise=Shares(is_softmax=False)
    )
    theta, of_theta = parameter_of("concat", 2, 3, 2)
    tried = assert_all_orders(basis, normal(5, 3), theta, [*tensors, *of_theta], depth=2)
    assert set(tried) == set(HEAD_ORDERS)


def test_dropped_shares_are_spelled_out():
    basis, _ = attention_basis(pattern_of("multi-edge", 1), 2, normalise=Shares(dropped=0.1))
    assert set(legal(basis, normal(5, 3), parameter_of("concat", 2, 3, 2)[0])) == set(HEAD_ORDERS)


def test_another_batch_than_that_of_the_content_is_refused():
    basis, _ = attention_basis(pattern_of("multi-edge", 1), 2, (2,))
    theta, _ = parameter_of("concat", 2, 3, 2)
    assert not legal(basis, normal(5, 3), theta)
    assert not legal(basis, normal(5, 3, 3), theta)


@pytest.mark.parametrize("channels", [(0, 2), (3, 0)], ids=str)
def test_nothing_to_do_is_done(channels):
    rows, columns = channels
    for make in (attention_basis, heads_of):
        basis, tensors = make(pattern_of("multi-edge", 1), 2)
        for form in ("full", "concat", "output", "sum+b"):
            theta, of_theta = parameter_of(form, 2, rows, columns)
            assert_all_orders(basis, normal(5, rows), theta, [*tensors, *of_theta])


@pytest.mark.parametrize("order", [*ATTEND_ORDERS, *HEAD_ORDERS])
@shares
def test_indices_of_either_width(order, labels, heads):
    x = normal(5, 3)
    theta, _ = parameter_of("output", heads, 3, 2)
    for dtype in (torch.int32, torch.long):
        torch.manual_seed(1)
        basis, tensors = attention_basis(pattern_of("multi-edge", labels, dtype), heads)
        assert_all_orders(basis, x, theta, tensors, orders=[order])


def test_what_was_chosen_for_one_parameter_is_not_taken_for_another():
    pattern, x = pattern_of("multi-edge", 1), normal(5, 2)
    basis, _ = heads_of(pattern, 2)
    for form in ("full", "sum", "sum+b", "output", "output+b"):  # all of one shape, or nearly
        theta, of_theta = parameter_of(form, 2, 2, 3)
        assert_all_orders(basis, x, theta, of_theta)
    several, _ = heads_of(pattern, 2, (2,))
    assert_all_orders(several, normal(5, 2, 2), normal(2, 1, 2, 3), [])
