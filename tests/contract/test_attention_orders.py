"""Attention over edges, bands and blocks, by every order: dense matrices, all derivatives."""

from dataclasses import replace

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
from pyg_outerconv.basis.attention_basis import AttentionBasis
from pyg_outerconv.basis.band import Band
from pyg_outerconv.basis.same_block import SameBlock
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.contract.cost import constants
from pyg_outerconv.testing import assert_near, dense_contraction

DENSE_ORDERS = ("dense_attention_transform_first", "dense_attention_propagate_first")
SPARSE_ORDERS = (*ATTEND_ORDERS, *HEAD_ORDERS)
CPU = torch.device("cpu")
BANDS = {
    "all": Band(6, 6, on=CPU),
    "all of two sets": Band(4, 7, on=CPU),
    "before": Band(6, 6, right=0, on=CPU),
    "strictly before": Band(6, 6, right=-1, on=CPU),
    "before, longer sources": Band(8, 5, right=0, offset=2, on=CPU),
    "behind": Band(5, 6, left=0, on=CPU),
    "window": Band(9, 9, 2, 1, on=CPU),
    "window before": Band(9, 9, 2, 0, on=CPU),
    "dilated": Band(9, 8, 1, 1, dilation=3, offset=1, on=CPU),
    "strided": Band(9, 9, right=0, dilation=2, on=CPU),
    "rectangular identity": Band(6, 4, 0, 0, on=CPU),
    "past the end": Band(3, 6, 1, 0, offset=2, on=CPU),
    "none seen": Band(4, 4, 0, 0, offset=9, on=CPU),
    "no sources": Band(0, 3, on=CPU),
    "no targets": Band(3, 0, on=CPU),
    "nothing": Band(0, 0, 1, 1, on=CPU),
    "one node": Band(1, 1, on=CPU),
}
OF_ALL_PAIRS = ["all", "all of two sets", "one node", "no sources"]
BLOCKS = {
    "graphs": SameBlock(torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([0, 0, 1, 2, 2, 2])),
    "in any order": SameBlock(torch.tensor([2, 0, 2, 1]), torch.tensor([1, 2, 0, 2, 1])),
    "one size": SameBlock(torch.tensor([0, 1, 0, 1]), torch.tensor([1, 0, 1, 0])),
    "some in none": SameBlock(torch.tensor([-1, 0, -3, 1]), torch.tensor([-1, 1, 4, 0, -2])),
    "all in none": SameBlock(torch.tensor([-1, -1]), torch.tensor([-1, 2])),
    "no nodes": SameBlock(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)),
    "short integers": SameBlock(
        torch.tensor([0, 1, 1], dtype=torch.uint8), torch.tensor([1, 0], dtype=torch.uint8)
    ),
}
RULES = BANDS | BLOCKS
OVER = {
    f"{name}-{labels} for {heads}": (pattern_of(name, labels), heads)
    for name in STRUCTURES
    for labels, heads in SHARES
} | {name: (rule, 2) for name, rule in RULES.items()}
EDGES = [name for name in OVER if name.startswith("multi-edge")]
MAKES = (attention_basis, heads_of)


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("name", OVER)
def test_every_support_by_every_order(name, batch):
    over, heads = OVER[name]
    wanted = {attention_basis: {*SPARSE_ORDERS, *DENSE_ORDERS}}
    if name not in RULES:
        wanted = {attention_basis: set(SPARSE_ORDERS), heads_of: set(HEAD_ORDERS)}
    for make, orders in wanted.items():
        for form in ("full", "concat+b" if make is attention_basis else "sum+b", "output"):
            basis, tensors = make(over, heads, batch)
            theta, of_theta = parameter_of(form, heads, 3, 2)
            x = normal(over.size[0], *batch, 3)
            tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
            assert set(tried) == {n for n in orders if "transform" in n or "+b" not in form}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["dense", "batch", "none", "indices", "sparse"])
@pytest.mark.parametrize("name", [*EDGES, "all", "window", "graphs"])
def test_every_kind_of_features_and_of_parameter(name, kind, form):
    if form == "identity" and kind in ("none", "indices"):
        return  # the identity is no full matrix
    over, heads = OVER[name]
    for make in MAKES[: 2 if name in EDGES else 1]:
        basis, tensors = make(over, heads)  # of no batch, whatever x is of
        x = features(kind, over.size[0], over.size[0])
        theta, of_theta = parameter_of(form, heads, over.size[0], 3)
        tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
        assert "heads_transform_first" in tried
        assert (DENSE_ORDERS[0] in tried) == (name in RULES)
        propagates = kind in ("dense", "batch") and not form.endswith("+b")
        assert ("heads_propagate_first" in tried) == propagates


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("name", EDGES)
def test_the_truth_that_users_compare_with_is_ours(name, batch, form):
    over, heads = OVER[name]
    basis, _ = heads_of(over, heads)
    x, theta = normal(5, *batch, 3), parameter_of(form, heads, 3, 2)[0]
    assert_near(dense_contraction(basis, x, theta), dense_truth(basis, x, theta))


@pytest.mark.parametrize("shared", [False, True], ids=["each item", "all items"])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize(
    ("name", "biased", "present"),
    [
        *((name, True, there) for name in (*EDGES, *OF_ALL_PAIRS) for there in (False, True)),
        *((name, False, True) for name in (*EDGES, *BANDS)),
    ],
)
def test_biases_of_scores_and_sources_that_are_not_there(name, batch, biased, present, shared):
    over, heads = OVER[name]
    for count in (over.num_labels if name in EDGES else 1, heads):
        basis, tensors = attention_basis(over, count, batch, biased, present, shared=shared)
        form = "output+b" if name in EDGES else "concat+b"
        theta, of_theta = parameter_of(form, count, 3, 2)
        x = normal(over.size[0], *batch, 3)
        tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
        assert (DENSE_ORDERS[0] if name in BANDS else ATTEND_ORDERS[0]) in tried


@pytest.mark.parametrize("factor", [0.0, -20.0])
@pytest.mark.parametrize("name", RULES)
def test_scores_times_nothing_or_less(name, factor):
    for present in {False, name in BANDS}:
        basis, tensors = attention_basis(RULES[name], factor=factor, present=present)
        theta, of_theta = parameter_of("output", 2, 3, 2)
        x, tensors = normal(basis.size[0], 3), tensors + of_theta
        assert_all_orders(basis, x, theta, tensors, orders=DENSE_ORDERS[:1])


@pytest.mark.parametrize("name", EDGES)
def test_blocks_of_channels_batches_of_any_size_and_short_indices(name):
    over, heads = OVER[name]
    for make in MAKES:
        basis, tensors = make(over, heads)
        theta = normal(heads, 2, 2, 3)
        assert_all_orders(basis, normal(5, 4), theta, [*tensors, theta], depth=2)
        for batch in ((0,), (2, 0), (1, 2)):
            for of_basis in ((), batch):
                basis, tensors = make(over, heads, of_basis)
                theta, of_theta = parameter_of("output", heads, 3, 2)
                assert_all_orders(basis, normal(5, *batch, 3), theta, [*tensors, *of_theta])
    short, tensors = attention_basis(pattern_of("multi-edge", over.num_labels, torch.int32), heads)
    assert_all_orders(short, normal(5, 3), parameter_of("output", heads, 3, 2)[0], tensors)


@pytest.mark.parametrize("channels", [(0, 2), (3, 0)], ids=str)
def test_nothing_to_do_is_done(channels):
    for make in MAKES:
        basis, tensors = make(pattern_of("multi-edge", 1), 2)
        for form in ("full", "concat", "output", "sum+b"):
            theta, of_theta = parameter_of(form, 2, *channels)
            assert_all_orders(basis, normal(5, channels[0]), theta, [*tensors, *of_theta])


def test_nobody_there_at_all_gives_zeros():
    basis, tensors = attention_basis(BANDS["all"])
    basis = replace(basis, present=torch.zeros(6, dtype=torch.bool))
    theta, of_theta = parameter_of("concat+b", 2, 3, 2)
    x = normal(6, 3)
    assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
    assert not contract(basis, x, theta).any()


def test_what_was_chosen_for_one_parameter_is_not_taken_for_another():
    pattern, x = pattern_of("multi-edge", 1), normal(5, 2)
    basis, _ = heads_of(pattern, 2)
    for form in ("full", "sum", "sum+b", "output", "output+b"):  # all of one shape, or nearly
        theta, of_theta = parameter_of(form, 2, 2, 3)
        assert_all_orders(basis, x, theta, of_theta)
    several, _ = heads_of(pattern, 2, (2,))
    assert_all_orders(several, normal(5, 2, 2), normal(2, 1, 2, 3), [])


# What an order leaves to others -------------------------------------------------------------------

PATTERN, ALL = pattern_of("multi-edge", 1), BANDS["all"]
SIGMOID, DROPPED = Shares(is_softmax=False), Shares(dropped=0.1)
BIASED = {"biased": True}
LEFT = [
    # over, options, the orders that may, and what the others say
    (PATTERN, {"normalise": SIGMOID}, HEAD_ORDERS, "softmax"),
    (PATTERN, {"normalise": DROPPED}, HEAD_ORDERS, "drop"),
    (ALL, {"normalise": SIGMOID}, HEAD_ORDERS, "normalises by softmax only"),
    *((RULES[name], BIASED, SPARSE_ORDERS, "scores of all pairs alone")
      for name in ("window", "graphs", "before")),
    (BLOCKS["graphs"], {"present": True}, SPARSE_ORDERS, "some are not present"),
    (ALL.edges().pattern, {}, SPARSE_ORDERS, "a band or blocks, not a EdgeBasis"),
]  # fmt: skip


@pytest.mark.parametrize(("over", "options", "orders", "said"), LEFT, ids=str)
def test_what_an_order_leaves_to_others_is_said(over, options, orders, said):
    basis, tensors = attention_basis(over, **options)
    theta, of_theta = parameter_of("concat", 2, 3, 2)
    x = normal(over.size[0], 3)
    tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta])
    assert set(tried) == set(orders)
    refused = DENSE_ORDERS[0] if orders == SPARSE_ORDERS or over is ALL else ATTEND_ORDERS[0]
    with pytest.raises(ValueError, match=said):
        contract(basis, x, theta, refused)


def test_another_batch_than_that_of_the_content_is_refused():
    basis, _ = attention_basis(PATTERN, 2, (2,))
    theta, _ = parameter_of("concat", 2, 3, 2)
    assert not legal(basis, normal(5, 3), theta)
    assert not legal(basis, normal(5, 3, 3), theta)


@pytest.mark.parametrize("order", HEAD_ORDERS)
def test_heads_of_features_without_gradient_need_no_product_backwards(order):
    basis, theta = heads_of(PATTERN, 2)[0].detach(), normal(2, 1, 3, 4)
    for x in (torch.randn(5, 3, dtype=torch.float64), normal(5, 3)):
        out = contract(basis, x, theta, order)
        with record() as calls:
            out.sum().backward()
        is_free = order == "heads_propagate_first" and not x.requires_grad
        assert (not any(call.primitive == "spmm" for call in calls)) is is_free
        assert (ORDERS[order].cost(Problem(basis, x, theta)).backward.gathered == 0.0) is is_free


@pytest.mark.parametrize("name", ["all", "before", "window", "graphs"])
def test_no_edge_is_made_for_dense_orders(name):
    over = RULES[name]
    over = SameBlock(over.source_block, over.target_block) if name in BLOCKS else over
    basis, _ = attention_basis(over)
    for order in DENSE_ORDERS:
        contract(basis, normal(over.size[0], 3), parameter_of("full", 2, 3, 2)[0], order)
    assert not basis.over.has_edges


@pytest.mark.parametrize("name", ["all", "before", "window", "graphs", "all of two sets"])
def test_dropout_keeps_the_mean_and_zeroes_shares(name):
    sources, targets = RULES[name].size
    basis, _ = attention_basis(RULES[name], normalise=Shares(dropped=0.5))
    # Values are the unit matrix, so that the result is the shares.
    theta = torch.eye(sources, dtype=torch.float64).expand(2, 1, -1, -1)
    plain = contract(replace(basis, normalise=Shares()), None, theta, DENSE_ORDERS[0])
    drawn = torch.stack([contract(basis, None, theta, DENSE_ORDERS[0]) for _ in range(600)])
    assert float((drawn.mean(0) - plain).detach().abs().max()) < 0.15
    heads = contract(basis.heads().select([0]), None, theta[:1])
    assert heads.shape == (targets, sources)
    one = contract(basis, None, theta.clone() * torch.tensor([1.0, 0.0]).view(2, 1, 1, 1).double())
    share = float((one[plain > 0] == 0).double().mean())
    assert 0.1 < share < 0.9


# What is chosen -----------------------------------------------------------------------------------


def chosen(over, heads, width, in_channels, **options):
    query, key = (torch.randn(n, heads, width, requires_grad=True) for n in over.size[::-1])
    basis = AttentionBasis(over, query, key, Shares(**options))
    theta = torch.randn(heads, 1, in_channels, width, requires_grad=True)
    x = torch.randn(over.size[0], in_channels, requires_grad=True)
    return contraction_path(basis, x, theta)


def test_attention_of_all_is_torchs_and_of_long_windows_in_blocks_without_edges():
    for nodes in (30, 1024):
        assert chosen(Band(nodes, nodes, on=CPU), 8, 64, 512).chosen == [DENSE_ORDERS[0]]
    over = Band(16_384, 16_384, 128, 128, on=CPU)
    assert chosen(over, 4, 64, 256).chosen[0] in DENSE_ORDERS
    assert not over.has_edges
    few = Band(20_000, 20_000, 0, 0, on=CPU)
    assert chosen(few, 4, 16, 64).chosen[0] not in DENSE_ORDERS


def test_what_torch_spells_out_counts_as_held():
    over, memory = Band(512, 512, on=CPU), []
    for options in ({}, {"dropped": 0.1}):
        candidates = chosen(over, 4, 16, 64, **options).steps[0].candidates
        memory.append(next(c.cost.memory for c in candidates if c.order.name == DENSE_ORDERS[0]))
    assert memory[0] < 512 * 512 * 4 <= memory[1]


def test_costs_are_asked_for_without_edges():
    over, ends = Band(2**20, 2**20, on=CPU), torch.randn(1, 2, 4).expand(2**20, -1, -1)
    basis = AttentionBasis(over, ends, ends, Shares())
    problem = Problem(basis, torch.randn(1, 4).expand(2**20, -1), torch.randn(2, 1, 4, 4))
    for name in (*DENSE_ORDERS, *SPARSE_ORDERS):
        assert ORDERS[name].cost(problem).work.seconds(constants("cpu")) > 0
    assert not over.has_edges
