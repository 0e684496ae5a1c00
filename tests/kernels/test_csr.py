"""CSR matrices: how they are sorted, what is checked when they are made, and groups of rows."""

import copy
import pickle
import random
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from matrices import HERE, calls_of, csr_of, random_inputs
from oracle import assert_same_steps

from pyg_outerconv import clear_caches
from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import (
    BACKENDS,
    CSR,
    grouped_matmul,
    use_backend,
)
from pyg_outerconv.kernels import edge_lists as module
from pyg_outerconv.kernels.edge_lists import (
    counting_sort,
    sort_edges,
    transposed_rows,
    with_missing_loops,
)
from pyg_outerconv.testing import assert_near

NAMES = ("ptr", "index")


def draw(seed):
    """The tensors of a random matrix, of at least two rows, columns and entries."""
    pick = torch.Generator().manual_seed(seed)
    rows, cols, entries = (int(torch.randint(2, 9, (), generator=pick)) for _ in range(3))
    ends = [torch.randint(n, (entries + 1,), generator=pick) for n in (cols, rows)]
    csr = Pattern.build(torch.stack(ends), size=(cols, rows)).by_target
    dtype = random.Random(seed).choice((torch.int32, torch.int64))
    return {name: getattr(csr, name).to(dtype) for name in NAMES} | {"num_columns": cols}


def placed(tensor, place, number):
    out = tensor.clone()
    out[place] = number
    return out


def corruptions(tensor, pick):
    """What may happen to one field, by name."""
    place, huge = pick.randrange(tensor.numel()), 2**31 - 1
    yield "a list", tensor.tolist()
    yield "floats", tensor.float()
    yield "another type", tensor.to(torch.int64 if tensor.dtype == torch.int32 else torch.int32)
    yield "short integers", tensor.to(torch.int16)
    yield "a matrix", tensor.view(1, -1)
    yield "a number", tensor.sum()
    yield "nothing", tensor[:0]
    yield "too short", tensor[:-1]
    yield "too long", torch.cat([tensor, tensor[-1:]])
    yield "far beyond", placed(tensor, place, huge)
    yield "negative", placed(tensor, place, -1 - pick.randrange(5))
    yield "far below", placed(tensor, place, -huge)
    yield "one more", placed(tensor, place, int(tensor[place]) + 1)
    yield "one less", placed(tensor, place, int(tensor[place]) - 1)
    yield "elsewhere", tensor.to("meta")
    yield "backwards", tensor.flip(0)
    yield "falling", placed(tensor, slice(1, None), torch.arange(tensor.numel() - 1, 0, -1))


def may_be_right(name, bad, tensors):
    """Whether the numbers still list entries of a matrix, if not those that were drawn."""
    ptr, index = (bad if name == own else tensors[own] for own in NAMES)
    if ptr.dtype != index.dtype or ptr.dim() + index.dim() != 2 or not ptr.numel():
        return False
    rises = ptr[0] == 0 and ptr[-1] == index.numel() and bool((ptr.diff() >= 0).all())
    return rises and bool(((index >= 0) & (index < tensors["num_columns"])).all())


@pytest.mark.parametrize("seed", range(20))
def test_every_field_that_is_not_of_the_matrix_is_refused(seed):
    tensors, pick = draw(seed), random.Random(seed)
    CSR(**tensors)
    for name in NAMES:
        for _, bad in corruptions(tensors[name], pick):
            looked_at = isinstance(bad, torch.Tensor) and not bad.is_meta
            if looked_at and may_be_right(name, bad, tensors):
                continue
            with pytest.raises((TypeError, ValueError), match="expected .*, got "):
                CSR(**{**tensors, name: bad})
    for bad in (-1, 2.0, None, int(tensors["index"].max())):
        with pytest.raises((TypeError, ValueError), match="expected .*, got "):
            CSR(**{**tensors, "num_columns": bad})


def equal(one, other):
    parts = [(csr.ptr, csr.index, csr.order, *csr.columns) for csr in (one, other)]
    same = [a is b is None or torch.equal(a, b) for a, b in zip(*parts, strict=True)]
    return all(same) and one.shape == other.shape


def test_what_was_checked_stays():
    good = CSR(**draw(0))
    with pytest.raises(FrozenInstanceError):
        good.index = good.index + 100
    with pytest.raises(TypeError):  # it goes by no way but the checked one
        replace(good, index=good.index + 100)
    for again in (copy.copy(good), copy.deepcopy(good), pickle.loads(pickle.dumps(good))):
        assert equal(again, good)
    assert equal(good.to("cpu"), good)
    assert equal(good.T.to("cpu"), good.T)


def strided(tensor):
    """The same numbers, two apart in memory."""
    return torch.stack([tensor, torch.full_like(tensor, 10**6)], dim=1)[:, 0]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("backend", HERE)
def test_strided_indices_give_the_numbers_of_contiguous_ones(backend, dtype):
    drawn = csr_of("square")
    plain = CSR(drawn.ptr.to(dtype), drawn.index.to(dtype), 7)
    other = CSR(strided(plain.ptr), strided(plain.index), 7)
    assert other.ptr.is_contiguous()
    assert other.index.is_contiguous()
    ours = {name: call for name, call, _ in calls_of(backend, plain, 3, 2)}
    for name, call, shapes in calls_of(backend, other, 3, 2):
        inputs = random_inputs(shapes)
        with use_backend(backend):
            assert_same_steps(call, ours[name], inputs)


# Groups of rows -----------------------------------------------------------------------------------

GROUPED = [
    name for name in ("native", "reference") if "grouped_matmul" in BACKENDS[name].primitives
]


@pytest.mark.parametrize("seed", range(15))
def test_indices_of_groups_that_do_not_fit_are_refused(seed):
    pick = random.Random(seed)
    rows, groups = pick.randint(2, 6), pick.randint(2, 4)
    cuts = sorted(pick.randrange(rows + 1) for _ in range(groups - 1))
    ptr, gather = torch.tensor([0, *cuts, rows]), torch.randperm(rows)
    x, theta = torch.randn(rows, 3), torch.randn(groups, 3, 2)
    cases = [
        {"ptr": bad}
        for bad in (
            [0, *cuts, rows],
            ptr.float(),
            ptr.view(1, -1),
            placed(ptr, -1, rows - 1),
            placed(ptr, -1, rows + 1),
            placed(ptr, 0, 1),
            placed(ptr, 0, -1),
            placed(ptr, 1, rows + 1),
            placed(ptr, 1, -1),
            ptr[:-1],
            torch.cat([ptr, ptr[-1:]]),
            ptr[:0],
        )
    ]
    for name in ("gather", "scatter"):
        cases += [
            {name: bad}
            for bad in (
                gather.tolist(),
                gather.float(),
                gather.view(1, -1),
                gather[:-1],
                placed(gather, 0, rows),
                placed(gather, 0, -1),
            )
        ]
    for case in cases:
        arguments = {"x": x, "ptr": ptr, "theta": theta, "num_rows": rows, **case}
        with pytest.raises((TypeError, ValueError), match="expected .*, got "):
            grouped_matmul(**arguments)


@pytest.mark.parametrize("backend", GROUPED)
def test_strided_groups(backend):
    ptr, gather = torch.tensor([0, 2, 5]), torch.tensor([3, 0, 1, 2, 4])
    x, theta = torch.randn(5, 3).double(), torch.randn(2, 3, 2).double()
    with use_backend(backend):
        actual = grouped_matmul(x, strided(ptr), theta, gather=strided(gather))
        assert_near(actual, grouped_matmul(x, ptr, theta, gather=gather))


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
    csr = CSR.of(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1]), 2)
    assert csr.shape == (2, 2)
    assert "columns" not in vars(csr)
    turned = csr.T
    assert (turned.ptr.tolist(), turned.index.tolist()) == ([0, 1, 3], [0, 0, 1])
    assert turned.order.tolist() == [1, 0, 2]
    assert csr.T.order is turned.order
    assert (turned.T.ptr is csr.ptr, turned.T.index is csr.index) == (True, True)
    assert (turned.T.order, turned.T.shape) == (None, csr.shape)


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
        actual = module._counted_operator(row.clone(), column.clone(), 5)
        assert all(map(torch.equal, actual, expected))
        for part in actual:
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
