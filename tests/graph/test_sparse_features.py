"""Sparse features: prepared once, never stale, and checked."""

import copy
import pickle
import weakref
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.utils import is_sparse

from pyg_outerconv.contract.cost import predicted_share, sparse_pays
from pyg_outerconv.graph import SparseFeatures, sparse_matrix
from pyg_outerconv.graph.sparse_matrix import coalesced, index_dtype, replace_values
from pyg_outerconv.kernels import CSR
from pyg_outerconv.nn import dropout_features
from pyg_outerconv.testing import assert_near

DENSE = torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.0] * 4, [3.0, 0.0, 0.0, 4.0]], dtype=torch.float64)


def layouts():
    index = torch.tensor([[2, 0, 2, 0, 2], [3, 1, 0, 3, 3]])
    twice = torch.sparse_coo_tensor(index, torch.tensor([1.0, 2.0, 3.0, 1.0, 3.0]).double(), (3, 4))
    return {
        "csr": DENSE.to_sparse_csr(),
        "coo": DENSE.to_sparse(),
        "uncoalesced coo": twice,
        "csc": DENSE.to_sparse_csc(),
    }


each_layout = pytest.mark.parametrize("layout", layouts())


def counted():
    """Counts the preparations in a block."""
    return patch.object(sparse_matrix, "prepare", wraps=sparse_matrix.prepare)


@each_layout
def test_the_pattern_is_sorted_both_ways(layout):
    x = SparseFeatures.of(layouts()[layout])
    assert (tuple(x.shape), x.dim(), x.num_entries) == ((3, 4), 2, 4)
    assert x.csr.ptr.tolist() == [0, 2, 2, 4]
    assert x.csr.index.tolist() == [1, 3, 0, 3]
    assert x.csr.T.ptr.tolist() == [0, 1, 2, 2, 4]
    assert x.csr.T.index.tolist() == [2, 0, 0, 2]
    assert x.csr.T.order.tolist() == [2, 0, 1, 3]
    assert x.value.tolist() == [2.0, 1.0, 3.0, 4.0]
    assert x.csr.index.dtype == torch.int32


@each_layout
def test_a_tensor_is_prepared_once(layout):
    x = layouts()[layout]
    with counted() as prepared:
        first, again = SparseFeatures.of(x), SparseFeatures.of(x)
    assert prepared.call_count == 1
    assert first.csr is again.csr


@each_layout
def test_another_tensor_is_prepared_anew(layout):
    with counted() as prepared:
        SparseFeatures.of(layouts()[layout])
        SparseFeatures.of(layouts()[layout])
    assert prepared.call_count == 2


@pytest.mark.parametrize("layout", ["csr", "coo", "csc"])
def test_a_tensor_changed_in_place_is_not_stale(layout):
    x = layouts()[layout]
    before = SparseFeatures.of(x).value.clone()
    x.values().mul_(2)
    assert_near(SparseFeatures.of(x).value, 2 * before)
    other = torch.eye(3, 4, dtype=torch.float64)
    if layout == "coo":
        x.copy_(other.to_sparse())
        with counted() as prepared:
            assert_near(SparseFeatures.of(x) @ torch.eye(4).double(), other)
        assert prepared.call_count == 1


def test_an_uncoalesced_tensor_changed_in_place_is_added_up_anew():
    x = layouts()["uncoalesced coo"]
    before = SparseFeatures.of(x).value
    x.mul_(2)
    assert_near(SparseFeatures.of(x).value, 2 * before)


@each_layout
def test_preparation_dies_with_its_tensor(layout):
    x = layouts()[layout]
    kept = SparseFeatures.of(x)
    alive = weakref.ref(x)
    del x
    assert alive() is None
    assert kept.num_entries == 4


@each_layout
def test_dropped_features_are_not_sorted_again(layout):
    x = layouts()[layout]
    with counted() as prepared:
        for _ in range(3):
            SparseFeatures.of(dropout_features(x, 0.5))
    # Of an uncoalesced matrix, what it adds up to is prepared.
    assert prepared.call_count == 1


def test_prepared_in_inference_mode_it_serves_training():
    x = DENSE.to_sparse_csr()
    with torch.inference_mode():
        SparseFeatures.of(x)
    weight = torch.ones(4, 2, dtype=torch.float64, requires_grad=True)
    (SparseFeatures.of(x) @ weight).sum().backward()
    assert_near(weight.grad, DENSE.sum(0)[:, None].expand(4, 2))


def test_indices_are_wide_where_groups_make_many_rows():
    # 3 rows in 2 ** 30 groups are more than int32 counts: the arithmetic alone is tested.
    assert index_dtype(3 * 2**30, 4, 5) == torch.int64
    assert index_dtype(3 * 2**29, 4, 5) == torch.int32


def test_features_move_and_change_type():
    x = SparseFeatures.of(DENSE.to_sparse_csr())
    assert x.to(torch.float32).dtype == torch.float32
    assert x.to("meta").csr.index.device.type == "meta"
    assert "3 x 4, entries=4" in repr(x)


@each_layout
def test_values_are_replaced_in_their_layout(layout):
    x = coalesced(layouts()[layout])
    out = replace_values(x, 2 * x.values())
    assert out.layout == x.layout
    assert_near(out.to_dense(), 2 * DENSE)


def test_density_pays_where_it_is_low_and_x_is_large():
    assert predicted_share(0, (10, 10)) == 0.0
    assert predicted_share(10, (10, 10)) < predicted_share(20, (10, 10))
    large = 1000 * 1000
    assert sparse_pays(large // 100, (1000, 1000))
    assert not sparse_pays(large // 2, (1000, 1000))
    assert not sparse_pays(1, (10, 10))
    assert not sparse_pays(0, (0, 5))


@pytest.mark.parametrize("of", [SparseFeatures, lambda p, v: SparseFeatures.of(torch_csr(p, v))])
def test_repeated_entries_are_added_up_at_the_door(of):
    pattern = CSR(torch.tensor([0, 2, 3]), torch.tensor([1, 1, 0]), 2)
    x = of(pattern, torch.tensor([1.0, -3.0, 5.0]))
    dense = torch.tensor([[0.0, -2.0], [5.0, 0.0]])
    assert x.num_entries == 2
    assert_near(x.to_dense(), dense)
    for function in (torch.relu, torch.abs, torch.square):
        assert_near(function(x).to_dense(), function(dense))


def torch_csr(pattern, value):
    return torch.sparse_csr_tensor(pattern.ptr, pattern.index, value, (2, 2))


# A tensor, and its copies -------------------------------------------------------------------------


@pytest.mark.filterwarnings("error::pyg_outerconv.graph.BecameDense")
def test_it_is_a_tensor_of_the_sizes_of_the_dense_one():
    dense = DENSE.clone()
    x = SparseFeatures.of(dense)
    assert isinstance(x, Tensor)
    assert not is_sparse(x)
    assert (x.layout, x.dim(), x.ndim, len(x)) == (torch.strided, 2, 2, 3)
    assert (x.shape, x.size(), x.size(-2), x.numel()) == (dense.shape,) * 2 + (3, 12)
    assert (x.dtype, x.device, x.is_cuda) == (torch.float64, dense.device, False)
    assert x.is_floating_point()
    assert torch.is_floating_point(x)
    assert x.is_contiguous()
    assert x.stride() == dense.stride()
    assert torch.equal(x.new_zeros(2), torch.zeros(2).double())
    assert type(torch.zeros_like(x)) is Tensor
    assert torch.rand_like(x).shape == dense.shape
    assert x.type() == dense.type()
    assert "3 x 4" in repr(x)
    assert "3 x 4" in f"{x}"
    assert x.density == x.num_entries / 12


def test_copies_share_what_they_should():
    dense, x = DENSE, SparseFeatures.of(DENSE)
    for copied in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert isinstance(copied, SparseFeatures)
        assert torch.equal(copied.to_dense(), dense)
    assert copy.copy(x).value is x.value
    assert copy.deepcopy(x).csr is x.csr
    both = copy.deepcopy([x, x])
    assert both[0] is both[1]
    module = nn.Module()
    module.register_buffer("x", x)
    assert torch.equal(copy.deepcopy(module).float().x.to_dense(), dense.float())
    assert torch.equal(module.state_dict()["x"].to_dense(), dense)


@pytest.mark.parametrize("broken", ["pointers", "columns"])
def test_a_broken_file_is_refused(broken):
    make, (ptr, column, count, value) = SparseFeatures.of(DENSE).__reduce_ex__(2)
    if broken == "pointers":
        ptr = ptr.flip(0)
    else:
        count = 2
    with pytest.raises(ValueError, match="ascend from 0|lies in range"):
        make(ptr, column, count, value)
