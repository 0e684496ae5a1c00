"""Dropout of features, dense and sparse."""

import pytest
import torch
from bags import MAKE, bag

from pyg_outerconv import OuterConv
from pyg_outerconv.nn import SparseFeatures, dropout_features
from pyg_outerconv.testing import assert_near

RING = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
every_layout = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


@every_layout
def test_dropout_keeps_the_layout_and_scales_what_is_left(make):
    dense = bag(40, 30)
    x = make(dense)
    torch.manual_seed(0)
    out = dropout_features(x, 0.25)
    assert type(out) is type(x)
    if not isinstance(x, SparseFeatures):
        assert out.layout == x.layout
    out = out.to_dense()
    kept = out != 0
    assert_near(out[kept], dense[kept] / 0.75)
    share = 1 - float(kept.sum() / (dense != 0).sum())
    assert 0.15 < share < 0.35


@every_layout
def test_dropout_is_nothing_without_training(make):
    x = make(bag(5, 6))
    if isinstance(x, SparseFeatures):
        assert bool((dropout_features(x, 1.0).value == 0).all())
    assert dropout_features(x, 0.5, training=False) is x


@pytest.mark.parametrize("make", [MAKE["csr"], MAKE["uncoalesced coo"], MAKE["csc"]])
def test_dropout_goes_with_the_layer_like_that_of_the_same_dense_matrix(make):
    dropped = dropout_features(make(bag(5, 6)), 0.5)
    conv = OuterConv(6, 4, "gcn").double()
    assert_near(conv(dropped, RING), conv(dropped.to_dense(), RING))


def test_gradients_pass_through_dropout():
    value = bag(5, 6).to_sparse_csr().values().clone().requires_grad_()
    csr = bag(5, 6).to_sparse_csr()
    x = torch.sparse_csr_tensor(csr.crow_indices(), csr.col_indices(), value, csr.shape)
    out = dropout_features(x, 0.5)
    conv = OuterConv(6, 4, "gcn").double()
    (found,) = torch.autograd.grad(conv(out, RING).sum(), value)
    dropped = out.values() == 0
    assert bool(dropped.any())
    assert bool((found[dropped] == 0).all())
    assert bool((found[~dropped] != 0).any())


def test_dropout_of_dense_features_is_that_of_torch():
    x = bag(5, 6)
    torch.manual_seed(3)
    expected = torch.nn.functional.dropout(x, 0.5, True)
    torch.manual_seed(3)
    assert torch.equal(dropout_features(x, 0.5), expected)


def test_torch_refuses_dropout_of_sparse_features_by_itself():
    # Should it learn to, dropout_features can leave it to torch.
    with pytest.raises(NotImplementedError):
        torch.nn.functional.dropout(bag(5, 6).to_sparse_csr(), 0.5, True)
