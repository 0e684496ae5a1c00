"""Attention over bands and blocks without sparse matrices equals that over their edges."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from attention_bases import (
    ATTEND_ORDERS,
    FORMS,
    HEAD_ORDERS,
    Shares,
    assert_all_orders,
    legal,
    parameter_of,
)
from contractions import features, normal

from pyg_outerconv.basis.attention_basis import AttentionBasis
from pyg_outerconv.basis.band import Band
from pyg_outerconv.basis.same_block import SameBlock
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.testing import assert_near

DENSE_ORDERS = ("dense_attention_transform_first", "dense_attention_propagate_first")
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
SUPPORTS = BANDS | BLOCKS


def attention_over(over, heads=2, batch=(), bias=None, present=None, dropped=0.0, factor=0.6):
    sources, targets = over.size
    over = replace(over) if isinstance(over, Band) else over
    query, key = normal(targets, *batch, heads, 3), normal(sources, *batch, heads, 3)
    normalise = Shares(dropped=dropped)
    return AttentionBasis(over, query, key, normalise, factor, bias, present), [query, key]


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("name", SUPPORTS)
def test_every_support_by_every_order(name, batch):
    over = SUPPORTS[name]
    for form in ("full", "concat+b", "output"):
        basis, tensors = attention_over(over, batch=batch)
        theta, of_theta = parameter_of(form, 2, 3, 2)
        x = normal(over.size[0], *batch, 3)
        tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
        wanted = {*DENSE_ORDERS, *ATTEND_ORDERS, *HEAD_ORDERS}
        assert set(tried) == {n for n in wanted if "transform" in n or "+b" not in form}


@pytest.mark.parametrize("factor", [0.0, -20.0])
@pytest.mark.parametrize("name", SUPPORTS)
def test_scores_times_nothing_or_less_by_every_order(name, factor):
    over = SUPPORTS[name]
    present = torch.rand(over.size[0]) < 0.6 if isinstance(over, Band) else None
    for there in (None, present):
        basis, tensors = attention_over(over, factor=factor, present=there)
        theta, of_theta = parameter_of("output", 2, 3, 2)
        tensors += of_theta
        assert_all_orders(basis, normal(over.size[0], 3), theta, tensors, orders=DENSE_ORDERS[:1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["dense", "batch", "none", "indices", "sparse"])
def test_every_kind_of_features_and_of_parameter(kind, form):
    if form == "identity" and kind in ("none", "indices"):
        pytest.skip("the identity is no full matrix")
    for name in ("all", "window", "graphs"):
        basis, tensors = attention_over(SUPPORTS[name])
        sources = basis.size[0]
        x = features(kind, sources, sources)
        theta, of_theta = parameter_of(form, 2, sources, 3)
        tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta])
        assert DENSE_ORDERS[0] in tried


@pytest.mark.parametrize("batch", [(), (2,), (0,)], ids=str)
@pytest.mark.parametrize("name", BANDS)
def test_sources_that_are_not_there(name, batch):
    over = BANDS[name]
    for of_batch in {(), batch}:
        present = torch.rand(over.size[0], *of_batch) < 0.6
        basis, tensors = attention_over(over, batch=batch, present=present)
        theta, of_theta = parameter_of("concat+b", 2, 3, 2)
        x = normal(over.size[0], *batch, 3)
        tried = assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
        assert DENSE_ORDERS[0] in tried


def test_nobody_there_at_all_gives_zeros():
    over = BANDS["all"]
    basis, tensors = attention_over(over, present=torch.zeros(6, dtype=torch.bool))
    theta, of_theta = parameter_of("concat+b", 2, 3, 2)
    x = normal(6, 3)
    assert_all_orders(basis, x, theta, [*tensors, *of_theta], depth=2)
    assert not contract(basis, x, theta).any()


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("name", ["all", "all of two sets", "one node", "no sources"])
def test_biases_of_all_pairs(name, batch):
    over = BANDS[name]
    for of_batch, heads, masked in product({(), batch}, (1, 2), (False, True)):
        ones = (1,) * (len(batch) - len(of_batch))
        bias = normal(over.num_edges, *of_batch, *ones, heads)
        present = torch.rand(over.size[0]) < 0.7 if masked else None
        basis, tensors = attention_over(over, batch=batch, bias=bias, present=present)
        theta, of_theta = parameter_of("concat", 2, 3, 2)
        x = normal(over.size[0], *batch, 3)
        tried = assert_all_orders(basis, x, theta, [*tensors, bias, *of_theta], depth=2)
        assert DENSE_ORDERS[0] in tried


def test_a_bias_of_a_rule_is_left_to_sparse_orders_by_name():
    for name in ("window", "graphs", "before"):
        over = SUPPORTS[name]
        basis, _ = attention_over(over, bias=normal(over.num_edges, 2))
        theta, x = parameter_of("concat", 2, 3, 2)[0], normal(over.size[0], 3)
        assert set(legal(basis, x, theta)) == {*ATTEND_ORDERS, *HEAD_ORDERS}
        with pytest.raises(ValueError, match="scores of all pairs alone"):
            contract(basis, x, theta, DENSE_ORDERS[0])


def test_missing_sources_of_blocks_are_left_to_sparse_orders_by_name():
    basis, _ = attention_over(BLOCKS["graphs"], present=torch.arange(6) > 1)
    theta, of_theta = parameter_of("concat", 2, 3, 2)
    x = normal(6, 3)
    assert_all_orders(basis, x, theta, of_theta)
    with pytest.raises(ValueError, match="some are not present"):
        contract(basis, x, theta, DENSE_ORDERS[0])


def test_explicit_edges_and_other_normalisers_are_refused_by_name():
    over = BANDS["all"]
    basis, _ = attention_over(over)
    theta, x = parameter_of("concat", 2, 3, 2)[0], normal(6, 3)
    with pytest.raises(ValueError, match="a band or blocks, not a EdgeBasis"):
        contract(replace(basis, over=over.edges()), x, theta, DENSE_ORDERS[0])
    with pytest.raises(ValueError, match="normalises by softmax only"):
        other = replace(basis, normalise=Shares(is_softmax=False))
        contract(other, x, theta, DENSE_ORDERS[0])


@pytest.mark.parametrize("name", ["all", "before", "window", "graphs"])
def test_no_edge_is_made_for_dense_orders(name):
    over = SUPPORTS[name]
    over = (
        replace(over) if isinstance(over, Band) else SameBlock(over.source_block, over.target_block)
    )
    basis, _ = attention_over(over)
    for order in DENSE_ORDERS:
        contract(basis, normal(over.size[0], 3), parameter_of("full", 2, 3, 2)[0], order)
    assert not basis.over.has_edges


@pytest.mark.parametrize("name", ["all", "before", "window", "graphs", "all of two sets"])
def test_dropout_keeps_the_mean_and_zeroes_shares(name):
    over = SUPPORTS[name]
    sources, targets = over.size
    basis, _ = attention_over(over, dropped=0.5)
    # Values are the unit matrix, so that the result is the shares.
    theta = torch.eye(sources, dtype=torch.float64).expand(2, 1, -1, -1)
    plain = contract(replace(basis, normalise=Shares()), None, theta, DENSE_ORDERS[0])
    drawn = torch.stack([contract(basis, None, theta, DENSE_ORDERS[0]) for _ in range(600)])
    assert float((drawn.mean(0) - plain).detach().abs().max()) < 0.15
    heads = contract(basis.heads().select([0]), None, theta[:1])
    assert heads.shape == (targets, sources)
    one = contract(basis, None, theta.clone() * torch.tensor([1.0, 0.0]).view(2, 1, 1, 1).double())
    there = contract(replace(basis, normalise=Shares()), None, theta, DENSE_ORDERS[0]) > 0
    share = float((one[there] == 0).double().mean())
    assert 0.1 < share < 0.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["all", "before", "window", "graphs"])
def test_scores_of_ten_thousand_stay_finite(name, dtype):
    over = SUPPORTS[name]
    basis, _ = attention_over(over)
    basis = replace(basis, query=basis.query * 100, key=basis.key * 100).to(dtype)
    theta = parameter_of("concat", 2, 3, 2)[0]
    theta = theta.but(inner=theta.inner.to(dtype))
    x = normal(over.size[0], 3, dtype=dtype)
    for order in legal(basis, x, theta):
        of = replace(basis)
        out = contract(of, x, theta, order)
        assert out.isfinite().all()
        for gradient in torch.autograd.grad(
            out.float().square().sum(), [x, of.query], allow_unused=True
        ):
            assert gradient is None or gradient.isfinite().all()


@pytest.mark.parametrize("name", ["all", "before", "window", "graphs"])
def test_functions_of_functions(name):
    over = SUPPORTS[name]
    theta = parameter_of("concat", 2, 3, 2)[0].value.detach().unsqueeze(1)
    query, key = torch.randn(over.size[1], 2, 3), torch.randn(over.size[0], 2, 3)
    query, key = query.double(), key.double()
    x = torch.randn(over.size[0], 3).double()

    def run(order):
        def loss(query, key, x):
            basis = AttentionBasis(over, query, key, Shares(), 0.6)
            return contract(basis, x, theta, order).sin().sum()

        return loss

    names = (DENSE_ORDERS[0], ATTEND_ORDERS[0])
    for which in range(3):
        found = [torch.func.grad(run(order), argnums=which)(query, key, x) for order in names]
        assert_near(found[0], found[1], 1e-9)
        twice = [
            torch.func.jacrev(torch.func.jacrev(run(order), which), which)(query, key, x)
            for order in names
        ]
        assert_near(twice[0], twice[1], 1e-9)
    many = torch.stack([query, 2 * query])
    found = [
        torch.vmap(torch.func.grad(run(order)), (0, None, None))(many, key, x) for order in names
    ]
    assert_near(found[0], found[1], 1e-9)
    along = tuple(map(torch.randn_like, (query, key, x)))
    found = [torch.func.jvp(run(order), (query, key, x), along)[1] for order in names]
    assert_near(found[0], found[1], 1e-9)


# What is chosen -----------------------------------------------------------------------------------


def chosen(over, heads, width, in_channels, **options):
    shape = (over.size[0], heads, width)
    query, key = (torch.randn(n, *shape[1:], requires_grad=True) for n in over.size[::-1])
    basis = AttentionBasis(over, query, key, Shares(**options))
    theta = torch.randn(heads, 1, in_channels, width, requires_grad=True)
    x = torch.randn(over.size[0], in_channels, requires_grad=True)
    return contraction_path(basis, x, theta)


def test_attention_of_all_is_torchs():
    for nodes in (30, 1024):
        path = chosen(Band(nodes, nodes, on=CPU), 8, 64, 512)
        assert path.chosen == [DENSE_ORDERS[0]]


def test_a_window_of_a_long_sequence_is_cut_into_blocks():
    over = Band(16_384, 16_384, 128, 128, on=CPU)
    assert chosen(over, 4, 64, 256).chosen[0] in DENSE_ORDERS
    assert not over.has_edges


def test_few_sources_of_wide_bands_are_left_to_sparse_products():
    over = Band(20_000, 20_000, 0, 0, on=CPU)
    assert chosen(over, 4, 16, 64).chosen[0] not in DENSE_ORDERS


def test_what_torch_spells_out_counts_as_held():
    over = Band(512, 512, on=CPU)
    plain = chosen(over, 4, 16, 64).steps[0].candidates
    dropped = chosen(over, 4, 16, 64, dropped=0.1).steps[0].candidates
    held = [
        next(c.cost.memory for c in found if c.order.name == DENSE_ORDERS[0])
        for found in (plain, dropped)
    ]
    assert held[0] < 512 * 512 * 4 <= held[1]


def test_costs_are_asked_for_without_edges():
    over = Band(2**20, 2**20, on=CPU)
    basis = AttentionBasis(
        over,
        torch.randn(1, 2, 4).expand(2**20, -1, -1),
        torch.randn(1, 2, 4).expand(2**20, -1, -1),
        Shares(),
    )
    problem = Problem(basis, torch.randn(1, 4).expand(2**20, -1), torch.randn(2, 1, 4, 4))
    for name in (*DENSE_ORDERS, *ATTEND_ORDERS, *HEAD_ORDERS):
        assert ORDERS[name].cost(problem).work.seconds(_constants()) > 0
    assert not over.has_edges


def _constants():
    from pyg_outerconv.contract.cost import constants

    return constants("cpu")
