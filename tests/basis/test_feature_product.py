"""Products of features: their explicit form, their factors, and what they refuse."""

from itertools import product

import pytest
import torch
from feature_products import CHANNELS, HEADS, TIMES, dense, feature_product, positive

from pyg_outerconv.basis import EdgeBasis, Pattern
from pyg_outerconv.basis.feature_product import FeatureProduct
from pyg_outerconv.basis.multi_head_edges import item
from pyg_outerconv.basis.products import Composed
from pyg_outerconv.contract import contract
from pyg_outerconv.testing import assert_near

ENDS = [(7, 7), (4, 9), (9, 4), (1, 1), (0, 3), (3, 0)]


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("causal", TIMES)
def test_the_explicit_form_is_the_formula(ends, causal):
    for normalised, blocks in product((False, True), repeat=2):
        basis = feature_product(ends, blocks=blocks, normalised=normalised, causal=causal)
        assert_near(basis.to_dense(), dense(basis))
        assert_near(basis.transpose().to_dense(), dense(basis).mT)
        assert not basis.to_dense()[~basis.support()].any()


def complete(value):
    """The (M, N) matrix as edges between all nodes, one label."""
    index = torch.cartesian_prod(*(torch.arange(end) for end in value.shape)).t()
    label = torch.zeros(value.numel(), dtype=torch.long)
    pattern = Pattern.build(index, label, size=tuple(value.shape), num_labels=1)
    return EdgeBasis(pattern, pattern.sort_values(value.flatten()))


def test_a_head_is_the_composition_of_two_bases_through_d_latent_nodes():
    """A_h = φ(K_h) φ(Q_h)ᵀ: sources to D nodes, and these to targets; both contract alike."""
    basis = feature_product((6, 8), normalised=False)
    theta = torch.randn(HEADS, 1, 3, 4, dtype=torch.float64)
    x = torch.randn(6, 3, dtype=torch.float64)
    total = 0.0
    for head in range(HEADS):
        first, second = complete(basis.key[:, head]), complete(basis.query[:, head].t())
        through = first.compose(second)
        assert isinstance(through, Composed)
        assert (first.size[1], second.size[0]) == (CHANNELS, CHANNELS)
        assert_near(through.to_dense()[0], basis.to_dense()[head])
        total = total + contract(through, x, theta[head : head + 1])
    assert_near(contract(basis, x, theta), total)


def test_targets_whose_weights_add_up_to_zero_get_zeros():
    key, query = positive(5, 1, 2), positive(5, 1, 2)
    with torch.no_grad():
        query[1] = 0.0
        key[:2] = 0.0
    for causal in TIMES:
        matrix = FeatureProduct(key, query, causal=causal).to_dense()[0]
        assert torch.isfinite(matrix).all()
        assert not matrix[:, 1].any()
        assert matrix[:, 4].sum().item() == pytest.approx(1.0)
        assert bool(matrix[:, 2].any()) == (causal != "strict")


def test_an_item_of_a_batch_is_its_own_basis():
    basis = feature_product((4, 5), batch=(2, 3))
    assert_near(item(basis, 1, 2).to_dense(), dense(basis)[1, 2])
    with pytest.raises(ValueError, match="batch"):
        basis.edges()
    with pytest.raises(ValueError, match="axis"):
        item(basis, 1)


def test_reductions_that_look_at_edges_are_refused_until_they_are_made():
    basis = feature_product((4, 4))
    theta, x = torch.randn(HEADS, 1, 3, 4).double(), torch.randn(4, 3).double()
    with pytest.raises(ValueError, match="edges"):
        basis.mean()
    with pytest.raises(ValueError, match="edges"):
        contract(basis, x, theta, aggr="max")
    with pytest.raises(ValueError, match="edges"):
        contract(basis, x, theta, label_aggr="max")
    assert contract(basis.edges(), x, theta, aggr="max").shape == (4, 4)
