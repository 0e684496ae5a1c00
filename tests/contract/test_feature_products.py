"""Orders of products of features equal the dense formula, for every Θ, X, batch and derivative."""

from itertools import product

import pytest
import torch
from feature_products import HEADS, TIMES, dense, feature_product, normal
from oracle import assert_same_derivatives
from probes import Kept, Largest

from pyg_outerconv.basis.feature_product import FeatureProduct
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.graph import SparseFeatures
from pyg_outerconv.testing import assert_near
from pyg_outerconv.testing.reference import derivatives
from pyg_outerconv.theta import Theta, as_theta, full

P, Q, V = 6, 4, 3
THETAS = {
    "full": lambda: normal(HEADS, 1, P, Q),
    "grouped": lambda: normal(HEADS, 2, P // 2, Q // 2),
    "mixture": lambda: Theta(normal(3, 1, P, Q), normal(HEADS, 3)),
    "identity": lambda: Theta.identity(HEADS, P, torch.empty(0, dtype=torch.float64)),
    "side by side": lambda: Theta(normal(HEADS, 1, P, V), bias=normal(HEADS, V), heads="concat"),
    "added up": lambda: Theta(normal(HEADS, 1, P, Q), bias=normal(HEADS, Q)),
    "projected": lambda: Theta(normal(HEADS, 1, P, V), outer=normal(HEADS, V, Q)),
    "projected, biased": lambda: Theta(
        normal(HEADS, 1, P, V), outer=normal(HEADS, V, Q), bias=normal(HEADS, V)
    ),
}


def orders_of(causal):
    return ["scan"] if causal else ["latent", "latent_transform_first"]


def truth(basis, x, theta):
    """Σ_h A_hᵀ (X Θ_h + b_h O_h) by dense products."""
    parameter = full(theta)
    blocks = x.unflatten(-1, parameter.shape[1:3])
    transformed = torch.einsum("m...gp,hgpq->m...hgq", blocks, parameter).flatten(-2)
    if isinstance(theta, Theta) and theta.bias is not None:
        transformed = transformed + theta.full_bias().flatten(1)
    return torch.einsum("...hmn,m...hq->n...q", dense(basis), transformed)


def parts_of(theta):
    theta = as_theta(theta)
    tensors = [theta.inner, theta.coefficient, theta.outer, theta.bias]
    return [part for part in tensors if part is not None and part.requires_grad]


def assert_same(basis, x, make, order, depth=1):
    theta = make()
    inputs = [basis.key, basis.query, x, *parts_of(theta)]
    actual, wanted = contract(basis, x, theta, order), truth(basis, x, theta)
    assert_same_derivatives(actual, wanted, inputs, depth)


@pytest.mark.parametrize("form", THETAS)
@pytest.mark.parametrize("causal", TIMES)
def test_every_form_of_theta_is_the_dense_formula(form, causal):
    for order, normalised, blocks in product(orders_of(causal), (False, True), (False, True)):
        basis = feature_product((40, 37), blocks=blocks, normalised=normalised, causal=causal)
        assert_same(basis, normal(40, P), THETAS[form], order, depth=2)


@pytest.mark.parametrize("batch", [(3,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("causal", TIMES)
def test_a_batch_has_factors_of_its_own_or_shares_them(batch, causal):
    for order, own, form in product(orders_of(causal), (batch, ()), ("full", "side by side")):
        basis = feature_product((11, 8), own, blocks=True, causal=causal)
        assert_same(basis, normal(11, *batch, P), THETAS[form], order)


@pytest.mark.parametrize("ends", [(300, 300), (1, 1), (0, 0), (0, 3), (3, 0)], ids=str)
@pytest.mark.parametrize("causal", TIMES)
def test_sizes_from_nothing_to_many_chunks(ends, causal):
    for order, blocks in product(orders_of(causal), (False, True)):
        basis = feature_product(ends, blocks=blocks, causal=causal)
        assert_same(basis, normal(ends[0], P), THETAS["full"], order)


@pytest.mark.parametrize("causal", TIMES)
def test_sparse_features_indices_and_none_are_transformed_first(causal):
    basis = feature_product((6, 8), causal=causal)
    theta = normal(HEADS, 1, 6, Q)
    eye = torch.eye(6, dtype=torch.float64)
    chosen = torch.tensor([3, 0, 0, 5, 1, 2])
    kinds = [(None, eye), (chosen, eye[chosen]), (SparseFeatures.of(eye.to_sparse()), eye)]
    for x, same in kinds:
        assert_near(contract(basis, x, theta), truth(basis, same, theta))
        assert ORDERS["latent"].why_not(Problem(basis, x, theta))


@pytest.mark.parametrize("causal", TIMES)
def test_no_weight_is_no_nan_in_any_derivative(causal):
    """Keys and queries of zeros, where sums that divide are zero."""
    key, query = torch.rand(9, 1, 3).double(), torch.rand(9, 1, 3).double()
    key[:4], query[6] = 0.0, 0.0
    basis = FeatureProduct(key.requires_grad_(), query.requires_grad_(), causal=causal)
    for order in orders_of(causal):
        x, theta = normal(9, P), normal(1, 1, P, Q)
        out = contract(basis, x, theta, order)
        assert_near(out, truth(basis, x, theta))
        assert not out[6].any()
        assert bool(out[3].any()) == (causal is None)
        for part in derivatives(out, [key, query, x, theta], 2):
            assert torch.isfinite(part).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", TIMES)
def test_short_types_add_up_in_float32(dtype, causal):
    """4096 equal weights of 100 have a sum that float16 does not have."""
    nodes = 4096
    key = torch.full((nodes, 1, 4), 10.0, dtype=dtype)
    basis = FeatureProduct(key, key, causal=causal)
    x, theta = torch.ones(nodes, 2, dtype=dtype), torch.eye(2, dtype=dtype).view(1, 1, 2, 2)
    for order in orders_of(causal):
        out = contract(basis, x, theta, order)
        assert out.dtype == dtype
        assert_near(out[1:], torch.ones(nodes - 1, 2, dtype=dtype))


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("causal", TIMES)
def test_float32_is_as_near_as_it_promises_at_many_nodes(causal):
    basis = feature_product((3000, 3000), causal=causal, dtype=torch.float32)
    x, theta = torch.randn(3000, P), torch.randn(HEADS, 1, P, Q)
    wanted = truth(basis.double(), x.double(), theta.double()).float()
    for order in orders_of(causal):
        assert_near(contract(basis, x, theta, order), wanted)


@pytest.mark.parametrize("causal", TIMES)
def test_65536_nodes_hold_no_pairs_and_no_state_for_each(causal):
    nodes, heads, width = 65_536, 2, 16
    key, query = (torch.rand(nodes, heads, width, requires_grad=True) for _ in range(2))
    basis = FeatureProduct(key, query, causal=causal)
    x = torch.randn(nodes, width, requires_grad=True)
    theta = Theta(torch.randn(heads, 1, width, width, requires_grad=True), heads="concat")
    with Largest() as largest, Kept() as kept:
        out = contract(basis, x, theta)
        torch.autograd.grad(out.square().sum(), [key, query, x, theta.inner])
    assert torch.isfinite(out).all()
    line = nodes * heads * 4
    assert largest.nbytes <= line * 32  # a chunk of 32, or D + V + 1 channels
    assert kept.beside(key, query, x, theta.inner)[1] < 10 * line * 32


@pytest.mark.parametrize("causal", TIMES)
def test_an_order_holds_about_what_its_cost_says(causal):
    basis = feature_product((5000, 5000), causal=causal)
    x, theta = normal(5000, P), normal(HEADS, 1, P, Q)
    for order in orders_of(causal):
        claimed = ORDERS[order].cost(Problem(basis, x, theta)).memory
        with Kept() as kept:
            out = contract(basis, x, theta, order)
        _, saved = kept.beside(out, x, theta, basis.key, basis.query)
        assert claimed / 3 <= saved <= 3 * claimed


def test_theta_goes_where_it_is_least_work():
    """Few latent nodes and many sources: Θ is multiplied with what the D nodes received."""
    basis = feature_product((2000, 2000))
    for width, wanted in ((128, "latent"), (1, "latent_transform_first")):
        theta = Theta(normal(HEADS, 1, 64, width), heads="concat")
        x = normal(2000, 64)
        assert contraction_path(basis, x, theta).chosen == [wanted]
    in_time = feature_product((20, 20), causal="strict")
    assert contraction_path(in_time, normal(20, P), normal(HEADS, 1, P, Q)).chosen == ["scan"]


def test_transposes_stacks_and_scales_go_into_theta():
    basis = feature_product((9, 9), blocks=True)
    causal = feature_product((9, 9), causal="inclusive")
    whole = basis.T.stack(causal.scale(0.5), causal.T)
    x, theta = normal(9, P), normal(3 * HEADS, 1, P, Q)
    wanted = torch.einsum("kmn,mp,kpq->nq", whole.to_dense(), x, theta[:, 0])
    assert_near(contract(whole, x, theta), wanted)


def test_other_bases_and_other_batches_are_refused_by_name():
    basis = feature_product((4, 4), (2,))
    x, theta = normal(4, 3, P), normal(HEADS, 1, P, Q)
    with pytest.raises(ValueError, match=r"batch shape \(2,\), and x has \(3,\)"):
        contract(basis, x, theta)
    causal = feature_product((4, 4), causal="strict")
    with pytest.raises(ValueError, match="scan"):
        contract(causal, normal(4, P), theta, "latent")
    with pytest.raises(ValueError, match="needs a causal basis"):
        contract(feature_product((4, 4)), normal(4, P), theta, "scan")
    edges = feature_product((4, 4)).edges()
    assert (
        "solves FeatureProduct" in ORDERS["latent"].why_not(Problem(edges, normal(4, P), theta))[0]
    )
