"""What is kept for tensors: how a change of them is seen, how much is kept, and how to forget."""

import copy
import gc
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad

import pyg_outerconv
from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Relation, Walk
from pyg_outerconv.memo import (
    EACH,
    LINE,
    LINES,
    Memo,
    clear_caches,
    state_of,
)
from pyg_outerconv.nn import bases as cache
from pyg_outerconv.testing import assert_near

# Ways of writing that autograd does not count ----------------------------------------------------


def by_data(tensor, place, number):
    tensor.data[place] = number


def by_other_data(tensor, place, number):
    other = tensor.clone()
    other[place] = number
    tensor.data = other


def by_numpy(tensor, place, number):
    tensor.numpy()[place] = number


def by_address(tensor, place, number):
    flat = tensor.untyped_storage()
    alias = torch.empty(0, dtype=tensor.dtype).set_(flat).as_strided(tensor.shape, tensor.stride())
    alias[place] = number


WAYS = [by_data, by_other_data, by_numpy, by_address]
FAMILIES = [GCN(), GCN(norm="target"), Walk(2), Relation(3), Chebyshev(3, "exact")]


def random_graph(nodes, edges, relations=3):
    index = torch.randint(nodes, (2, edges))
    return index, torch.rand(edges) + 0.5, torch.randint(relations, (edges,))


@pytest.mark.parametrize("write", WAYS, ids=lambda way: way.__name__)
@draws(40)
@given(data=st.data())
def test_a_write_that_autograd_does_not_count_is_seen(write, data):
    family = data.draw(st.sampled_from(FAMILIES), "family")
    nodes = data.draw(st.integers(2, 30), "nodes")
    edges = data.draw(st.integers(1, 60), "edges")
    torch.manual_seed(data.draw(st.integers(0, 2**31), "seed"))
    index, weight, kinds = random_graph(nodes, edges)
    kinds = kinds if isinstance(family, Relation) else None
    # Chebyshev keeps its eigenvalues of a layer that keeps nothing, too.
    keeps = data.draw(st.booleans(), "cached") or not isinstance(family, Chebyshev)
    conv = OuterConv(3, 2, family, cached=keeps)
    x = torch.randn(nodes, 3)
    conv(x, index, weight, edge_type=kinds)
    changed = data.draw(st.sampled_from(["index", "weight", "kinds"]), "changed")
    place = data.draw(st.integers(0, edges - 1), "place")
    if changed == "index":
        end = data.draw(st.integers(0, 1), "end")
        write(index, (end, place), (int(index[end, place]) + 1) % nodes)
    elif changed == "weight" or kinds is None:
        write(weight, place, 3.0)
    else:
        write(kinds, place, (int(kinds[place]) + 1) % 3)
    index_, weight_, kinds_ = (None if t is None else t.clone() for t in (index, weight, kinds))
    expected = conv(x, index_, weight_, edge_type=kinds_)
    assert_near(conv(x, index, weight, edge_type=kinds), expected, 1e-5)


def test_a_write_to_shared_memory_is_seen():
    index, _, _ = random_graph(9, 40)
    memory = SharedMemory(create=True, size=index.numel() * 8)
    mine = np.ndarray((2, 40), np.int64, memory.buf)
    mine[:] = index.numpy()
    seen_elsewhere = SharedMemory(memory.name)
    theirs = np.ndarray((2, 40), np.int64, seen_elsewhere.buf)
    shared = torch.from_numpy(mine)
    conv, x = OuterConv(3, 2, GCN(), cached=True), torch.randn(9, 3)
    before = conv(x, shared)
    theirs[1] = (theirs[1] + 1) % 9
    after = conv(x, shared)
    assert not torch.allclose(before, after)
    assert_near(after, conv(x, shared.clone()))
    del shared, mine, theirs
    gc.collect()
    seen_elsewhere.close()
    memory.close()
    memory.unlink()


LARGE = {
    "edges": lambda: torch.randint(1000, (2, 30_000)),
    "edges of int32": lambda: torch.randint(1000, (2, 30_000), dtype=torch.int32),
    "edges by pair": lambda: torch.randint(1000, (30_000, 2)).t(),
    "edges of a longer list": lambda: torch.randint(1000, (2, 70_000))[:, 5:30_000],
    "weights": lambda: torch.rand(60_000),
    "short weights": lambda: torch.rand(60_000).bfloat16(),
    "mask": lambda: torch.rand(300, 300) < 0.5,
}


@pytest.mark.parametrize("name", LARGE)
def test_places_all_over_a_large_tensor_are_looked_at(name):
    tensor = LARGE[name]()
    before = state_of(tensor)
    assert state_of(tensor) == before
    generator = np.random.default_rng(0)
    for share in (0.01, 0.3, 0.7, 0.95):
        run = tuple(slice(int(n * share), int(n * share) + max(1, n // 40)) for n in tensor.shape)
        if tensor.dim() == 2 and min(tensor.shape) == 2:
            run = (int(generator.integers(2)), run[tensor.shape.index(max(tensor.shape))])
            run = run if tensor.size(0) == 2 else run[::-1]
        tensor.data[run] = ~tensor[run] if tensor.dtype == torch.bool else tensor[run] + 1
        after = state_of(tensor)
        assert after != before, f"a fortieth of the {name} from {share} on"
        before = after


def test_a_large_tensor_costs_no_more_than_a_small_one():
    samples = [part for part in state_of(torch.rand(10**6)) if isinstance(part, bytes)]
    assert [len(part) for part in samples] == [LINES * LINE]


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_coo], ids=str)
def test_a_write_into_a_sparse_matrix_is_seen(layout):
    dense = (torch.rand(6, 6) < 0.5) * torch.rand(6, 6)
    dense[0, 0] = 1.0
    matrix = dense.to_sparse(layout=layout)
    conv, x = OuterConv(3, 2, GCN(), cached=True), torch.randn(6, 3)
    before = conv(x, matrix)
    values = matrix._values() if layout == torch.sparse_coo else matrix.values()
    values.data[0] = 5.0
    assert not torch.allclose(conv(x, matrix), before)
    assert_near(conv(x, matrix), conv(x, matrix.clone()))


def test_what_was_not_changed_is_served_within_transforms_too():
    index, _, _ = random_graph(5, 8)
    conv, x = OuterConv(3, 2, GCN(), cached=True), torch.randn(5, 3)
    basis = conv.basis(x, index)
    bases = []

    def loss(x):
        bases.append(conv.basis(x, index))
        return conv(x, index).sum()

    torch.func.grad(loss)(x)
    torch.vmap(loss)(x.expand(2, 5, 3))
    assert all(one is basis for one in bases)


# How much is kept --------------------------------------------------------------------------------


@given(
    each=st.integers(1, 4),
    tensors=st.integers(1, 4),
    asked=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40),
)
def test_what_was_used_longest_ago_goes_first(each, tensors, asked):
    cache, anchors = Memo(each, tensors), [torch.ones(1) for _ in range(6)]
    last: dict = {}  # anchor to its keys, both in the order of their last use
    for anchor, key in asked:
        calls = []
        cached = cache.get(key, lambda calls=calls: calls.append(1) or object(), anchors[anchor])
        keys = last.pop(anchor, {})
        last[anchor] = keys
        expected = keys.pop(key, None)
        assert (expected is None) == bool(calls)
        assert expected is None or cached is expected
        keys[key] = cached
        while len(keys) > each:
            del keys[next(iter(keys))]
        while len(last) > tensors:
            del last[next(iter(last))]
    assert len(cache) == sum(map(len, last.values()))


def test_the_bases_of_one_edge_index_are_bounded():
    index, x = torch.randint(5, (2, 8)), torch.randn(5, 3)
    gc.collect()
    before = len(cache.bases)
    for length in range(3 * EACH):
        OuterConv(3, 2, Walk(length), cached=True).basis(x, index)
        assert len(cache.bases) <= before + EACH
    del index
    gc.collect()
    assert len(cache.bases) == before


def test_results_without_tensors_are_bounded_and_not_copied():
    memo = Memo(2)
    for key in "abacd":
        assert memo.get(key, key.upper) == key.upper()
    assert [memo.get(key, key.lower) for key in "cd"] == ["C", "D"]
    assert memo.get("a", "kept no longer".upper) == "KEPT NO LONGER"
    for copied in (copy.deepcopy(memo), pickle.loads(pickle.dumps(memo))):
        assert len(copied) == 0
        assert len(memo) == 2


def test_none_in_the_place_of_a_tensor_is_told_apart():
    memo, (first, second) = Memo(), torch.ones(2, 3)
    entries = {
        places: memo.get("key", object, *places)
        for places in ((first, None), (first, second), (second, None), (None, second))
    }
    assert len(set(map(id, entries.values()))) == len(entries)
    assert memo.get("key", object, None, second) is entries[None, second]


@pytest.mark.parametrize("within", ["inference mode", "vmap"])
def test_what_is_made_in_a_mode_or_transform_serves_outside(within):
    memo, anchor = Memo(), torch.rand(3)

    def doubled():
        return memo.get("key", lambda: 2.0 * anchor, anchor)

    if within == "vmap":
        torch.func.vmap(lambda x: x * doubled().sum())(torch.ones(2))
    else:
        with torch.inference_mode():
            doubled()
    weight = torch.ones(3, requires_grad=True)
    (doubled() * weight).sum().backward()
    assert torch.equal(weight.grad, 2.0 * anchor)


def test_everything_kept_is_forgotten_when_asked():
    index, x = torch.randint(5, (2, 8)), torch.randn(5, 3)
    conv, rules = OuterConv(3, 2, Chebyshev(2, "exact"), cached=True), Memo(3)
    basis = conv.basis(x, index)
    rules.get("key", object)
    assert conv.basis(x, index) is basis
    pyg_outerconv.clear_caches()
    assert len(cache.bases) == len(cache.rules) == len(rules) == 0
    again = conv.basis(x, index)
    assert again is not basis
    assert conv.basis(x, index) is again
    assert clear_caches is pyg_outerconv.clear_caches


def test_threads_share_a_cache_that_is_full():
    caches = Memo(each=4, tensors=2), Memo(4)
    anchors = [torch.zeros(2) for _ in range(3)]

    def use(number):
        for step in range(400):
            key = (number * 7 + step) % 11
            assert caches[0].get(key, lambda key=key: key, anchors[step % 3]) == key
            assert caches[1].get(key, lambda key=key: key) == key

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(use, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert len(caches[0]) <= 8
    assert len(caches[1]) <= 4


def test_nothing_is_kept_in_forward_mode():
    conv, x, edge_index = OuterConv(4, 3, "gcn"), torch.randn(8, 4), torch.randint(8, (2, 20))
    with forward_ad.dual_level():
        weight = forward_ad.make_dual(torch.rand(20), torch.ones(20))
        first = forward_ad.unpack_dual(conv(x, edge_index, edge_weight=weight)).tangent
        assert first.norm() > 0
        forward_ad.unpack_dual(weight).tangent.zero_()
        then = forward_ad.unpack_dual(conv(x, edge_index, edge_weight=weight)).tangent
        assert then.norm() == 0
    assert len(cache.recent) == 0
