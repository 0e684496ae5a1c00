"""Supports of sequences, sets and grids are the masks that their equations say, pair by pair."""

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
    Grid,
    Identity,
    Nearest,
    RandomLinks,
    Relation,
    SlidingWindow,
    Strided,
    Union,
)
from pyg_outerconv.graph import Cells
from pyg_outerconv.testing import assert_near, awkward_cells

CPU, CELLS = torch.device("cpu"), awkward_cells()


def mask_of(rule, sources, targets):
    """(M, N) booleans of what a rule says of two places; nodes are (graph, place)."""
    mask = torch.zeros(len(sources), len(targets), dtype=torch.bool)
    for (m, (g, here)), (n, (h, there)) in product(enumerate(sources), enumerate(targets)):
        mask[m, n] = g == h and rule(here, there)
    return mask


def numbered(batch):
    """(graph, place in the graph) of each node."""
    graphs = batch.tolist()
    return [(graph, graphs[:i].count(graph)) for i, graph in enumerate(graphs)]


def places_of(cells):
    """(grid, coordinates) of each cell."""
    index = [tuple(place) for place in cells.listed().index.tolist()]
    return list(zip([0] * len(index) if cells.batch is None else cells.batch.tolist(), index))  # noqa: B905


def assert_pairs(basis, mask):
    """Every pair of the mask has one edge, in order, of value one; a rule counts them without."""
    assert basis.size == tuple(mask.shape)
    assert basis.dtype is None
    edges = basis.edges()
    assert torch.equal(edges.support()[0], mask)
    assert torch.equal(edges.to_dense(torch.float64)[0], mask.double())
    assert edges.num_edges == int(mask.sum())
    key = edges.pattern.target.long() * len(mask) + edges.pattern.source
    assert bool((key.diff() > 0).all())


# Rules --------------------------------------------------------------------------------------------

SIZES = (0, 1, 2, 5, 8)
LIMITS = ((None, None), (None, 0), (0, 0), (1, 2), (3, None), (-1, 2), (2, -2))


def assert_counted(rule, mask):
    """The pairs of a mask, whose counts need no edges."""
    counts = rule.num_edges, rule.num_source_pairs, rule.num_target_pairs
    assert counts == (int(mask.sum()), int(mask.any(1).sum()), int(mask.any(0).sum()))
    assert not rule.has_edges, "counting makes no edges"
    assert_pairs(rule, mask)


@pytest.mark.parametrize(("m", "n"), list(product(SIZES, SIZES)))
def test_a_band_is_its_mask(m, n):
    nodes = [[(0, place) for place in range(count)] for count in (m, n)]
    for (left, right), dilation, offset in product(LIMITS, (1, 2, 7), (-4, -1, 0, 3)):

        def rule(here, there, left=left, right=right, dilation=dilation, offset=offset):
            step, rest = divmod(here - there - offset, dilation)
            inside = (left is None or step >= -left) and (right is None or step <= right)
            return rest == 0 and inside

        band, mask = Band(m, n, left, right, dilation, offset, on=CPU), mask_of(rule, *nodes)
        assert_counted(band, mask)
        assert_counted(band.transpose(), mask.t())
        assert isinstance(band.T, Band)
        assert band.is_complete == bool(mask.all())


def test_a_band_of_a_long_sequence_is_counted_without_work():
    long = 10**7
    assert Band(long, long, on=CPU).num_edges == long**2
    assert Band(long, long, None, 0, on=CPU).num_edges == long * (long + 1) // 2
    window = Band(long, long, 128, 128, on=CPU)
    assert window.num_edges == 257 * long - 128 * 129
    assert window.num_source_pairs == window.num_target_pairs == long


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_blocks_are_their_mask(dtype):
    generator = torch.Generator().manual_seed(3)
    for m, n in product(SIZES, SIZES):
        source = torch.randint(-1, 4, (m,), generator=generator, dtype=dtype)
        target = torch.randint(-2, 5, (n,), generator=generator, dtype=dtype)
        mask = (source.unsqueeze(1) == target) & (target >= 0)
        blocks = SameBlock(source, target)
        assert_counted(blocks, mask)
        assert_counted(blocks.transpose(), mask.t())
        assert isinstance(blocks.T, SameBlock)


# Sequences and sets -------------------------------------------------------------------------------

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


@of_each_rule
def test_pairs_of_every_size(family):
    for m, n in product((0, 1, 2, 5, 9), repeat=2):
        basis = family.basis(None, size=(m, n))
        nodes = [[(0, place) for place in range(count)] for count in (m, n)]
        assert_pairs(basis, mask_of(RULES[family], *nodes))
        if isinstance(family, LAZY):
            assert isinstance(basis, SameBlock if isinstance(family, Blocks) else Band)


@of_each_rule
@pytest.mark.parametrize(
    "graphs", [[], [4], [0, 0, 2, 2, 2, 5], [1, 0, 1, 1, 0, 3, 1, 0, 1], [0] * 7], ids=str
)
def test_graphs_of_a_batch_do_not_see_each_other(family, graphs):
    batch = torch.tensor(graphs, dtype=torch.long)
    mask = mask_of(RULES[family], numbered(batch), numbered(batch))
    assert_pairs(family.basis(None, batch=batch), mask)
    edges = torch.empty(2, 0, dtype=torch.long)
    assert_pairs(family.basis(edges, size=mask.shape, batch=batch), mask)
    if not isinstance(family, SlidingWindow | Blocks | Union):  # which look at coordinates
        cells = Cells(torch.arange(len(graphs)).view(-1, 1), batch=batch)
        assert_pairs(family.basis(cells), mask)


@of_each_rule
def test_ragged_cross_attention_has_a_batch_for_each_end(family):
    sources, targets = torch.tensor([0, 1, 1, 0, 3, 1]), torch.tensor([1, 0, 2, 1])
    mask = mask_of(RULES[family], numbered(sources), numbered(targets))
    assert_pairs(family.basis(None, batch=(sources, targets)), mask)
    x = torch.randn(6, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    conv = OuterConv(2, 3, family, bias=False).double()
    expected = mask.t().double() @ x[0] @ conv.theta()[0, 0]
    assert_near(conv(x, None, batch=(sources, targets)), expected, 1e-10)


@of_each_rule
def test_a_layer_reads_nodes_shapes_and_edges(family):
    conv, x = OuterConv(3, 2, family).double(), torch.randn(5, 3, dtype=torch.float64)
    mask = mask_of(RULES[family], *[[(0, place) for place in range(5)]] * 2).double()
    expected = mask.t() @ x @ conv.theta()[0, 0] + conv.bias
    for edges in (None, (5,), torch.tensor([[0, 4], [4, 1]]), family.basis((5,))):
        assert_near(conv(x, edges), expected)
    batched = torch.randn(2, 5, 3, dtype=torch.float64)
    assert_near(conv(batched, None)[1], conv(batched[1], None))


def test_a_complete_support_without_loops():
    for batch in (torch.tensor([0, 0, 1, 0]), torch.empty(0, dtype=torch.long)):
        mask = (batch.unsqueeze(1) == batch) & ~torch.eye(len(batch), dtype=torch.bool)
        assert_pairs(Complete(add_self_loops=False).basis(None, batch=batch), mask)
    assert_pairs(Complete(add_self_loops=False).basis((1,)), torch.zeros(1, 1, dtype=torch.bool))


def test_random_links_are_distinct_as_many_as_there_are_and_as_likely_everywhere():
    for m, n, count in product((0, 1, 4, 30), (0, 1, 20), (0, 1, 3, 9)):
        basis = RandomLinks(count).basis(None, size=(m, n))
        assert basis.support().sum(1).eq(min(count, m)).all()
        assert basis.num_edges == n * min(count, m), "no link comes twice"
    seen = sum(RandomLinks(2, seed).basis((6,)).to_dense()[0] for seed in range(600))
    assert bool(((seen - 200).abs() < 5 * (600 * 2 / 9) ** 0.5).all())


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


def test_a_union_keeps_each_pair_once_and_no_values():
    edges, weight = torch.tensor([[0, 0, 1, 2], [1, 1, 1, 0]]), torch.tensor([2.0, 3.0, 4.0, 0.0])
    union = Union(Relation(1, None), Identity()).basis(edges, weight)
    mask = torch.eye(3, dtype=torch.bool)
    mask[edges[0], edges[1]] = True
    assert_pairs(union, mask)


def test_sets_without_edges_are_stored_and_batched():
    sets = [Data(x=torch.randn(n, 2), pos=torch.randn(n, 3)) for n in (3, 1, 4)]
    windows, near = Union(SlidingWindow(1), GlobalTokens(1)), Nearest(2, add_self_loops=True)
    for family in (Complete(), Causal(), windows, Nearest(2), Union(Nearest(1), near)):
        blocks = [family.basis_of(one).to_dense()[0] for one in sets]
        for batch in (sets, [family(one.clone()) for one in sets]):
            actual = family.basis_of(Batch.from_data_list(batch)).to_dense()[0]
            assert_near(actual, torch.block_diag(*blocks))


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


# Grids --------------------------------------------------------------------------------------------


def window(sizes, dilations=(1, 1), causal=False):
    def sees(here, there):
        steps = [divmod(n - m, d) for m, n, d in zip(here, there, dilations, strict=True)]
        near = all(
            rest == 0 and abs(step) <= w for (step, rest), w in zip(steps, sizes, strict=True)
        )
        return near and (not causal or here <= there)

    return sees


def block(sizes, shifts=(0, 0)):
    def of(place):
        return [(i - t) // s for i, s, t in zip(place, sizes, shifts, strict=True)]

    return lambda here, there: of(here) == of(there)


OF_CELLS = {
    SlidingWindow(1): window((1, 1)),
    SlidingWindow((2, 0)): window((2, 0)),
    SlidingWindow((1, 2), dilation=(2, 1)): window((1, 2), (2, 1)),
    SlidingWindow(1, 2, causal=True): window((1, 1), (2, 2), True),
    SlidingWindow((1, 2), causal=True): window((1, 2), (1, 1), True),
    Blocks(2): block((2, 2)),
    Blocks((1, 3)): block((1, 3)),
    Blocks((2, 3), shift=1): block((2, 3), (1, 1)),
    Blocks(3, shift=(0, 2)): block((3, 3), (0, 2)),
}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("family", OF_CELLS, ids=str)
def test_pairs_are_those_of_the_coordinates(family, name):
    places = places_of(CELLS[name])
    assert_pairs(family.basis(CELLS[name]), mask_of(OF_CELLS[family], places, places))


@pytest.mark.parametrize("family", OF_CELLS, ids=str)
def test_supports_of_grids_keep_their_cells(family):
    conv, x = OuterConv(3, 2, family, bias=False).double(), torch.randn(12, 3).double()
    places = places_of(Cells.of_shape((3, 4)))
    mask = mask_of(OF_CELLS[family], places, places).double()
    assert_near(conv(x, (3, 4)), mask.t() @ x @ conv.theta()[0, 0])
    assert family.outputs((3, 4)).shape == (3, 4)


def test_three_axes_are_windowed_and_a_window_is_all_the_shifts_of_a_kernel():
    """A window of w on each side is a kernel of 2w + 1, whose labels are not told apart."""
    family, places = SlidingWindow((0, 1, 2), causal=True), places_of(Cells.of_shape((2, 3, 4)))
    mask = mask_of(window((0, 1, 2), (1, 1, 1), True), places, places)
    assert_pairs(family.basis((2, 3, 4)), mask)
    assert family.num_axes == 3
    assert family.reads is Cells
    for cells in ((6, 5), CELLS["holes"], CELLS["unbounded"]):
        kernel = Grid((3, 5), padding=(1, 2)).basis(cells).to_dense()
        assert_near(SlidingWindow((1, 2)).basis(cells).to_dense()[0], kernel.sum(0))


def test_sequences_with_holes_are_windowed_by_their_coordinates():
    cells = Cells(torch.tensor([[4], [0], [1], [6]]))
    expected = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    assert torch.equal(SlidingWindow(2).basis(cells).to_dense()[0].long(), expected)
    expected = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
    assert torch.equal(Blocks(4, shift=1).basis(cells).to_dense()[0].long(), expected)


def test_shifted_blocks_are_the_masked_windows_of_a_rolled_image():
    """What Swin's mask leaves of windows that a cyclic shift rolls round the ends."""
    side, size, shift = 6, 3, 1
    place = torch.arange(side)
    region = (place >= side - size).long() + (place >= side - shift)
    rolled = (place // size) * 3 + region  # windows, cut where the image was rolled
    cut = torch.empty_like(rolled)
    cut[(place + shift) % side] = rolled
    both = cut.unsqueeze(1) * 100 + cut
    mask = both.view(-1, 1) == both.view(1, -1)
    assert torch.equal(Blocks(size, shift=shift).basis((side, side)).support()[0], mask)
