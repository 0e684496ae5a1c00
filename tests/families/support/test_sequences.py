"""Supports of sequences and sets are the masks that their equations say, pair by pair."""

import pickle
import weakref
from itertools import product

import pytest
import torch
from torch_geometric.data import Batch, Data

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import Band, SameBlock
from pyg_outerconv.families import (
    Blocks,
    Causal,
    Complete,
    GlobalTokens,
    Identity,
    RandomLinks,
    Relation,
    SlidingWindow,
    Stack,
    Strided,
    Union,
)
from pyg_outerconv.graph import Cells
from pyg_outerconv.testing import assert_near

SIZES = (0, 1, 2, 5, 9)

# What each family says of source m and target n, by their places.
RULES = {
    Complete(): lambda m, n: True,
    Causal(): lambda m, n: m <= n,
    Causal(strict=True): lambda m, n: m < n,
    SlidingWindow(0): lambda m, n: m == n,
    SlidingWindow(2): lambda m, n: abs(m - n) <= 2,
    SlidingWindow((2,), dilation=3): lambda m, n: m - n in (-6, -3, 0, 3, 6),
    SlidingWindow(2, dilation=2, causal=True): lambda m, n: n - m in (0, 2, 4),
    Strided(1): lambda m, n: True,
    Strided(3): lambda m, n: (n - m) % 3 == 0,
    Strided(3, causal=True): lambda m, n: (n - m) % 3 == 0 and m <= n,
    Blocks(1): lambda m, n: m == n,
    Blocks(3): lambda m, n: m // 3 == n // 3,
    Blocks(3, shift=2): lambda m, n: (m + 1) // 3 == (n + 1) // 3,
    GlobalTokens(0): lambda m, n: False,
    GlobalTokens(2): lambda m, n: m < 2 or n < 2,
    GlobalTokens((3, 0, 3)): lambda m, n: m in (0, 3) or n in (0, 3),
    Union(SlidingWindow(1), GlobalTokens(1)): lambda m, n: abs(m - n) <= 1 or 0 in (m, n),
    Union(Causal(), Complete(), Causal()): lambda m, n: True,
}
LAZY = (Complete, Causal, SlidingWindow, Strided, Blocks)

of_each_rule = pytest.mark.parametrize("family", RULES, ids=str)


def mask_of(family, sources, targets):
    """The dense mask; nodes are (graph, place)."""
    rule = RULES[family]
    mask = torch.zeros(len(sources), len(targets), dtype=torch.bool)
    for (m, (g, here)), (n, (h, there)) in product(enumerate(sources), enumerate(targets)):
        mask[m, n] = g == h and rule(here, there)
    return mask


def numbered(batch):
    """(graph, place in the graph) of each node."""
    graphs = batch.tolist()
    return [(graph, graphs[:i].count(graph)) for i, graph in enumerate(graphs)]


def assert_pairs(basis, mask):
    """Every pair of the mask has one edge, in order, of value one."""
    edges = basis.edges()
    assert basis.size == tuple(mask.shape)
    assert basis.dtype is None
    assert torch.equal(edges.to_dense(torch.float64)[0], mask.double())
    assert edges.num_edges == int(mask.sum())
    key = edges.pattern.target.long() * len(mask) + edges.pattern.source
    assert bool((key.diff() > 0).all())


@of_each_rule
def test_pairs_of_every_size(family):
    for m, n in product(SIZES, SIZES):
        basis = family.basis(None, size=(m, n))
        nodes = [[(0, place) for place in range(count)] for count in (m, n)]
        assert_pairs(basis, mask_of(family, *nodes))
        if isinstance(family, LAZY):
            assert isinstance(basis, SameBlock if isinstance(family, Blocks) else Band)


@of_each_rule
@pytest.mark.parametrize(
    "graphs", [[], [4], [0, 0, 2, 2, 2, 5], [1, 0, 1, 1, 0, 3, 1, 0, 1], [0] * 7], ids=str
)
def test_graphs_of_a_batch_do_not_see_each_other(family, graphs):
    batch = torch.tensor(graphs, dtype=torch.long)
    mask = mask_of(family, numbered(batch), numbered(batch))
    assert_pairs(family.basis(None, batch=batch), mask)
    edges = torch.empty(2, 0, dtype=torch.long)
    assert_pairs(family.basis(edges, size=mask.shape, batch=batch), mask)
    if not isinstance(family, SlidingWindow | Blocks | Union):  # which look at coordinates
        cells = Cells(torch.arange(len(graphs)).view(-1, 1), batch=batch)
        assert_pairs(family.basis(cells), mask)


@of_each_rule
def test_ragged_cross_attention_has_a_batch_for_each_end(family):
    sources, targets = torch.tensor([0, 1, 1, 0, 3, 1]), torch.tensor([1, 0, 2, 1])
    mask = mask_of(family, numbered(sources), numbered(targets))
    assert_pairs(family.basis(None, batch=(sources, targets)), mask)
    x = torch.randn(6, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    conv = OuterConv(2, 3, family, bias=False).double()
    expected = mask.t().double() @ x[0] @ conv.theta()[0, 0]
    assert_near(conv(x, None, batch=(sources, targets)), expected, 1e-10)


@of_each_rule
def test_a_layer_reads_nodes_shapes_and_edges(family):
    conv, x = OuterConv(3, 2, family).double(), torch.randn(5, 3, dtype=torch.float64)
    mask = mask_of(family, *[[(0, place) for place in range(5)]] * 2).double()
    expected = mask.t() @ x @ conv.theta()[0, 0] + conv.bias
    for given in (None, (5,), torch.tensor([[0, 4], [4, 1]]), family.basis((5,))):
        assert_near(conv(x, given), expected)
    batched = torch.randn(2, 5, 3, dtype=torch.float64)
    assert_near(conv(batched, None)[1], conv(batched[1], None))


@of_each_rule
def test_supports_are_pickled_with_their_pairs(family):
    assert pickle.loads(pickle.dumps(family)) == family
    basis = family.basis((4,))
    assert torch.equal(pickle.loads(pickle.dumps(basis)).support(), basis.support())


def test_a_complete_support_without_loops():
    for batch in (torch.tensor([0, 0, 1, 0]), torch.empty(0, dtype=torch.long)):
        mask = (batch.unsqueeze(1) == batch) & ~torch.eye(len(batch), dtype=torch.bool)
        assert_pairs(Complete(add_self_loops=False).basis(None, batch=batch), mask)
    assert_pairs(Complete(add_self_loops=False).basis((1,)), torch.zeros(1, 1, dtype=torch.bool))


def test_heads_have_supports_of_their_own_in_a_stack():
    parts = [SlidingWindow(1), Strided(2), GlobalTokens(1), RandomLinks(2), Blocks(2), Complete()]
    stack = Stack(*parts)
    assert stack.num_bases == len(parts)
    batch = torch.tensor([0, 0, 1, 1, 1, 1])
    dense = stack.basis(None, batch=batch).to_dense(torch.float64)
    for part, found in zip(parts, dense, strict=True):
        assert_near(found, part.basis(None, batch=batch).to_dense(torch.float64)[0])


def test_random_links_are_distinct_and_as_many_as_there_are():
    for m, n, count in product((0, 1, 4, 30), (0, 1, 20), (0, 1, 3, 9)):
        basis = RandomLinks(count).basis(None, size=(m, n))
        assert basis.support().sum(1).eq(min(count, m)).all()
        assert basis.num_edges == n * min(count, m), "no link comes twice"


def test_random_links_follow_from_the_seed_and_the_number_of_nodes():
    first, again = (RandomLinks(3, seed=5).basis((40,)).support() for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, RandomLinks(3, seed=6).basis((40,)).support())
    batch = torch.tensor([0] * 9 + [1] * 40 + [2] * 9)
    together = RandomLinks(3, seed=5).basis(None, batch=batch).support()[0]
    assert torch.equal(together[9:49, 9:49], first[0])
    assert torch.equal(together[:9, :9], together[49:, 49:])
    state = torch.random.get_rng_state()
    RandomLinks(3).basis((40,))
    assert torch.equal(state, torch.random.get_rng_state()), "nobody else's draws change"


def test_random_links_are_as_likely_everywhere():
    seen = sum(RandomLinks(2, seed).basis((6,)).to_dense()[0] for seed in range(600))
    assert bool(((seen - 200).abs() < 5 * (600 * 2 / 9) ** 0.5).all())


def test_a_union_keeps_each_pair_once_and_no_values():
    edges, weight = torch.tensor([[0, 0, 1, 2], [1, 1, 1, 0]]), torch.tensor([2.0, 3.0, 4.0, 0.0])
    union = Union(Relation(1, None), Identity()).basis(edges, weight)
    mask = torch.eye(3, dtype=torch.bool)
    mask[edges[0], edges[1]] = True
    assert_pairs(union, mask)


def test_sets_without_edges_are_stored_and_batched():
    sets = [Data(x=torch.randn(count, 2)) for count in (3, 1, 4)]
    for family in (Complete(), Causal(), Union(SlidingWindow(1), GlobalTokens(1))):
        blocks = [family.basis_of(one).to_dense()[0] for one in sets]
        for batch in (sets, [family(one.clone()) for one in sets]):
            found = family.basis_of(Batch.from_data_list(batch)).to_dense()[0]
            assert_near(found, torch.block_diag(*blocks))


def test_kept_bases_die_with_the_batch_that_they_were_made_of():
    conv, x = OuterConv(2, 2, Complete(), cached=True), torch.randn(4, 2)
    batch = torch.tensor([0, 1, 1, 0])
    first = conv.basis(x, None, batch=batch)
    assert conv.basis(x, None, batch=batch) is first
    assert conv.basis(x, None, batch=batch.clone()) is not first
    assert conv.basis(x, None) is conv.basis(x, None)
    gone = weakref.ref(first)
    del first, batch
    assert gone() is None
