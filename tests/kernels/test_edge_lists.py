"""Sorting by counts, on both sides of every bound; self-loops after the edges that are there."""

import pytest
import torch

from pyg_outerconv import clear_caches
from pyg_outerconv.kernels import CSR
from pyg_outerconv.kernels import edge_lists as module
from pyg_outerconv.kernels.edge_lists import (
    counting_sort,
    sort_edges,
    transposed_rows,
    with_missing_loops,
)

SIZES = [(0, 3), (1, 1), (100, 7), (2**14, 300), (2**14, 70_000), (3 * 2**14, 2)]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(("entries", "count"), SIZES)
@pytest.mark.parametrize("has_tools", [True, False])
def test_equals_a_stable_sort(entries, count, dtype, has_tools, monkeypatch):
    assert module.scipy_tools() is not None  # a scipy without them makes all of this slow
    if not has_tools:
        monkeypatch.setattr(module, "scipy_tools", lambda: None)
    key = torch.randint(count, (entries,), dtype=dtype)
    ptr, order = counting_sort(key, count)
    assert ptr.dtype == order.dtype == dtype
    assert torch.equal(order.long(), torch.sort(key, stable=True).indices)
    assert torch.equal(ptr.diff().long(), torch.bincount(key, minlength=count))
    label = torch.randint(5, (entries,), dtype=dtype)
    for labels in (None, label):
        other = torch.arange(entries, dtype=dtype).flip(0)
        edges = key, other, count, labels, 1 if labels is None else 5
        node_ptr, sorted_other, by_pair, pair_ptr = sort_edges(*edges)
        if pair_ptr is not None:
            pairs = torch.bincount(key if labels is None else key * 5 + labels, minlength=count)
            assert torch.equal(pair_ptr.diff()[: pairs.numel()].long(), pairs)
        assert torch.equal(sorted_other, other[by_pair.long()])
        pair = key if labels is None else key * 5 + labels
        assert torch.equal(by_pair.long(), torch.sort(pair, stable=True).indices)
        assert torch.equal(node_ptr, ptr)


@pytest.mark.parametrize(("entries", "count"), SIZES)
def test_a_matrix_is_turned_round(entries, count):
    ptr, _ = counting_sort(torch.randint(count, (entries,), dtype=torch.int32), count)
    row = torch.arange(count, dtype=torch.int32).repeat_interleave(ptr.diff())
    col = torch.randint(9, (entries,), dtype=torch.int32)
    colptr, index, perm = transposed_rows(ptr, col, 9)
    assert torch.equal(perm.long(), torch.sort(col, stable=True).indices)
    assert torch.equal(index, row[perm.long()])
    assert torch.equal(colptr.diff().long(), torch.bincount(col, minlength=9))


def test_columns_are_sorted_where_they_are_asked_for():
    made = CSR.of(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1]), 2)
    assert made.shape == (2, 2)
    assert "columns" not in vars(made)
    turned = made.T
    assert (turned.ptr.tolist(), turned.index.tolist()) == ([0, 1, 3], [0, 0, 1])
    assert turned.order.tolist() == [1, 0, 2]
    assert made.T.order is turned.order
    assert (turned.T.ptr is made.ptr, turned.T.index is made.index) == (True, True)
    assert (turned.T.order, turned.T.shape) == (None, made.shape)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("edges", [[], [(0, 1), (2, 0)], [(1, 1), (0, 2), (1, 1), (3, 3)]], ids=len)
def test_loops_are_added_where_there_are_none(edges, reads, dtype, monkeypatch):
    if not reads:
        monkeypatch.setattr(module, "can_read", lambda index: False)
    edge_index = torch.tensor(edges, dtype=dtype).view(-1, 2).t()
    added = with_missing_loops(edge_index, 4)
    assert added.dtype == dtype
    loops = [[n, n] for n in range(4) if (n, n) not in edges]
    assert added.t().tolist() == [*map(list, edges), *loops]


def test_compiled_graphs_sort_again_only_what_they_did_not_sort_last(monkeypatch):
    sorts = []

    def counted(row, column, count):
        sorts.append(count)
        return counting(row, column, count)

    counting = module._counted
    monkeypatch.setattr(module, "_counted", counted)
    clear_caches()
    row, column = torch.randint(5, (2, 40))
    expected = counting(row, column, 5)
    for _ in range(2):
        found = module._counted_operator(row.clone(), column.clone(), 5)
        assert all(map(torch.equal, found, expected))
        for part in found:
            part.zero_()  # of the caller's own
    assert sorts == [5]
    with torch.inference_mode():
        module._counted_operator(row.clone(), column.clone(), 5)
    assert sorts == [5]
    row[7] = (row[7] + 1) % 5  # as a graph of the same size has
    assert all(map(torch.equal, module._counted_operator(row, column, 5), counting(row, column, 5)))
    assert len(sorts) == 2
    for _ in range(2 * module.MOST_SORTED):
        module._counted_operator(*torch.randint(5, (2, 40)), 5)
    assert len(module.SORTED) == module.MOST_SORTED
    clear_caches()
    assert not module.SORTED
