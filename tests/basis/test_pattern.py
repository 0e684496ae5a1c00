"""Patterns and values: sorted once, both directions right, immutable, movable, picklable."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from versions import TORCH

from pyg_outerconv import EdgeBasis, Pattern
from pyg_outerconv.basis import pattern
from pyg_outerconv.basis.pattern import SHORT
from pyg_outerconv.families import Walk
from pyg_outerconv.testing import assert_near, awkward_structures

EDGES = torch.tensor([[3, 0, 2, 2, 0, 3], [1, 1, 0, 2, 1, 1]])
LABEL = torch.tensor([1, 0, 1, 0, 0, 0])


def example(**options):
    return Pattern.build(EDGES, LABEL, size=(4, 3), num_labels=2, **options)


def test_edges_are_sorted_by_target_then_label_and_nothing_is_merged():
    made = example()
    assert made.index.tolist() == [[2, 0, 0, 3, 3, 2], [0, 1, 1, 1, 1, 2]]
    assert made.label.tolist() == [1, 0, 0, 0, 1, 0]
    assert made.order.tolist() == [2, 1, 4, 5, 0, 3], "parallel edges keep their order"
    assert made.num_edges == 6


def test_both_directions_and_the_permutation_between_them():
    made = example()
    assert made.target_ptr.tolist() == [0, 1, 5, 6]
    assert made.source_ptr.tolist() == [0, 2, 2, 4, 6]
    assert made.by_target_label.ptr.tolist() == [0, 0, 1, 4, 5, 6, 6]
    assert made.by_target.T.ptr.tolist() == [0, 2, 2, 2, 2, 3, 4, 5, 6]
    assert made.by_target.ptr is made.target_ptr
    assert torch.equal(made.by_target_label.T.ptr, made.source_ptr)
    sources = made.source[made.by_source] * 2 + made.label[made.by_source]
    assert bool((sources.diff() >= 0).all())
    for csr in (made.by_target, made.by_target_label, made.ends):
        ptr, row, order = csr.columns
        rows = torch.arange(csr.shape[0]).repeat_interleave(csr.ptr.diff())
        columns = torch.arange(csr.shape[1]).repeat_interleave(ptr.diff())
        assert torch.equal(csr.index[order].long(), columns)
        assert torch.equal(rows[order], row.long())


def test_edges_are_listed_label_by_label():
    ptr, order = example().by_label
    assert ptr.tolist() == [0, 4, 6]
    assert order.tolist() == [1, 2, 3, 5, 0, 4]
    assert ptr.dtype == order.dtype == SHORT


def test_distinct_pairs_are_counted_at_both_ends():
    made = example()
    assert made.num_source_pairs == 5, "source 0 sends twice under label 0"
    assert made.num_target_pairs == 4, "target 1 receives three edges of label 0"
    empty = Pattern.build(torch.zeros(2, 0).long(), size=(3, 3), num_labels=2)
    assert empty.num_source_pairs == empty.num_target_pairs == 0


def test_indices_are_int32_where_products_fit_and_int64_beyond(monkeypatch):
    assert example().source.dtype == example().by_source.dtype == SHORT
    assert torch.int32 == SHORT or TORCH < (2, 11)
    monkeypatch.setattr(pattern, "INT32_LIMIT", 7)
    wide = example()
    assert wide.source.dtype == wide.target_ptr.dtype == torch.int64
    assert torch.equal(wide.index, example().index.long())


def test_with_values_never_sorts(monkeypatch):
    made = example()
    basis = made.with_values(torch.rand(6))

    def refuse(*_, **__):
        raise AssertionError("sorted again")

    monkeypatch.setattr(torch, "sort", refuse)
    monkeypatch.setattr(torch, "argsort", refuse)
    again = basis.with_values(torch.rand(6, requires_grad=True))
    assert again.pattern is made
    transposed = again.transpose().edges()
    assert transposed.size == (3, 4)
    transposed.to_dense().sum().backward()


def test_transposed_pattern_equals_one_built_from_turned_edges():
    transposed = example().transposed
    fresh = Pattern.build(EDGES.flip(0), LABEL, size=(3, 4), num_labels=2)
    for name in ("target", "label", "target_ptr", "source_ptr"):
        assert torch.equal(getattr(transposed, name), getattr(fresh, name)), name
    assert torch.equal(
        transposed.index[:, transposed.by_source], transposed.transposed.index.flip(0)
    ), "turning twice leads back"
    assert torch.equal(transposed.transposed.source, example().source)


def test_values_carry_gradients_to_where_they_came_from():
    value = torch.rand(6, dtype=torch.float64, requires_grad=True)
    made = example()
    dense = made.with_values(made.sort_values(value)).to_dense()
    assert dense.shape == (2, 4, 3)
    (dense * torch.arange(24).view(2, 4, 3)).sum().backward()
    expected = LABEL * 12 + EDGES[0] * 3 + EDGES[1]
    assert_near(value.grad, expected.double())


def test_zero_value_and_no_edge_differ_in_the_support():
    basis = example().with_values(torch.zeros(6))
    assert basis.to_dense().count_nonzero() == 0
    assert int(basis.support().sum()) == 5, "six edges, two of them parallel"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_cuda_and_back():
    basis = Walk(2).basis(awkward_structures()["weighted"]).detach()
    there = basis.cuda()
    assert there.device.type == "cuda"
    assert_near(there.cpu().to_dense(), basis.to_dense())


def test_nothing_can_be_assigned():
    basis = example().with_values(torch.rand(6))
    with pytest.raises(FrozenInstanceError):
        basis.value = None
    with pytest.raises(FrozenInstanceError):
        basis.pattern.size = (1, 1)
    with pytest.raises(FrozenInstanceError):
        basis.scale(2.0).factor = None


def test_a_turned_pattern_knows_where_its_edges_come_from():
    edge_index, origin = torch.tensor([[3, 0, 2, 0], [1, 2, 0, 1]]), torch.tensor([5, -1, 7, 6])
    pattern = Pattern.build(edge_index, size=(4, 3), origin=origin)
    for one, given in ((pattern, edge_index), (pattern.transposed, edge_index.flip(0))):
        assert torch.equal(given[:, one.order.long()], one.index.long())
        assert torch.equal(origin[one.order.long()], one.origin)


def test_every_tensor_of_a_pattern_moves():
    moved = Pattern.build(torch.tensor([[0], [0]]), size=(1, 1), origin=torch.zeros(1)).map(
        lambda tensor: tensor.to("meta")
    )
    assert moved.listed.is_meta
    both = moved.by_source, moved.source_ptr, moved.target_ptr, moved.order, moved.origin
    tensors = (moved.source, moved.target, moved.label, *both)
    assert all(tensor.is_meta for tensor in tensors)


def test_what_was_sorted_moves_sorted():
    pattern = example()
    made = pattern.by_source
    moved = pattern.map(torch.clone)
    assert torch.equal(vars(moved)["by_source"], made)
    assert vars(moved)["by_source"] is not made


def test_nothing_is_sorted_before_it_is_asked_for(monkeypatch):
    monkeypatch.setattr("pyg_outerconv.basis.pattern.sort_edges", None)
    monkeypatch.setattr("pyg_outerconv.kernels.edge_sums.MOST", 2**15)
    pattern = example()
    assert (pattern.num_edges, pattern.device.type, pattern.size) == (6, "cpu", (4, 3))
    basis = EdgeBasis.of_list(pattern, torch.ones(6))
    assert basis.dtype == torch.float32
    assert basis.mean().propagate(torch.ones(4, 1)).shape == (3, 2, 1)


@pytest.mark.parametrize("most", [-1, 2**15])
def test_edges_without_labels_are_of_the_first(most, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.edge_sums.MOST", most)
    basis = Pattern.build(torch.tensor([[0, 1, 1], [1, 0, 1]]), size=(2, 2), num_labels=3)
    basis, x = basis.with_values(torch.rand(3)), torch.rand(2, 4)
    dense = basis.to_dense()
    assert_near(basis.propagate(x), torch.einsum("kmn,mp->nkp", dense, x))
    z = torch.rand(2, 3, 4)
    assert_near(basis.gather(z), torch.einsum("kmn,mkp->np", dense, z))


@pytest.mark.parametrize("sorted_before", [True, False])
@pytest.mark.parametrize("edges", [50, pattern.KEEP_UNSORTED + 1])
def test_what_was_sorted_is_moved_with_its_labels_and_origins(edges, sorted_before):
    index, label = torch.randint(9, (2, edges)), torch.randint(3, (edges,))
    for origin in (None, edges - 5, torch.arange(edges).flip(0)):
        for labels in (1, 3):
            given = None if labels == 1 else label
            built = Pattern.of_list(index, given, size=(9, 9), num_labels=labels, origin=origin)
            if sorted_before:
                assert built.order.numel() == edges
            moved = built.map(torch.clone)
            assert moved is not built
            for name in ("source", "target", "label", "origin", "order", "target_ptr", "by_source"):
                one, other = getattr(moved, name), getattr(built, name)
                assert one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("most", [-1, 2**15])
def test_gradients_reach_values_that_were_looked_at(most, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.edge_sums.MOST", most)
    weight, x = torch.rand(6, requires_grad=True), torch.rand(4, 3)
    basis = EdgeBasis.of_list(example(), weight * 2)
    with torch.no_grad():
        assert not basis.value.requires_grad
    value = basis.value
    assert basis.value is value
    for made in (
        basis,
        basis.times(3.0),
        basis.mean(),
        basis.map(lambda one: 1 * one if one.is_floating_point() else one),
    ):
        out = made.propagate(x).square().sum()
        of_value, of_weight = torch.autograd.grad(out, [value, weight], retain_graph=True)
        assert_near(of_weight[basis.pattern.order.long()], 2 * of_value)


def test_a_list_that_is_written_to_later_does_not_matter():
    given = torch.tensor([[0, 1], [1, 0]])
    pattern = Pattern.build(given, size=(2, 2))
    given.zero_()
    assert pattern.index.tolist() == [[1, 0], [0, 1]]


def test_a_pattern_that_does_not_move_keeps_what_was_made_of_it():
    basis = example().with_values(torch.rand(6))
    made = basis.pattern.source_pairs
    for twin in (basis.double(), basis.detach(), basis.to("cpu"), basis.to(torch.device("cpu"))):
        assert twin.pattern is basis.pattern
        assert twin.pattern.source_pairs is made
    cloned = basis.pattern.map(torch.clone)
    assert cloned is not basis.pattern
    assert "source_pairs" not in vars(cloned)
    assert torch.equal(cloned.index, basis.index)


def test_many_edges_between_few_nodes_need_wide_indices(monkeypatch):
    monkeypatch.setattr("pyg_outerconv.basis.pattern.INT32_LIMIT", 10)
    for count, dtype in ((9, SHORT), (10, torch.int64)):
        pattern = Pattern.build(torch.zeros(2, count).long(), size=(1, 1))
        assert {pattern.source.dtype, pattern.order.dtype, pattern.target_ptr.dtype} == {dtype}


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("edges", [50, pattern.KEEP_UNSORTED + 1])
def test_sorted_values_beside_edges_that_are_not_yet_sorted(edges, labels, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.edge_sums.MOST", 2**22)
    index, label = torch.randint(9, (2, edges)), torch.randint(labels, (edges,))
    value, x, z = torch.rand(edges).double(), *torch.randn(2, 9, 3).double()
    z = z.unsqueeze(1).expand(-1, labels, -1)

    def basis():
        built = Pattern.build(index, label, size=(9, 9), num_labels=labels)
        return EdgeBasis(built, value)

    dense = basis().to_dense()
    assert_near(basis().propagate(x), torch.einsum("kmn,mp->nkp", dense, x))
    assert_near(basis().gather(z), torch.einsum("kmn,mkp->np", dense, z))
